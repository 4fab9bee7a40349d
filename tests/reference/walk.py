"""Naive twin of ranking_walks.walk: jobs as dicts, prices from a sorted list of who would have to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.reference.gang import pick_gang


def walk(
    ranked: Sequence[dict[str, Any]], usable: np.ndarray, capacity: Sequence[int], handicap: np.ndarray
) -> list[list[int]]:
    """GPUs of each node each job should hold. ranked: gpus, nodes, held {node: gpus}, pool; most urgent first."""
    size, left = max(capacity, default=0), list(capacity)
    given: list[list[int]] = []
    for rank, job in enumerate(ranked):
        shares: list[int] | None
        if job["held"]:
            fits = all(left[n] >= gpus for n, gpus in job["held"].items())
            shares = [job["held"].get(n, 0) if fits else 0 for n in range(len(left))]
        else:
            free = [left[n] if usable[job["pool"], n] else 0 for n in range(len(left))]
            part = min(size, -(-job["gpus"] // max(job["nodes"], -(-job["gpus"] // max(size, 1)))))
            price = [_price(ranked, rank, n, left[n], min(part, free[n])) for n in range(len(left))]
            shares = pick_gang(np.array(free), np.array(price) + handicap, job["gpus"], job["nodes"], size)
        given.append(shares or [0] * len(left))
        left = [a - b for a, b in zip(left, given[-1], strict=True)]
    return given


def _price(ranked: Sequence[dict[str, Any]], rank: int, node: int, left: int, need: int) -> float:
    """0 if the node has idle GPUs enough, else how far from the end of the ranking the most urgent job is that goes."""
    later = [(k, job["held"].get(node, 0)) for k, job in enumerate(ranked) if k > rank]
    gained, price = left - sum(gpus for _, gpus in later), 0.0
    for k, gpus in reversed(later):
        if gained >= need:
            break
        if gpus:
            gained, price = gained + gpus, float(len(ranked) - k)
    return price
