"""Backfill: start what delays no reservation, in priority order."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.gang import pick_gang
from slurmsched.model.columns import Floats, Int64s


@kernel
def backfill(
    times: Floats,
    free: Int64s,
    gpus: Int64s,
    nodes: Int64s,
    limit_s: Floats,
    price: Floats,
    size: int,
    most: int,
    whole: bool,
) -> Int64s:
    """Which jobs start at times[0], on which nodes. (J, N) int64: GPUs of each node given to each job, 0 = waits.

    times: (K,) float64 ascending [s]; free: (K, N) int64, free[k] holds from times[k] to times[k+1], the last for
    good. gpus, nodes: (J,) int64 and limit_s: (J,) float64 of the jobs in priority order. price: (N,) float64, as
    gang.pick_gang takes it. size: most GPUs of one node. most: reservations made for jobs that must wait: 1 is EASY,
    J conservative. whole: a reservation holds whole nodes, as slurmctld's do. Jobs that do not fit before the last
    time get no reservation.
    Source: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001; Slurm's sched/backfill for `whole`.
    """
    jobs, width = gpus.size, free.shape[1]
    started = np.zeros((jobs, width), np.int64)
    room = times.size + jobs  # a job adds one time at most: its end
    at, have, slots = np.empty(room, np.float64), np.empty((room, width), np.int64), times.size
    at[:slots], have[:slots] = times, free
    shares, lowest = np.zeros(width, np.int64), np.empty(width, np.int64)
    made = 0
    for j in range(jobs):
        last = 1 if made >= most else slots
        k = 0
        while k < last:
            end, fits, skip = at[k] + limit_s[j], True, k + 1
            lowest[:] = have[k]
            s = k
            while s < slots and (s == k or at[s] < end):
                for n in range(width):
                    lowest[n] = min(lowest[n], have[s, n])
                if not pick_gang(lowest, price, gpus[j], nodes[j], size, shares):
                    # Where it does not fit by that slot alone, no earlier start can span the slot.
                    alone = s > k and not pick_gang(have[s], price, gpus[j], nodes[j], size, shares)
                    skip, fits = (s + 1 if alone else k + 1), False
                    break
                s += 1
            if fits:
                break
            k = skip
        if k >= last:
            continue
        pick_gang(lowest, price, gpus[j], nodes[j], size, shares)
        end = at[k] + limit_s[j]
        if (s < slots and at[s] > end) or (s == slots and end < np.inf):
            for row in range(slots, s, -1):
                at[row], have[row] = at[row - 1], have[row - 1]
            at[s], have[s] = end, have[s - 1]
            slots += 1
        for n in range(width):
            if shares[n] == 0:
                continue
            for row in range(k, s):
                have[row, n] = 0 if whole and k > 0 else have[row, n] - shares[n]
        if k == 0:
            started[j] = shares
        else:
            made += 1
    return started
