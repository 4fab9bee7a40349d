"""Who fits on one pile of GPUs: the walks of placements that only count."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.stock import givable, wanted_of
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s


@kernel(plain_below=512)
def fill_pile(order: Int64s, gpus: Int64s, capacity: int) -> Int64s:
    """Rows that get GPUs when each gang that fits takes what it asks for, in order. (S,) int64, in that order.

    order: (R,) rows, most urgent first. gpus: (J,) asked or held by row; a row that asks for none gets none.
    capacity: GPUs to give. Source: ours; first fit.
    """
    served = np.empty(order.size, np.int64)
    free, count = capacity, 0
    for row in order:
        if 0 < gpus[row] <= free:
            served[count] = row
            count += 1
            free -= gpus[row]
            if free == 0:
                break
    return served[:count]


@kernel(plain_below=512)
def place_on_pile(
    order: Int64s,
    standing: Int64s,
    jobs: tuple[Int64s, Int32s],
    held: tuple[Int64s, Int64s, Int32s],
    nodes: tuple[Bools, Int32s, Int32s],
    placed: Int64s,
) -> int:
    """How many jobs get GPUs when each gang that fits takes what it asks for, in order.

    order: (R,) rows of jobs, most urgent first. standing: (N,) of standing_of. jobs: ids and GPUs asked for, (N,) each.
    held: (A,) each, job id, row of the node, GPUs. nodes: (M,) each, closed, GPUs, GPUs used. placed: (5, R) int64,
    overwritten, the columns of Assignments by served job, all on node row 0. Source: ours; first fit.
    """
    wanted = wanted_of(jobs[0], standing, jobs[1], held[0], held[2])
    served = fill_pile(order, wanted, givable(nodes[0], nodes[1], nodes[2], held[1], held[2]).sum())
    for i in range(served.size):
        placed[0, i], placed[1, i], placed[2, i], placed[3, i] = served[i], i, 1, 0
        placed[4, i] = wanted[served[i]]
    return served.size


@kernel(plain_below=512)
def backfill_pile(gpus: Int64s, ahead_s: Floats, running: int, capacity: int) -> Bools:
    """Which gangs get GPUs when none may delay the first that must wait: EASY. (R,) bool.

    gpus: (R,) int64, the first `running` rows hold theirs already, the others wait, most urgent first.
    ahead_s: (R,) float64, how much longer each will run at most, counted from its start or from now [s].
    capacity: GPUs of the pile. Source: Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
    """
    served = np.zeros(gpus.size, np.bool_)
    free = capacity
    for i in range(running):
        served[i] = True
        free -= gpus[i]
    head = running
    while head < gpus.size and gpus[head] <= free:
        served[head] = gpus[head] > 0
        free -= gpus[head]
        head += 1
    if head >= gpus.size or free <= 0:
        return served
    shadow_s, extra = np.inf, free
    for place in np.argsort(ahead_s[:head]):
        if not served[place]:
            continue
        if extra >= gpus[head] and ahead_s[place] > shadow_s:
            break
        extra += gpus[place]
        if extra >= gpus[head]:
            shadow_s = ahead_s[place]
    extra -= gpus[head]
    for i in range(head + 1, gpus.size):
        if gpus[i] <= 0 or gpus[i] > free:
            continue
        if ahead_s[i] > shadow_s:
            if gpus[i] > extra:
                continue
            extra -= gpus[i]
        served[i] = True
        free -= gpus[i]
        if free <= 0:
            break
    return served
