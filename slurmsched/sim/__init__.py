"""Replays: the same cycle on simulated clusters."""
