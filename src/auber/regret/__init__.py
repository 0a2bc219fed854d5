"""How far below the best mask of a layer a search ends: recorded once by `exhaustive`, replayed as often as one likes.

`tables` holds what exhaustive runs recorded, `measure` the arithmetic of regret, `replay` lets the searches play on a table,
`result` says what they missed, `figure` shows it, `files` keeps it. Nothing here needs a model, its rows or a GPU.
"""
