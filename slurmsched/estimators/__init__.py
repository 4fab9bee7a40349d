"""Run times and speeds: one estimator a file."""
