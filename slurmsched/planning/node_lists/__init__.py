"""Node lists of waiting jobs: where Slurm's own pick is best, or GPUs of a type are free."""
