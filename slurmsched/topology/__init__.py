"""How a site's GPUs and nodes are wired, read from what it has: pure functions, text in, frozen tables out.

A reader never fails on text and never guesses: what cannot be read is unknown, and `warnings` says so.
"""
