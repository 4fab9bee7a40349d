"""2D-LAS in one pass over the jobs: what DiscretizedLas ranks by and remembers, and a sort of nearly sorted rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s


def _lexsort(keys: Floats, order: Int64s) -> None:
    order[:] = np.lexsort(keys.T[::-1])


@kernel(plain_below=20_000, plain=_lexsort)
def sort_rows(keys: Floats, order: Int64s) -> None:
    """Sort order, (N,) rows of keys, in place: least first key first, ties by the next one, at last by row.

    keys: (N, K) without NaN. Merges the runs it finds, so that an order in which few rows must move costs a few passes.
    Source: slurmsched; the natural merge sort of Knuth, The Art of Computer Programming 3 (1973), section 5.2.4.
    """
    rows = len(order)
    ends, runs = np.empty(rows + 1, np.int64), 0
    for i in range(1, rows + 1):
        if i == rows or _precedes(keys, order[i], order[i - 1]):
            ends[runs] = i
            runs += 1
    merged = np.empty(rows, np.int64)
    while runs > 1:
        low, kept = 0, 0
        for run in range(0, runs - 1, 2):
            _merge(keys, order, low, ends[run], ends[run + 1], merged)
            low = ends[run + 1]
            ends[kept] = low
            kept += 1
        if runs % 2 == 1:
            ends[kept] = rows
            kept += 1
        runs = kept


@kernel_part
def _merge(keys: Floats, order: Int64s, low: int, middle: int, high: int, merged: Int64s) -> None:
    """Merge the sorted rows order[low:middle] and order[middle:high] in place. merged: room, overwritten."""
    one, other = low, middle
    while one < middle and not _precedes(keys, order[middle], order[one]):
        one += 1  # these stay
    first, at = one, one
    while one < middle and other < high:
        if _precedes(keys, order[other], order[one]):
            merged[at] = order[other]
            other += 1
        else:
            merged[at] = order[one]
            one += 1
        at += 1
    for i in range(one, middle):
        merged[at] = order[i]
        at += 1
    for i in range(first, at):
        order[i] = merged[i]


@kernel_part
def _precedes(keys: Floats, a: int, b: int) -> bool:
    """Whether row a goes strictly before row b."""
    for k in range(keys.shape[1]):
        if keys[a, k] != keys[b, k]:
            return bool(keys[a, k] < keys[b, k])
    return a < b


# 2D-LAS.

PLAIN_BELOW = 20_000  # jobs; a cold tick looks through fewer sooner in plain Python than it imports numba
MOST_BY_COLUMN = 500_000  # jobs; numpy orders fewer sooner than numba is imported
BY_FIRST_START, BY_ARRIVAL_AT_QUEUE, BY_SUBMISSION = range(3)  # what counts inside a queue
RUNS, WAS_PREEMPTED, WAITS, ARRIVED = range(4)  # groups inside a queue, in this order
# Columns of what is remembered of a job.
JOB_ID, ARRIVED_S, STARTED_S, QUEUE, SINCE_S, RAN_HERE, PLACE, FORGIVEN, FORGIVEN_S = range(9)


class LasJobs(NamedTuple):
    """The jobs to be ordered. Every column is (N,).

    job_id: int64.
    arrived_s: first submission [Unix s].
    state: flags of the state.
    start_s: start of this run [Unix s], NaN if it does not run.
    executed_s: run time over all runs [s].
    service: attained service [GPU s], or run time [s] in 1D.
    waiting_s: time since it last ran [s].
    rate: service that a second of run time adds.
    """

    job_id: Int64s
    arrived_s: Floats
    state: Int64s
    start_s: Floats
    executed_s: Floats
    service: Floats
    waiting_s: Floats
    rate: Int32s


class LasRules(NamedTuple):
    """How jobs are ordered.

    thresholds: (Q,) ascending service at which a job drops one queue.
    promote_knob: a waiting job is promoted once it has waited this many times as long as it ran.
    inside: BY_FIRST_START, BY_ARRIVAL_AT_QUEUE or BY_SUBMISSION.
    now_s: the time [Unix s].
    pending, running, completing, finished: flags of job states.
    """

    thresholds: Floats
    promote_knob: float
    inside: int
    now_s: float
    pending: int
    running: int
    completing: int
    finished: int


# Rows of the keys of a job.
KEY_QUEUE, KEY_GROUP = range(2)  # of ints
STARTED, SINCE, AT_PLACE, LAST_PLACE, SERVED, FORGAVE, FORGAVE_S = range(7)  # of floats
RAN, PROMOTED, REMEMBERED = range(3)  # of bools


class LasKeys(NamedTuple):
    """What each job is ordered by, a column a job.

    ints: (2, N) int64. KEY_QUEUE, 0 is the most urgent. KEY_GROUP: RUNS, WAS_PREEMPTED, WAITS or ARRIVED.
    floats: (7, N) float64. STARTED: first start [Unix s], infinity if it never ran. SINCE: arrival at its queue
    [Unix s]. AT_PLACE: place at the last quantum where it counts, else infinity. LAST_PLACE: that place in any case.
    SERVED: service since the last promotion. FORGAVE, FORGAVE_S: service and run time [s] forgiven at promotions.
    bools: (3, N). RAN: it ran in this queue. PROMOTED: it is promoted now. REMEMBERED: it is to be remembered.
    """

    ints: Int64s
    floats: Floats
    bools: Bools


def empty_keys(rows: int) -> LasKeys:
    """Keys of that many jobs, to be filled by las_rank."""
    return LasKeys(np.empty((2, rows), np.int64), np.empty((7, rows)), np.empty((3, rows), np.bool_))


# Over 30 lines: one pass over the jobs; one line for each column of the keys.
@kernel_part
def las_keys(jobs: LasJobs, rules: LasRules, past: Floats, keys: LasKeys) -> int:
    """Fill the keys; how many jobs are to be remembered.

    past: (K, 9) what las_memory wrote at the last quantum, job ids ascending.
    Source: slurmsched; the rules are those of DiscretizedLas.
    """
    rows = len(jobs.job_id)
    moved, waiters = np.zeros(rows, np.int8), np.zeros(len(rules.thresholds) + 1, np.int64)
    k = 0
    for i in range(rows):
        job_id, arrived_s, state = jobs.job_id[i], jobs.arrived_s[i], jobs.state[i]
        executed_s, service = jobs.executed_s[i], jobs.service[i]
        k = _row_in_past(job_id, arrived_s, past, k)
        known = k < len(past) and past[k, JOB_ID] == job_id and past[k, ARRIVED_S] == arrived_s
        forgiven, forgiven_s = (past[k, FORGIVEN], past[k, FORGIVEN_S]) if known else (0.0, 0.0)
        pending = state & rules.pending != 0 and state & rules.completing == 0
        ran_s = executed_s - forgiven_s
        low = _queue(service - forgiven, rules.thresholds) > 0
        promoted = pending and low and ran_s > 0 and jobs.waiting_s[i] >= rules.promote_knob * ran_s
        if promoted:
            forgiven, forgiven_s = service, executed_s
        counted = max(service - forgiven, 0.0)
        queue = _queue(counted, rules.thresholds)
        moved[i] = promoted or (past[k, QUEUE] != queue if known else queue > 0)
        since_s = past[k, SINCE_S] if known else arrived_s
        if moved[i]:
            since_s = rules.now_s
            if queue > 0:  # a drop is dated back to the threshold, in whole seconds as all of Slurm's times
                over_s = jobs.waiting_s[i] + (counted - rules.thresholds[queue - 1]) / max(jobs.rate[i], 1)
                since_s = float(math.ceil(rules.now_s - over_s - 1e-6))
        elif pending:
            waiters[queue] += 1
        started_s = arrived_s if executed_s > 0 else np.inf
        if state & rules.running != 0:
            started_s = rules.now_s if jobs.start_s[i] != jobs.start_s[i] else jobs.start_s[i]
        keys.floats[STARTED, i], keys.floats[SINCE, i] = past[k, STARTED_S] if known else started_s, since_s
        keys.floats[LAST_PLACE, i] = past[k, PLACE] if known else np.inf
        keys.floats[AT_PLACE, i] = np.inf if moved[i] else keys.floats[LAST_PLACE, i]
        keys.floats[SERVED, i], keys.floats[FORGAVE, i], keys.floats[FORGAVE_S, i] = counted, forgiven, forgiven_s
        keys.bools[RAN, i] = known and past[k, RAN_HERE] == 1.0
        keys.ints[KEY_QUEUE, i], keys.bools[PROMOTED, i] = queue, promoted
    _groups(jobs, rules, moved, waiters, keys)
    kept = 0
    for i in range(rows):
        arrived_s = jobs.arrived_s[i]
        ended = jobs.state[i] & rules.finished != 0
        keys.bools[REMEMBERED, i] = keys.floats[STARTED, i] < np.inf and not ended and arrived_s == arrived_s
        kept += keys.bools[REMEMBERED, i]
    return kept


@kernel_part
def _groups(jobs: LasJobs, rules: LasRules, moved: NDArray[np.int8], waiters: Int64s, keys: LasKeys) -> None:
    """Fill in group and ran_here, and forget the places of those whose place does not count.

    moved: (N,) it changed its queue. waiters: (Q + 1,) jobs that wait in each queue.
    """
    for i in range(len(jobs.state)):
        running = jobs.state[i] & rules.running != 0
        arrived = moved[i] and (waiters[keys.ints[KEY_QUEUE, i]] > 0 or keys.floats[SINCE, i] >= rules.now_s)
        ran_here = not arrived and (running or moved[i] or keys.bools[RAN, i])
        keys.bools[RAN, i] = ran_here
        keys.ints[KEY_GROUP, i] = ARRIVED if arrived else (RUNS if running else (WAS_PREEMPTED if ran_here else WAITS))
        if keys.ints[KEY_GROUP, i] >= WAITS:
            keys.floats[AT_PLACE, i] = np.inf


@kernel_part
def _row_in_past(job_id: int, arrived_s: float, past: Floats, near: int) -> int:
    """The first row of `past` whose job id is not below job_id, sought from `near`."""
    k = near
    if k > 0 and past[k - 1, JOB_ID] >= job_id:
        k = 0
    while k < len(past) and past[k, JOB_ID] < job_id:
        k += 1
    return k


@kernel_part
def _queue(service: float, thresholds: Floats) -> int:
    """How many thresholds are reached."""
    queue = 0
    while queue < len(thresholds) and thresholds[queue] <= service:
        queue += 1
    return queue


@kernel_part
def las_sort_keys(jobs: LasJobs, keys: LasKeys, inside: int, table: Floats, order: Int64s) -> None:
    """Write what rows are sorted by to table (N, 6), and the order that sorting begins with to order (N,).

    inside: as in LasRules. In the end come arrival and job id.
    """
    for i in range(len(jobs.job_id)):
        arrived_s = jobs.arrived_s[i]
        table[i, 0], table[i, 1], table[i, 2], table[i, 3] = keys.ints[KEY_QUEUE, i], 0.0, 0.0, 0.0
        table[i, 4], table[i, 5] = np.inf if arrived_s != arrived_s else arrived_s, jobs.job_id[i]
        if inside == BY_FIRST_START:
            table[i, 1] = keys.floats[STARTED, i]
        elif inside == BY_ARRIVAL_AT_QUEUE:
            table[i, 1], table[i, 2] = keys.ints[KEY_GROUP, i], keys.floats[AT_PLACE, i]
            table[i, 3] = np.inf if keys.floats[SINCE, i] != keys.floats[SINCE, i] else keys.floats[SINCE, i]
    _last_order(keys.floats[LAST_PLACE], order)


@kernel_part
def las_memory(jobs: LasJobs, keys: LasKeys, order: Int64s, past: Floats) -> bool:
    """Write what is remembered of the jobs marked so to the first rows of past (N, 9); whether their ids ascend.

    order: (N,) rows, most urgent first.
    """
    place, k, ascending = np.empty(len(order), np.int64), 0, True
    for at in range(len(order)):
        place[order[at]] = at
    for i in range(len(order)):
        if keys.bools[REMEMBERED, i]:
            ascending = ascending and (k == 0 or past[k - 1, JOB_ID] <= jobs.job_id[i])
            past[k, JOB_ID], past[k, ARRIVED_S] = jobs.job_id[i], jobs.arrived_s[i]
            past[k, STARTED_S], past[k, QUEUE], past[k, SINCE_S] = (
                keys.floats[STARTED, i],
                keys.ints[KEY_QUEUE, i],
                keys.floats[SINCE, i],
            )
            past[k, RAN_HERE], past[k, PLACE] = keys.bools[RAN, i], place[i]
            past[k, FORGIVEN], past[k, FORGIVEN_S] = keys.floats[FORGAVE, i], keys.floats[FORGAVE_S, i]
            k += 1
    return ascending


@kernel_part
def _last_order(last_place: Floats, order: Int64s) -> None:
    """Rows by their place at the last quantum, then those without one (infinity), written to order (N,).

    Nearly so if places are odd: it is only where sorting begins.
    """
    seats = np.full(4 * len(order) + 64, -1, np.int64)
    for i in range(len(order)):
        if 0 <= last_place[i] < len(seats):
            seats[int(last_place[i])] = i
    at = 0
    for row in seats:
        if row >= 0:
            order[at] = row
            at += 1
    for i in range(len(order)):
        if not (0 <= last_place[i] < len(seats) and seats[int(last_place[i])] == i):
            order[at] = i
            at += 1


# Over 30 lines: las_rank a column at a time; one line for each column.
def las_by_column(
    order: Int64s, jobs: LasJobs, rules: LasRules, past: Floats, keys: LasKeys, memory: Floats
) -> tuple[int, bool]:
    """What las_rank does, in numpy: for a process that ends before numba would be loaded."""
    near = np.searchsorted(past[:, JOB_ID], jobs.job_id)
    before = past[np.minimum(near, len(past) - 1)] if len(past) else np.zeros((len(order), 9))
    known = (near < len(past)) & (before[:, JOB_ID] == jobs.job_id) & (before[:, ARRIVED_S] == jobs.arrived_s)
    pending = (jobs.state & rules.pending != 0) & (jobs.state & rules.completing == 0)
    running = jobs.state & rules.running != 0
    forgiven, forgiven_s = np.where(known, before[:, (FORGIVEN, FORGIVEN_S)].T, 0.0)
    ran_s = jobs.executed_s - forgiven_s
    promoted = pending & (np.searchsorted(rules.thresholds, jobs.service - forgiven, "right") > 0) & (ran_s > 0)
    promoted[promoted] = jobs.waiting_s[promoted] >= rules.promote_knob * ran_s[promoted]
    forgiven[promoted], forgiven_s[promoted] = jobs.service[promoted], jobs.executed_s[promoted]
    counted = np.maximum(jobs.service - forgiven, 0.0)
    queue = np.searchsorted(rules.thresholds, counted, "right")
    moved = promoted | np.where(known, before[:, QUEUE] != queue, queue > 0)
    since_s = np.where(moved, rules.now_s, np.where(known, before[:, SINCE_S], jobs.arrived_s))
    low = moved & (queue > 0)
    over_s = jobs.waiting_s[low] + (counted[low] - rules.thresholds[queue[low] - 1]) / np.maximum(jobs.rate[low], 1)
    since_s[low] = np.ceil(rules.now_s - over_s - 1e-6)
    started_s = np.where(jobs.executed_s > 0, jobs.arrived_s, np.inf)
    started_s[running] = np.where(np.isnan(jobs.start_s), rules.now_s, jobs.start_s)[running]
    started_s = np.where(known, before[:, STARTED_S], started_s)
    last_place = np.where(known, before[:, PLACE], np.inf)
    waiters = np.bincount(queue[pending & ~moved], minlength=len(rules.thresholds) + 1)
    arrived = moved & ((waiters[queue] > 0) | (since_s >= rules.now_s))
    ran_here = ~arrived & (running | moved | (known & (before[:, RAN_HERE] == 1.0)))
    group = np.select((arrived, running, ran_here), (ARRIVED, RUNS, WAS_PREEMPTED), WAITS)
    place = np.where(moved | (group >= WAITS), np.inf, last_place)
    kept = (started_s < np.inf) & (jobs.state & rules.finished == 0) & ~np.isnan(jobs.arrived_s)
    keys.ints[:] = queue, group
    keys.floats[:] = started_s, since_s, place, last_place, counted, forgiven, forgiven_s
    keys.bools[:] = ran_here, promoted, kept
    inside = {BY_FIRST_START: (started_s,), BY_ARRIVAL_AT_QUEUE: (since_s, place, group)}.get(rules.inside, ())
    order[:] = np.lexsort((jobs.job_id, jobs.arrived_s, *inside, queue))  # NaN comes last
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    columns = (jobs.job_id, jobs.arrived_s, started_s, queue, since_s, ran_here, at, forgiven, forgiven_s)
    ids = jobs.job_id[kept]
    memory[: len(ids)] = np.column_stack([column[kept] for column in columns])
    return len(ids), bool((ids[1:] >= ids[:-1]).all())


@kernel(plain_below=MOST_BY_COLUMN, plain=las_by_column)
def las_rank(
    order: Int64s, jobs: LasJobs, rules: LasRules, past: Floats, keys: LasKeys, memory: Floats
) -> tuple[int, bool]:
    """Fill order, keys and memory; how many rows of memory are written, and whether their job ids ascend.

    order: (N,) rows, most urgent first. memory: (N, 9).
    past: (K, 9) what was written to memory at the last quantum, job ids ascending.
    """
    kept = las_keys(jobs, rules, past, keys)
    table = np.empty((len(order), 6))
    las_sort_keys(jobs, keys, rules.inside, table, order)
    sort_rows(table, order)
    return kept, las_memory(jobs, keys, order, memory)


@kernel(plain_below=PLAIN_BELOW)
def next_drop(service: Floats, rate: Int32s, counts: Bools, thresholds: Floats, least: int) -> float:
    """How soon the next of the jobs that count drops to queue `least` or a lower one, if all of them run [s].

    service, rate, counts: (N,). Infinity if none will.
    """
    soon_s = np.inf
    for i in range(len(counts)):
        if counts[i]:
            queue = max(_queue(service[i], thresholds), least - 1)
            if queue < len(thresholds):
                soon_s = min(soon_s, (thresholds[queue] - service[i]) / max(rate[i], 1))
    return soon_s


@kernel(plain_below=PLAIN_BELOW)
def next_overtaking(service: Floats, rate: Int32s, running: Bools, thresholds: Floats) -> float:
    """How soon a job may drop to a queue in which, or above which, another one waits, if all run [s].

    service, rate, running: (N,). Infinity if none will.
    """
    least = len(thresholds)
    for i in range(len(running)):
        if not running[i]:
            least = min(least, _queue(service[i], thresholds))
    soon_s = np.inf
    for i in range(len(running)):
        below = max(_queue(service[i], thresholds), least - 1)
        if below < len(thresholds):
            soon_s = min(soon_s, (thresholds[below] - service[i]) / max(rate[i], 1))
    return soon_s
