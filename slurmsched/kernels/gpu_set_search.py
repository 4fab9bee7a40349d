"""The best sets of GPUs of a node: rings through every set, and the k best of every set of free GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    weight: (G, G) int64, at most 16 GPUs. floors: (L,) descending link weights, the last the lightest of all: the best
    ring keeps to links of at least the first floor that allows one, then its sum is the largest. One floor
    alone: the sum is all that counts. A ring of two GPUs counts its link twice.
    Source: slurmsched, after Held and Karp.
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
        remaining = whole
        for place in range(gpus - 1, 0, -1):
            order[place] = at
            rest, have = remaining & ~(1 << at), paths[remaining, at]
            for g in range(gpus):  # pragma: no branch  # one of them is the one before
                before = rest >> g & 1 and paths[rest, g] >= 0 and weight[g, at] >= floor
                if before and paths[rest, g] + weight[g, at] == have:
                    remaining, at = rest, g
                    break
        order[0] = 0
        break
    return order


# The best k GPUs to give.

Uint16s = NDArray[np.uint16]


@kernel
def best_sets(size: Int64s, key: Int64s, value: Int64s) -> tuple[Uint16s, Int64s]:
    """best[f, k]: the k GPUs to take of the free set f, 0 if it has fewer; worth[f]: what the free set f is good for.

    size: (2**G,) GPUs of each set. key: (2**G, C) int64, the criteria in their order, larger is better. value: (2**G,)
    int64, what a set is worth to a job. best: (2**G, G + 1) uint16. Sets of equal keys: the one that leaves the free
    set of most worth, then the lowest number. worth: the sum over k of the value of the best k GPUs, so that taking
    GPUs harms the rest as little as possible.
    Source: slurmsched; each pair of a set and its subset is seen once.
    """
    sets, width = key.shape
    best, worth = np.zeros((sets, int(size[sets - 1]) + 1), np.uint16), np.zeros(sets, np.int64)
    for f in range(1, sets):
        s = f
        while s > 0:
            k, old = size[s], np.int64(best[f, size[s]])
            better, c = old == 0, 0
            while not better and c < width and key[s, c] == key[old, c]:
                c += 1
            if not better and c < width:
                better = key[s, c] > key[old, c]
            elif not better:
                better = worth[f & ~s] >= worth[f & ~old]  # s descends: the lowest of equals comes last
            if better:
                best[f, k] = s
            s = (s - 1) & f
        for k in range(1, size[f] + 1):
            worth[f] += value[best[f, k]]
    return best, worth


# Over 30 lines: one search; each round changes the set, its figures and both arrays of links.
@kernel
def grown_set(weight: Int64s, on_fabric: NDArray[Any], free: int, k: int) -> Any:
    """k of the free GPUs of a node too large for a table, as a mask: 0 if it has fewer. k >= 1.

    weight: (G, G) int64. on_fabric: (G,) bool. free: bits of GPUs. Grown from each free GPU in turn by the one whose
    lightest link into the set is heaviest (then the sum); kept is the set with fewest GPUs off the fabric, then the
    heaviest lightest link, then the sum. Not proven best. Source: slurmsched, after Prim.
    """
    gpus = weight.shape[0]
    best, best_off, best_low, best_sum = np.int64(0), np.int64(gpus + 1), np.int64(-1), np.int64(-1)
    lightest, total = np.empty(gpus, np.int64), np.empty(gpus, np.int64)
    for first in range(gpus):
        if not free >> first & 1:
            continue
        made, low = np.int64(1 << first), np.int64(weight.max())
        summed, off = np.int64(0), np.int64(not on_fabric[first])
        lightest[:], total[:] = weight[first], weight[first]
        for _ in range(k - 1):
            pick = -1
            for g in range(gpus):
                if not free >> g & 1 or made >> g & 1:
                    continue
                if pick < 0 or (on_fabric[g], lightest[g], total[g]) > (on_fabric[pick], lightest[pick], total[pick]):
                    pick = g
            if pick < 0:
                return np.int64(0)
            made |= np.int64(1 << pick)
            low, summed, off = min(low, lightest[pick]), summed + total[pick], off + np.int64(not on_fabric[pick])
            for g in range(gpus):
                lightest[g], total[g] = min(lightest[g], weight[pick, g]), total[g] + weight[pick, g]
        if (-off, low, summed) > (-best_off, best_low, best_sum):
            best, best_off, best_low, best_sum = made, off, low, summed
    return best
