"""Preemptions and gang reservations: which begin, whom they stop, and their steps, one cycle after the other."""
