"""Trace files of every kind: read, write, generate, describe."""
