"""Players of the pruning game: one file each."""
