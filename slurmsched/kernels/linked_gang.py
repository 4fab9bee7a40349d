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
def best_nodes(
    free: Int64s,
    room: Int64s,
    order: Int64s,
    begin: int,
    end: int,
    cell: Int64s,
    cells: int,
    node_class: Int64s,
    gpus: int,
    nodes: int,
    best_at: Int64s,
    width: Int64s,
    best: NDArray[Any],
    set_at: Int64s,
    rank: Int64s,
    worth: Int64s,
) -> Int64s:
    """Rows of the `nodes` best nodes of order[begin:end] for `gpus` GPUs each, fewer if no more have room. (M,) int64.

    free: (N,) masks. room: (N,) GPUs it can have. cell: (N,) row of the node's lowest cell, -1 = none; cells: their
    number. node_class: (N,), -1 = unknown. Tables of all classes end to end: class c has the set
    best[best_at[c] + mask * width[c] + k], and its rank[set_at[c] + set] and worth[set_at[c] + set] (see SetTable).
    First the set of the highest rank; then the node that is left fullest, then the cell with the fewest GPUs free,
    then the least worth taken from what stays free, then the lowest place in order. Source: ours.
    """
    key, rows, open_ = np.empty((end - begin, 3), np.int64), np.empty(end - begin, np.int64), 0
    idle = np.zeros(cells + 1, np.int64)  # the last: of nodes in no cell
    for i in range(begin, end):
        n = order[i]
        count = bit_count(free[n])
        idle[cell[n]] += count
        if room[n] < gpus:
            continue
        c, value, harm = node_class[n], np.int64(0), np.int64(0)
        if c >= 0:
            taken = np.int64(best[best_at[c] + free[n] * width[c] + gpus])
            value = rank[set_at[c] + taken]
            harm = worth[set_at[c] + free[n]] - worth[set_at[c] + (free[n] & ~taken)]
        key[open_, 0], key[open_, 1], key[open_, 2] = value * 64 - count, cell[n], -harm
        rows[open_], open_ = n, open_ + 1
    idle[cells] = 0
    for row in range(open_):
        key[row, 1] = -idle[key[row, 1]]
    made = min(nodes, open_)
    chosen = np.empty(made, np.int64)
    for place in range(made):
        top = -1
        for row in range(open_):
            if rows[row] < 0:
                continue
            better = top < 0 or key[row, 0] > key[top, 0]
            if not better and key[row, 0] == key[top, 0]:
                level = key[row, 1] == key[top, 1]
                better = key[row, 1] > key[top, 1] or (level and key[row, 2] > key[top, 2])
            if better:
                top = row
        chosen[place] = rows[top]
        rows[top] = -1
    return chosen
