"""The ideal cluster: no delays, no limits, no backfill of Slurm."""
