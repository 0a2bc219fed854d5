"""Fine-tuning on the Trainer, early stopping, CUDA graph capture, devices and timing."""
