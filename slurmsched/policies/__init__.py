"""The order of jobs: one policy a file."""
