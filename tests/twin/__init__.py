"""One workload on a real Slurm and in the slurmctld model: what ran, and how far apart the two are."""
