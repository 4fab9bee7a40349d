"""Who fits on one pile of GPUs: the walks of placements that only count."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int64s


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
