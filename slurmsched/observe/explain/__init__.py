"""Why a job waits, in plain words: pure; what Slurm was asked beside the snapshot comes in as facts."""
