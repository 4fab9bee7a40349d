"""Runs the cycle again and again: loop, lock, signals, observers."""
