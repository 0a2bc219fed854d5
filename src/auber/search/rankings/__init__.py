"""Rankings of the heads and neurons of a model: one file each."""
