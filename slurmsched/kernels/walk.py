"""Walk a ranking over GPUs that are free or may be taken back: who should hold GPUs, and where."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.gang import pick_gang
from slurmsched.model.columns import Bools, Floats, Int64s


@kernel(plain_below=512)
def walk(
    order: Int64s,
    gpus: Int64s,
    nodes: Int64s,
    first: Int64s,
    count: Int64s,
    held_node: Int64s,
    held_gpus: Int64s,
    pool: Int64s,
    usable: Bools,
    capacity: Int64s,
    handicap: Floats,
) -> Int64s:
    """GPUs of each node that each job of the order should hold. (R, N) int64; a row of zeros: none.

    order: (R,) rows of the tables below, most urgent first. gpus, nodes: (J,) asked. A running job holds
    held_gpus[k] GPUs on held_node[k], k in first[j] .. first[j]+count[j]; it stays there or goes, and count 0
    is a pending job. pool: (J,) row of usable, a (P, N) bool table of the nodes a job may go to.
    capacity: (N,) GPUs there are to give. A pending job takes idle GPUs first, then those of the running
    jobs least urgent. handicap: (N,) float64, 0 to below 1: which of such nodes come first, the lowest; among equals
    the one left fullest. Source: ours.
    """
    ranks, width = order.size, capacity.size
    size = capacity.max() if width > 0 else 0
    given = np.zeros((ranks, width), np.int64)
    unclaimed = capacity.copy()
    undecided = np.zeros(width, np.int64)  # held by running jobs that the walk has not come to
    for rank in range(ranks):
        for k in range(first[order[rank]], first[order[rank]] + count[order[rank]]):
            undecided[held_node[k]] += held_gpus[k]
    free, price, shares = np.empty(width, np.int64), np.empty(width, np.float64), np.empty(width, np.int64)
    for rank in range(ranks):
        j = order[rank]
        begin, end = first[j], first[j] + count[j]
        if end > begin:
            fits = True
            for k in range(begin, end):
                undecided[held_node[k]] -= held_gpus[k]
                fits = fits and unclaimed[held_node[k]] >= held_gpus[k]
            for k in range(begin, end if fits else begin):
                given[rank, held_node[k]] += held_gpus[k]
                unclaimed[held_node[k]] -= held_gpus[k]
            continue
        total = 0
        for n in range(width):
            free[n] = unclaimed[n] if usable[pool[j], n] else 0
            total += free[n]
        if gpus[j] <= 0 or total < gpus[j]:
            continue
        part = min(size, -(-gpus[j] // max(nodes[j], -(-gpus[j] // size))))
        price[:] = handicap
        for n in range(width):
            need = min(part, free[n])
            gained = unclaimed[n] - undecided[n]
            # From the least urgent up: the last one that must go is the price.
            later = ranks - 1
            while gained < need and later > rank:
                for k in range(first[order[later]], first[order[later]] + count[order[later]]):
                    if held_node[k] == n:
                        gained += held_gpus[k]
                        price[n] = ranks - later + handicap[n]
                later -= 1
        if pick_gang(free, price, gpus[j], nodes[j], size, shares):
            given[rank] = shares
            unclaimed -= shares
    return given
