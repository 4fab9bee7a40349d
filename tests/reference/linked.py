"""Naive twins of gang_fit.headroom, gang_fit.tightest_cell and gang_fit.best_nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np


def headroom(
    free: np.ndarray, usable: np.ndarray, cpus: np.ndarray, memory_mib: np.ndarray, per_gpu: float, mib: float
) -> list[int]:
    """By trying every number of GPUs."""
    return [
        max(k for k in range(int(free[n]).bit_count() + 1) if k * per_gpu <= cpus[n] and k * mib <= memory_mib[n])
        if usable[n]
        else 0
        for n in range(len(free))
    ]


def tightest_cell(
    room: np.ndarray, order: np.ndarray, low: np.ndarray, high: np.ndarray, level: np.ndarray, part: int, parts: int,
    rest: int,
) -> int:  # fmt: skip
    """By sorting the nodes of every cell, the roomiest first, and laying the parts on them."""
    takes = [part] * parts + [rest] * (rest > 0)
    fits = []
    for c in range(len(low)):
        inside = sorted((int(room[n]) for n in order[low[c] : high[c]]), reverse=True)
        if len(inside) >= len(takes) and all(have >= take for have, take in zip(inside, takes, strict=False)):
            fits.append((int(level[c]), sum(inside), c))
    return min(fits)[2] if fits else -1


def best_nodes(
    free: np.ndarray, room: np.ndarray, members: np.ndarray, cell: np.ndarray, table: list[Any], gpus: int, nodes: int
) -> list[int]:
    """By sorting the nodes of a cell. table: of the class of each node, None = unknown."""
    idle = Counter()
    for n in members.tolist():
        idle[int(cell[n])] += int(free[n]).bit_count()
    idle[-1] = 0

    def order(place: int) -> tuple[int, ...]:
        n = int(members[place])
        quality, harm = (0, 0, 0), 0
        if table[n] is not None:
            taken = int(table[n].best[free[n], gpus])
            quality = tuple((-table[n].quality[taken]).tolist())
            harm = int(table[n].worth[free[n]] - table[n].worth[int(free[n]) & ~taken])
        return (*quality, int(free[n]).bit_count(), idle[int(cell[n])], harm, place)

    fits = [place for place in range(len(members)) if room[members[place]] >= gpus]
    return [int(members[place]) for place in sorted(fits, key=order)[:nodes]]
