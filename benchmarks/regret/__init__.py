"""Regret: how far a search ends below the best mask of a layer.

`record` scores every mask of some layers, as runs of method exhaustive do, into `tables`. On these,
searches are replayed without a model (`replay`), and what they miss is summed up (`result`).
"""
