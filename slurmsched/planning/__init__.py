"""Levers, gate and planner: a snapshot and a ranking become a plan."""
