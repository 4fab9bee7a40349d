"""The order of the ranking in Slurm: tiers, caps, and the nice values or site factors that put jobs into it."""
