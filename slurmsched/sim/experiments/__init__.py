"""Replays for people: compare, sweep, reproduce, demo."""
