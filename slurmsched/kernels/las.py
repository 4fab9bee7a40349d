"""Discretized LAS in one pass over the jobs: what DiscretizedLas ranks by, and what it remembers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.order import sort_rows
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s

# A cold tick runs these plain up to a queue for which loading numba pays.
_PLAIN_BELOW = 20_000


@kernel(plain_below=_PLAIN_BELOW, views=True)
def las_keys(
    job_id: Int64s,
    arrived_s: Floats,
    state: Int64s,
    flags: tuple[int, int, int, int],
    gpus: Int32s,
    times: tuple[Floats, Floats, Floats, Floats],
    past: Floats,
    thresholds_gpu_s: Floats,
    promote_knob: float,
    now_s: float,
    floats: Floats,
    ints: Int64s,
    bools: Bools,
) -> int:
    """What each job is ordered by, written to floats (8, N), ints (2, N) and bools (2, N); how many are to remember.

    job_id, arrived_s: (N,) the key of a job. state: (N,); flags: of the states pending, running, completing, finished.
    times: (N,) each, start of this run (NaN: none), run time over all runs, attained service [GPU s], waiting since it
    last ran. past: (K, 9) what las_memory gave at the last quantum, ascending job ids. now_s: the time.
    Floats: first start, arrival at its queue, place at the last quantum if that counts (infinity: not), service since
    the last promotion [GPU s], service and run time forgiven then, whether it ran in this queue (0, 1), place at the
    last quantum in any case.
    Int64: queue, turn (0 runs, 1 was preempted here, 2 waits, 3 arrived since the last quantum). Bool: promoted now;
    to be remembered. Source: ours; the rules are those of DiscretizedLas.
    """
    start_s, executed_s, attained_gpu_s, waiting_s = times
    waits, runs, completes, finished = flags
    rows = len(job_id)
    moved, waiters = np.zeros(rows, np.int8), np.zeros(len(thresholds_gpu_s) + 1, np.int64)
    k = 0
    for i in range(rows):
        k = _find(job_id[i], arrived_s[i], past, k)
        known = k < len(past) and past[k, 0] == job_id[i] and past[k, 1] == arrived_s[i]
        forgiven_gpu_s, forgiven_s = (past[k, 7], past[k, 8]) if known else (0.0, 0.0)
        pending = state[i] & waits != 0 and state[i] & completes == 0
        ran_s = executed_s[i] - forgiven_s
        low = _queue(attained_gpu_s[i] - forgiven_gpu_s, thresholds_gpu_s) > 0
        promoted = pending and low and ran_s > 0 and waiting_s[i] >= promote_knob * ran_s
        if promoted:
            forgiven_gpu_s, forgiven_s = attained_gpu_s[i], executed_s[i]
        service_gpu_s = max(attained_gpu_s[i] - forgiven_gpu_s, 0.0)
        queue = _queue(service_gpu_s, thresholds_gpu_s)
        moved[i] = promoted or (past[k, 3] != queue if known else queue > 0)
        since_s = past[k, 4] if known else arrived_s[i]
        if moved[i]:
            since_s = now_s
            if queue > 0:  # a drop is dated back to the threshold, in whole seconds as all of Slurm's times
                over_s = waiting_s[i] + (service_gpu_s - thresholds_gpu_s[queue - 1]) / max(gpus[i], 1)
                since_s = float(math.ceil(now_s - over_s - 1e-6))
        elif pending:
            waiters[queue] += 1
        started_s = arrived_s[i] if executed_s[i] > 0 else np.inf
        if state[i] & runs != 0:
            started_s = now_s if start_s[i] != start_s[i] else start_s[i]
        floats[0, i], floats[1, i] = past[k, 2] if known else started_s, since_s
        floats[7, i] = past[k, 6] if known else np.inf
        floats[2, i] = np.inf if moved[i] else floats[7, i]
        floats[3, i], floats[4, i], floats[5, i] = service_gpu_s, forgiven_gpu_s, forgiven_s
        floats[6, i] = known and past[k, 5] == 1.0
        ints[0, i], bools[0, i] = queue, promoted
    _turns(state, runs, moved, waiters, now_s, floats, ints)
    kept = 0
    for i in range(rows):
        bools[1, i] = floats[0, i] < np.inf and state[i] & finished == 0 and arrived_s[i] == arrived_s[i]
        kept += bools[1, i]
    return kept


@kernel
def _turns(
    state: Int64s, runs: int, moved: NDArray[np.int8], waiters: Int64s, now_s: float, floats: Floats, ints: Int64s
) -> None:
    """Fill in turn and ran_here, and forget the places of those whose place does not count. As las_keys."""
    for i in range(len(state)):
        running = state[i] & runs != 0
        arrived = moved[i] and (waiters[ints[0, i]] > 0 or floats[1, i] >= now_s)
        ran_here = not arrived and (running or moved[i] or floats[6, i] == 1.0)
        floats[6, i] = ran_here
        ints[1, i] = 3 if arrived else (0 if running else (1 if ran_here else 2))
        if ints[1, i] >= 2:
            floats[2, i] = np.inf


@kernel
def _find(job_id: int, arrived_s: float, past: Floats, near: int) -> int:
    """The first row of `past` whose job id is not below job_id, sought from `near`."""
    k = near
    if k > 0 and past[k - 1, 0] >= job_id:
        k = 0
    while k < len(past) and past[k, 0] < job_id:
        k += 1
    return k


@kernel
def _queue(service_gpu_s: float, thresholds_gpu_s: Floats) -> int:
    """How many thresholds are reached."""
    queue = 0
    while queue < len(thresholds_gpu_s) and thresholds_gpu_s[queue] <= service_gpu_s:
        queue += 1
    return queue


@kernel(plain_below=_PLAIN_BELOW, views=True)
def las_sort_keys(
    job_id: Int64s, arrived_s: Floats, floats: Floats, ints: Int64s, by: int, keys: Floats, order: Int64s
) -> None:
    """What to sort rows by, written to keys (N, 6), and the order to begin with, to order (N,).

    floats, ints: of las_keys. by: what goes after the queue, 0 first start, 1 turn, place and arrival at the queue,
    2 nothing; in the end arrival, then job id.
    """
    for i in range(len(job_id)):
        keys[i, 0], keys[i, 1], keys[i, 2], keys[i, 3] = ints[0, i], 0.0, 0.0, 0.0
        keys[i, 4], keys[i, 5] = np.inf if arrived_s[i] != arrived_s[i] else arrived_s[i], job_id[i]
        if by == 0:
            keys[i, 1] = floats[0, i]
        elif by == 1:
            keys[i, 1], keys[i, 2] = ints[1, i], floats[2, i]
            keys[i, 3] = np.inf if floats[1, i] != floats[1, i] else floats[1, i]
    _last_order(floats, order)


@kernel(plain_below=_PLAIN_BELOW, views=True)
def las_memory(
    job_id: Int64s, arrived_s: Floats, floats: Floats, ints: Int64s, bools: Bools, order: Int64s, past: Floats
) -> bool:
    """What is remembered of the jobs marked so, written to the first rows of past (N, 9), by row of the jobs.

    Returns whether their ids ascend.

    floats, ints, bools: of las_keys. order: (N,) rows, most urgent first. Columns of past: job id, arrival, first
    start, queue, arrival at it, whether it ran there, place in the order, service and run time forgiven.
    """
    place, k, ascending = np.empty(len(order), np.int64), 0, True
    for at in range(len(order)):
        place[order[at]] = at
    for i in range(len(order)):
        if bools[1, i]:
            ascending = ascending and (k == 0 or past[k - 1, 0] <= job_id[i])
            past[k, 0], past[k, 1], past[k, 2], past[k, 3] = job_id[i], arrived_s[i], floats[0, i], ints[0, i]
            past[k, 4], past[k, 5], past[k, 6] = floats[1, i], floats[6, i], place[i]
            past[k, 7], past[k, 8] = floats[4, i], floats[5, i]
            k += 1
    return ascending


def _las_rank(
    jobs: Any, flags: Any, gpus: Any, times: Any, past: Any, thresholds_gpu_s: Any, promote_knob: float, now_s: float,
    by: int, floats: Any, ints: Any, bools: Any, order: Any, memory: Any,
) -> tuple[int, bool]:  # fmt: skip
    """What las_rank does, by its parts, each as a cold process runs it best."""
    job_id, arrived_s, state = jobs
    args = (flags, gpus, times, past, thresholds_gpu_s, promote_knob, now_s, floats, ints, bools)
    kept: int = las_keys(job_id, arrived_s, state, *args)
    keys = np.empty((len(order), 6))
    las_sort_keys(job_id, arrived_s, floats, ints, by, keys, order)
    sort_rows(keys, order)
    return kept, las_memory(job_id, arrived_s, floats, ints, bools, order, memory)


@kernel(plain_below=_PLAIN_BELOW, cold=_las_rank)
def las_rank(
    jobs: tuple[Int64s, Floats, Int64s],
    flags: tuple[int, int, int, int],
    gpus: Int32s,
    times: tuple[Floats, Floats, Floats, Floats],
    past: Floats,
    thresholds_gpu_s: Floats,
    promote_knob: float,
    now_s: float,
    by: int,
    floats: Floats,
    ints: Int64s,
    bools: Bools,
    order: Int64s,
    memory: Floats,
) -> tuple[int, bool]:
    """The order, written to order (N,), and what led to it: las_keys, las_sort_keys, sort_rows and las_memory at once.

    jobs: job_id, arrived_s and state, (N,) each. memory: (N, 9), the first rows are written; returns how
    many, and whether their ids ascend.
    """
    job_id, arrived_s, state = jobs
    kept = las_keys(
        job_id, arrived_s, state, flags, gpus, times, past, thresholds_gpu_s, promote_knob, now_s, floats, ints, bools
    )
    keys = np.empty((len(order), 6))
    las_sort_keys(job_id, arrived_s, floats, ints, by, keys, order)
    sort_rows(keys, order)
    return kept, las_memory(job_id, arrived_s, floats, ints, bools, order, memory)


@kernel
def _last_order(floats: Floats, order: Int64s) -> None:
    """Rows by their place at the last quantum, then those without one (infinity), written to order; nearly so if places
    are odd: it is but where sorting begins. floats: of las_keys. order: (N,)."""
    seats = np.full(4 * len(order) + 64, -1, np.int64)
    for i in range(len(order)):
        if 0 <= floats[7, i] < len(seats):
            seats[int(floats[7, i])] = i
    at = 0
    for row in seats:
        if row >= 0:
            order[at] = row
            at += 1
    for i in range(len(order)):
        if not (0 <= floats[7, i] < len(seats) and seats[int(floats[7, i])] == i):
            order[at] = i
            at += 1


@kernel(plain_below=_PLAIN_BELOW, views=True)
def next_drop(service_gpu_s: Floats, gpus: Int32s, counts: Bools, thresholds_gpu_s: Floats, least: int) -> float:
    """How soon the next of the jobs that count drops to queue `least` or a lower one, if all of them run [s].

    service_gpu_s, gpus, counts: (N,). Infinity if none will.
    """
    soon_s = np.inf
    for i in range(len(counts)):
        if counts[i]:
            queue = max(_queue(service_gpu_s[i], thresholds_gpu_s), least - 1)
            if queue < len(thresholds_gpu_s):
                soon_s = min(soon_s, (thresholds_gpu_s[queue] - service_gpu_s[i]) / max(gpus[i], 1))
    return soon_s


@kernel(plain_below=_PLAIN_BELOW, views=True)
def next_swap(
    service_gpu_s: Floats,
    queue: Int64s,
    gpus: Int32s,
    state: Int64s,
    finished: int,
    running: Bools,
    thresholds_gpu_s: Floats,
) -> float:
    """How soon the next job may drop to a queue in which, or above which, somebody waits, if all run [s].

    All (N,). finished: flags of states in which a job does not count. Infinity if none will.
    """
    least = len(thresholds_gpu_s)
    for i in range(len(queue)):
        if state[i] & finished == 0 and not running[i]:
            least = min(least, queue[i])
    soon_s = np.inf
    for i in range(len(queue)):
        below = max(_queue(service_gpu_s[i], thresholds_gpu_s), least - 1)
        if state[i] & finished == 0 and below < len(thresholds_gpu_s):
            soon_s = min(soon_s, (thresholds_gpu_s[below] - service_gpu_s[i]) / max(gpus[i], 1))
    return soon_s
