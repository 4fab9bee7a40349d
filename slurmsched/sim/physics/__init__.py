"""How fast jobs run on the GPUs that they hold."""
