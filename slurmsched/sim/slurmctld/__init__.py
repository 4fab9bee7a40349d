"""The slurmctld model: schedulers, limits and priorities of Slurm."""
