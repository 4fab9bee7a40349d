"""Which k of the free GPUs of a node are the best to give, for every set of free GPUs at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Int64s

Uint16s = NDArray[np.uint16]


@kernel
def best_sets(size: Int64s, key: Int64s, value: Int64s) -> tuple[Uint16s, Int64s]:
    """best[f, k]: the k GPUs to take of the free set f, 0 if it has fewer; worth[f]: what the free set f is good for.

    size: (2**G,) GPUs of each set. key: (2**G, C) int64, the criteria in their order, larger is better. value: (2**G,)
    int64, what a set is worth to a job. best: (2**G, G + 1) uint16. Sets of equal keys: the one that leaves the free
    set of most worth, then the lowest number. worth: the sum over k of the value of the best k GPUs, so that
    taking GPUs harms the rest as little as possible. Source: ours; each pair of a set and its subset is seen once.
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


@kernel
def grown_set(weight: Int64s, on_fabric: NDArray[Any], free: int, k: int) -> Any:
    """k of the free GPUs of a node too large for a table, as a mask: 0 if it has fewer. k >= 1.

    weight: (G, G) int64. on_fabric: (G,) bool. free: bits of GPUs. Grown from each free GPU in turn by the one whose
    lightest link into the set is heaviest (then the sum); kept is the set with fewest GPUs off the fabric, then the
    heaviest lightest link, then the sum. Not proven best. Source: ours, after Prim.
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
