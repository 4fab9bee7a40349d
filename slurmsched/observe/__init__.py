"""Explains and shows: queue, GPUs, metrics, report, web pages."""
