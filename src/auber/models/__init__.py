"""Encoders, pruning plans, surgery and checkpoints."""
