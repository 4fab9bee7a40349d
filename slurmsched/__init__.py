"""slurmsched: published GPU scheduling policies for the Slurm a site already has."""

__version__ = "0.1.0"
