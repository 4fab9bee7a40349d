"""Figures for Prometheus: what they are, where they come from, how they are served or written."""
