"""Regret: how far a search ends below the best mask of a layer.

`record` scores every mask of some layers into `tables`. On these, `replay` plays searches without a
model, and `result` sums up what they miss.
"""
