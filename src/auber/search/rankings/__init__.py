"""Methods that rank all heads once."""
