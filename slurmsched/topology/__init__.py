"""How a site's GPUs and nodes are wired, read from its files.

Pure functions: text in, frozen tables out. Slurm and files are read in slurmsched/slurm.
"""
