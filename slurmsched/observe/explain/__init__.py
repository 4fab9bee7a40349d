"""Why a job waits, in plain words. Pure: Slurm's answers beside the snapshot are passed in as facts."""
