"""Regret: how far a search ends below the best mask of a layer.

Runs of method exhaustive record the score of every mask (`tables`). On these, agents, greedy and
random search are replayed without a model (`replay`), and what they miss is summed up (`result`).
"""
