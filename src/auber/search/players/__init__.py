"""Players of the pruning game."""
