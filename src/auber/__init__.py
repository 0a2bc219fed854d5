"""Learn which attention heads a fine-tuned encoder is better off without, and remove them."""
