"""Naive twin of ranking_walks.backfill: reservations as a list, free GPUs counted anew at every time that matters."""

from __future__ import annotations

import numpy as np

from tests.reference.gang import pick_gang


def backfill(
    times: np.ndarray, free: np.ndarray, gpus: np.ndarray, nodes: np.ndarray, limit_s: np.ndarray,
    price: np.ndarray, size: int, most: int, whole: bool,
) -> list[list[int]]:  # fmt: skip
    """GPUs of each node for each job that starts at times[0]; zeros for one that waits."""
    width = free.shape[1]
    taken: list[tuple[float, float, list[int], bool]] = []
    made = 0

    def at(time: float) -> np.ndarray:
        row = free[np.searchsorted(times, time, side="right") - 1].copy()
        for begin, end, shares, all_of_it in taken:
            if begin <= time < end:
                row = np.where((np.array(shares) > 0) & all_of_it, 0, row - np.array(shares))
        return np.maximum(row, 0)

    started = []
    for job in range(len(gpus)):
        moments = sorted({*times.tolist(), *(end for _, end, _, _ in taken if end < np.inf)})
        started.append([0] * width)
        for begin in moments if made < most else moments[:1]:
            end = begin + limit_s[job]
            lowest = np.min([at(m) for m in moments if begin <= m < end], axis=0)
            shares = pick_gang(lowest, price, gpus[job], nodes[job], size)
            if shares is None:
                continue
            now = begin == times[0]
            taken.append((begin, end, shares, whole and not now))
            if now:
                started[-1] = shares
            else:
                made += 1
            break
    return started
