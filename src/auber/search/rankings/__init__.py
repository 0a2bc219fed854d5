"""Rankings of all heads of a model: one file each."""
