"""The choice of GPUs: one placement a file."""
