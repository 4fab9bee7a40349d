"""Rings through GPUs: the best one through every set of a node, and the best order of one set."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Int64s


@kernel
def ring_paths(weight: Int64s, floor: int, paths: Int64s) -> None:
    """Fill paths[s, j]: largest sum of links on a path from the lowest GPU of set s through all of s to j, -1 = none.

    weight: (G, G) int64, symmetric. floor: lighter links are not used. paths: (2**G, G) int64, overwritten.
    Source: Held and Karp, SIAM J. 10(1), 1962, for a path of greatest weight.
    """
    gpus = weight.shape[0]
    paths[:] = -1
    for first in range(gpus):
        paths[1 << first, first] = 0
    for s in range(1, 1 << gpus):
        first = 0
        while not s >> first & 1:
            first += 1
        for last in range(first, gpus):
            have = paths[s, last]
            if have < 0:
                continue
            for g in range(first + 1, gpus):
                if not s >> g & 1 and weight[last, g] >= floor:
                    more = s | 1 << g
                    paths[more, g] = max(paths[more, g], have + weight[last, g])


@kernel
def rings(weight: Int64s, floors: Int64s) -> tuple[Int64s, Int64s]:
    """Smallest link and sum of links of the best ring through each set of GPUs. Two (2**G,) int64; 0, 0 below 2 GPUs.

    weight: (G, G) int64, at most 16 GPUs. floors: (L,) descending link weights, the last the lightest of all: the
    best ring keeps to links of at least the first floor that allows one, then its sum is the largest. One floor
    alone: the sum is all that counts. A ring of two GPUs counts its link twice. Source: ours, after Held and Karp.
    """
    gpus = weight.shape[0]
    smallest, total = np.zeros(1 << gpus, np.int64), np.full(1 << gpus, -1, np.int64)
    paths = np.empty((1 << gpus, gpus), np.int64)
    total[0] = 0
    for g in range(gpus):
        total[1 << g] = 0
    for floor in floors:
        ring_paths(weight, floor, paths)
        for s in range(1, 1 << gpus):
            if total[s] >= 0:
                continue
            first = 0
            while not s >> first & 1:
                first += 1
            for last in range(first + 1, gpus):
                if paths[s, last] >= 0 and weight[last, first] >= floor:
                    total[s] = max(total[s], paths[s, last] + weight[last, first])
            smallest[s] = floor if total[s] >= 0 else 0
    return smallest, total


@kernel
def ring_order(weight: Int64s, floors: Int64s) -> Int64s:
    """The best ring through all GPUs of a set, as `rings` has it: their indices in ring order. (G,) int64.

    It begins at GPU 0; of equal rings, the one found by going back to the lowest index at each step.
    """
    gpus = weight.shape[0]
    order, whole = np.arange(gpus), (1 << gpus) - 1
    if gpus < 4:  # all orders of three are the same ring
        return order
    paths = np.empty((1 << gpus, gpus), np.int64)
    for floor in floors:
        ring_paths(weight, floor, paths)
        best, at = np.int64(-1), 0
        for last in range(1, gpus):
            if paths[whole, last] >= 0 and weight[last, 0] >= floor and paths[whole, last] + weight[last, 0] > best:
                best, at = paths[whole, last] + weight[last, 0], last
        if best < 0:
            continue
        left = whole
        for place in range(gpus - 1, 0, -1):
            order[place] = at
            rest, have = left & ~(1 << at), paths[left, at]
            for g in range(gpus):
                before = rest >> g & 1 and paths[rest, g] >= 0 and weight[g, at] >= floor
                if before and paths[rest, g] + weight[g, at] == have:
                    left, at = rest, g
                    break
        order[0] = 0
        break
    return order
