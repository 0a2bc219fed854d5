"""The search for the heads to remove: the pruning game, its players, rankings, and the registry.

`env` offers the game to any Gymnasium agent. It is imported separately, because nothing else here
needs Gymnasium.
"""
