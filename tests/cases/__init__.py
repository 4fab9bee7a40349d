"""Small inputs of the kinds on which slurmsched was wrong, run as commands without a Slurm."""
