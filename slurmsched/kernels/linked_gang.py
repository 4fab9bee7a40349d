"""Where a gang that wants fast links goes: the tightest cell of the fabric, and in it the nodes of the best sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.headroom import bit_count
from slurmsched.model.columns import Int64s


@kernel
def tightest_cell(
    room: Int64s, order: Int64s, low: Int64s, high: Int64s, level: Int64s, part: int, parts: int, rest: int
) -> int:
    """Row of the cell that holds a gang of several nodes most tightly, -1 if none can.

    room: (N,) GPUs of each node that it can have. order: (N,) node rows, so that cell c is the nodes
    order[low[c]:high[c]]. level: (C,). The gang: `parts` nodes with `part` GPUs each and one with `rest`. Lowest
    level, then fewest GPUs left over, then lowest row. Source: ours; a best fit over HiveD's cells (OSDI '20).
    """
    nodes = order.size
    large, small = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    total = np.zeros(nodes + 1, np.int64)
    for i in range(nodes):
        have = room[order[i]]
        large[i + 1] = large[i] + (1 if have >= part else 0)
        small[i + 1] = small[i] + (1 if rest > 0 and have >= rest else 0)
        total[i + 1] = total[i] + have
    best, best_level, best_left = -1, np.int64(0), np.int64(0)
    for c in range(low.size):
        a, b = low[c], high[c]
        fits = large[b] - large[a] >= parts and (rest == 0 or small[b] - small[a] >= parts + 1)
        left = total[b] - total[a]
        if fits and (best < 0 or level[c] < best_level or (level[c] == best_level and left < best_left)):
            best, best_level, best_left = c, level[c], left
    return best


@kernel
def best_node(
    free: Int64s,
    room: Int64s,
    order: Int64s,
    begin: int,
    end: int,
    cell: Int64s,
    idle: Int64s,
    node_class: Int64s,
    gpus: int,
    best_at: Int64s,
    width: Int64s,
    best: NDArray[Any],
    set_at: Int64s,
    quality: Int64s,
    worth: Int64s,
) -> int:
    """Row of the node of order[begin:end] for `gpus` GPUs, -1 if none has room.

    free: (N,) masks. room: (N,) GPUs it can have. cell: (N,) row of the node's lowest cell, -1 = none; idle: (C,)
    free GPUs of each cell. node_class: (N,), -1 = unknown. Tables of all classes end to end: class c has
    best[best_at[c] + mask * width[c] + k], quality[set_at[c] + mask] (3 columns) and worth[set_at[c] + mask], see
    SetTable. First what the set gives: no GPU off the fabric, smallest link, sum of links; then the node that is
    left fullest, then the cell, then the least worth taken from what stays free, then the lowest place in order.
    """
    chosen = -1
    top = np.zeros(6, np.int64)
    now = np.zeros(6, np.int64)
    for i in range(begin, end):
        n = order[i]
        if room[n] < gpus:
            continue
        c = node_class[n]
        now[:] = 0
        if c >= 0:
            taken = np.int64(best[best_at[c] + free[n] * width[c] + gpus])
            now[:3] = quality[set_at[c] + taken]
            now[5] = worth[set_at[c] + (free[n] & ~taken)] - worth[set_at[c] + free[n]]
        now[3] = -bit_count(free[n])
        now[4] = -idle[cell[n]] if cell[n] >= 0 else 0
        better = chosen < 0
        for k in range(6):
            if better or now[k] < top[k]:
                break
            better = now[k] > top[k]
        if better:
            chosen = n
            top[:] = now
    return chosen
