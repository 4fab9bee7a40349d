"""Where a gang fits: GPUs of each node that it can have, the fewest nodes, and the tightest cell of a fabric."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.model.columns import Bools, Floats, Int64s


@kernel_part
def bit_count(mask: int) -> int:
    """Number of GPUs of a set. mask: >= 0. Sums of neighbouring bits, side by side."""
    pairs = mask - (mask >> 1 & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + (pairs >> 2 & 0x3333333333333333)
    octets = fours + (fours >> 4) & 0x0F0F0F0F0F0F0F0F
    octets += octets >> 8
    octets += octets >> 16
    octets += octets >> 32
    return octets & 0x7F


@kernel
def headroom(
    free: Int64s, usable: Bools, cpus: Floats, memory_mib: Floats, cpus_per_gpu: float, mib_per_gpu: float
) -> Int64s:
    """GPUs of each node that a job can have, 0 where it may not go. (N,) int64.

    free: (N,) bit masks of GPUs to give.
    usable: (N,).
    cpus, memory_mib: (N,) free ones, infinity = not counted.
    GPUs whose CPUs or memory others hold are stranded: they are not counted.
    """
    room = np.zeros(free.size, np.int64)
    for n in range(free.size):
        if usable[n] and free[n] != 0:
            room[n] = room_of(bit_count(free[n]), cpus[n], memory_mib[n], cpus_per_gpu, mib_per_gpu)
    return room


@kernel_part
def room_of(most: int, cpus: float, memory_mib: float, cpus_per_gpu: float, mib_per_gpu: float) -> int:
    """GPUs of one node that a job can have: see headroom. most: free ones."""
    if cpus_per_gpu > 0 and cpus < most * cpus_per_gpu:
        most = int(cpus / cpus_per_gpu + 1e-9)
    if mib_per_gpu > 0 and memory_mib < most * mib_per_gpu:
        most = int(memory_mib / mib_per_gpu + 1e-9)
    return max(most, 0)


# Nodes of a gang.


@kernel_part
def part_of(gpus: int, nodes: int, size: int) -> int:
    """GPUs that each node of a gang gives; the last gives the rest, where that is less.

    It is whole nodes and a rest, but equal parts, rounded up, in two cases:

    - More nodes are asked for than whole nodes would take.
    - Just as many are asked for, and the GPUs can be shared out equally over them.

    nodes: how many are asked for.
    size: most GPUs of one node.
    Source: slurmsched; as `--gpus-per-node` asks for GPUs.
    """
    least = -(-gpus // size)
    even = nodes == least and nodes > 1 and gpus % nodes == 0
    return -(-gpus // nodes) if even or nodes > least else size


@kernel(plain_below=512)
def pick_gang(free: Int64s, price: Floats, gpus: int, nodes: int, size: int, shares: Int64s) -> bool:
    """Whether the gang fits; then shares[n] GPUs of node n are its. Changes nothing but `shares`.

    free: (N,) int64 GPUs it may use. price: (N,) float64, nodes of lower price first; among equals the one left
    fullest, then the lowest row. gpus, nodes: what the job asks for. size: most GPUs of one node [GPUs].
    shares: (N,) int64, overwritten. What each node gives: see part_of. Source: slurmsched; consolidation as in Tiresias
    (NSDI '19, section 3.3): fewest nodes.
    """
    shares[:] = 0
    part = part_of(gpus, nodes, size)
    remaining = gpus
    while remaining > 0:
        take = min(part, remaining)
        best = -1
        for n in range(free.size):
            if shares[n] > 0 or free[n] < take:
                continue
            if best < 0 or price[n] < price[best] or (price[n] == price[best] and free[n] < free[best]):
                best = n
        if best < 0:
            return False
        shares[best] = take
        remaining -= take
    return True


# Gangs with fast links.


@kernel
def tightest_cell(
    room: Int64s, order: Int64s, low: Int64s, high: Int64s, level: Int64s, part: int, parts: int, rest: int
) -> int:
    """Row of the cell that holds a gang of several nodes most tightly, -1 if none can.

    room: (N,) GPUs of each node that it can have. order: (N,) node rows, so that cell c is the nodes
    order[low[c]:high[c]]. level: (C,). The gang: `parts` nodes with `part` GPUs each and one with `rest`. Lowest level,
    then fewest GPUs left over, then lowest row. Source: slurmsched; a best fit over HiveD's cells (OSDI '20).
    """
    nodes = order.size
    large, small = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    total = np.zeros(nodes + 1, np.int64)
    for i in range(nodes):
        have = room[order[i]]
        large[i + 1] = large[i] + (1 if have >= part else 0)
        small[i + 1] = small[i] + (1 if rest > 0 and have >= rest else 0)
        total[i + 1] = total[i] + have
    best, best_level, best_spare = -1, np.int64(0), np.int64(0)
    for c in range(low.size):
        a, b = low[c], high[c]
        fits = large[b] - large[a] >= parts and (rest == 0 or small[b] - small[a] >= parts + 1)
        remaining = total[b] - total[a]
        if fits and (best < 0 or level[c] < best_level or (level[c] == best_level and remaining < best_spare)):
            best, best_level, best_spare = c, level[c], remaining
    return best


@kernel
def near_cells(rows: Int64s, room: Int64s, lowest: Int64s, cells: int, gpus: int, nodes: int, rest: int) -> Bools:
    """The nodes in as few of the lowest cells as hold a gang; see fabric_cells.fewest_cells. (R,) bool.

    rows: (R,) node rows.
    room: (R,) GPUs of each that the gang can have.
    lowest: (N,) row of the lowest cell of each node, -1 = none.
    cells: how many there are.
    All of the rows where one node is enough, or no node with room is in any cell.
    Source: slurmsched.
    """
    least, own, joined = rest if rest > 0 else gpus, cells, False
    home, size = np.full(rows.size, -1), cells + rows.size
    count, every = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for k in range(rows.size):
        if nodes >= 2 and room[k] >= least:
            home[k] = lowest[rows[k]] if lowest[rows[k]] >= 0 else own
            joined = joined or home[k] < cells
            own += 1
            every[home[k]] += 1
            count[home[k]] += 1 if room[k] >= gpus else 0
    chosen = _chosen_cells(count, every, nodes, rest) if joined else every > 0
    kept = np.ones(rows.size, np.bool_)
    for k in range(rows.size):
        kept[k] = not joined or (home[k] >= 0 and chosen[home[k]])
    return kept


@kernel_part
def _chosen_cells(count: Int64s, every: Int64s, nodes: int, rest: int) -> Bools:
    """The fullest cells until all nodes but those of the last are there; of the last needed, the one with the fewest.

    count: (H,) nodes of each cell with room for a part of the gang. every: with room for a part or the rest.
    """
    order = np.flatnonzero(every)
    order = order[np.argsort(-(count[order] * (every.sum() + 1) + every[order]), kind="mergesort")]
    chosen, missing, spare, full = np.zeros(count.size, np.bool_), nodes, np.int64(0), 0
    while full < order.size and count[order[full]] < missing:
        chosen[order[full]] = True
        missing -= count[order[full]]
        spare += every[order[full]]
        full += 1
    for asks_rest in (rest > 0, False):
        last = -1
        for c in order[full:]:
            holds = count[c] >= missing and (not asks_rest or spare + every[c] > nodes)
            if holds and (last < 0 or count[c] < count[last]):
                last = c
        if last >= 0:
            chosen[last] = True
            break
    return chosen


class SetTables(NamedTuple):
    """The tables of the best GPU sets of all node classes, end to end.

    best_at: (K,) where the table of a class begins.
    width: (K,) entries of a row of it, one a number of GPUs.
    best: the set of k GPUs to take of the free GPUs `mask` of class c is best[best_at[c] + mask * width[c] + k].
    set_at: (K,) where the sets of a class begin.
    rank: of a set by quality, rank[set_at[c] + set].
    worth: of a free set to the jobs to come, worth[set_at[c] + set].
    """

    best_at: Int64s
    width: Int64s
    best: NDArray[Any]
    set_at: Int64s
    rank: Int64s
    worth: Int64s


# Over 30 lines: half is signature and docstring.
@kernel
def best_nodes(
    free: Int64s, room: Int64s, among: Int64s, cell: Int64s, cells: int, node_class: Int64s, tables: SetTables,
    gpus: int, nodes: int,
) -> Int64s:  # fmt: skip
    """Rows of the `nodes` best nodes for `gpus` GPUs each, fewer if no more have room. (M,) int64.

    Nodes are compared in this order:

    - the highest rank of their set of GPUs;
    - the fewest free GPUs after it;
    - the cell with the fewest free GPUs;
    - the least worth taken from what stays free;
    - the earliest in `among`.

    free: (N,) masks of free GPUs.
    room: (N,) GPUs that the job can have.
    among: rows of the nodes to choose from.
    cell: (N,) row of the node's lowest cell, -1 = none.
    cells: how many cells there are.
    node_class: (N,) row of its class in the tables, -1 = unknown.
    Source: slurmsched.
    """
    key, rows, open_ = np.empty((among.size, 3), np.int64), np.empty(among.size, np.int64), 0
    idle = np.zeros(cells + 1, np.int64)  # the last: of nodes in no cell
    for n in among:
        count = bit_count(free[n])
        idle[cell[n]] += count
        if room[n] < gpus:
            continue
        c, value, harm = node_class[n], np.int64(0), np.int64(0)
        if c >= 0:
            taken = np.int64(tables.best[tables.best_at[c] + free[n] * tables.width[c] + gpus])
            value = tables.rank[tables.set_at[c] + taken]
            harm = tables.worth[tables.set_at[c] + free[n]] - tables.worth[tables.set_at[c] + (free[n] & ~taken)]
        key[open_, 0], key[open_, 1], key[open_, 2] = value * 64 - count, cell[n], -harm
        rows[open_], open_ = n, open_ + 1
    idle[cells] = 0
    for row in range(open_):
        key[row, 1] = -idle[key[row, 1]]
    return _first_rows(key, rows, open_, min(nodes, open_))


@kernel_part
def _first_rows(key: Int64s, rows: Int64s, open_: int, made: int) -> Int64s:
    """The `made` of the first open_ rows with the highest keys, highest first; of equals the earliest. (made,) int64.

    key: (K, 3). rows: (K,), is changed: those that are taken become -1.
    """
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
