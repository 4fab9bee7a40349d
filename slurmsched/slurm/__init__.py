"""All that talks to Slurm: readers, writer, doctor."""
