"""Naive twins of kernels.headroom and kernels.linked_gang."""

from __future__ import annotations

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


def best_node(free, room, members, lowest_cell, idle, table, gpus):
    """The node whose set is best by the table, then the fullest, and so on. table: of its class or None, by node."""

    def order(item):
        place, n = item
        if table[n] is None:
            found = (0, 0, 0, 0)
        else:
            taken = int(table[n].best[free[n], gpus])
            lost = int(table[n].worth[free[n]] - table[n].worth[int(free[n]) & ~taken])
            found = (*(-table[n].quality[taken]).tolist(), lost)
        cell = int(idle[lowest_cell[n]]) if lowest_cell[n] >= 0 else 0
        return (*found[:3], int(free[n]).bit_count(), cell, found[3], place)

    fits = [(place, int(n)) for place, n in enumerate(members) if room[n] >= gpus]
    return min(fits, key=order)[1] if fits else -1
