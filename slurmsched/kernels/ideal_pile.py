"""What happens on an ideal cluster of one pile of GPUs, from one plan to the next: replay.ideal_pile keeps the tables.

Of a job, by row: times and counts as Cast has them; life (5, J): run time needed, progress, first start, end, end of
this run. lists (6, J) int64: rows that wait or run, ascending; rows as they come; heap of those that run and the places
there; the queue that the plan left and its needs. tally: int64 counts and flags, clock: [s], by the names below. notes,
ran: see note_pile and _leave. Source: ours; it does what IdealCluster does event by event.
"""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.end_heap import heap_push, heap_remove
from slurmsched.kernels.show import changes
from slurmsched.model.columns import Floats, Int64s

START, RAN, STOPPED, SUBMIT = range(4)  # columns of times
GPUS, RESTARTS = 1, 3  # columns of counts
NEEDED, PROGRESS, FIRST, END, UNTIL = range(5)  # rows of life
ACTIVE, ARRIVALS, HEAP, SEAT, QUEUE, NEEDS = range(6)  # rows of lists
TALLY = 19
PRESENT, HELD, FREE, LEFT, NOTED, LEAVES, DUE, ARRIVED = range(8)
BOUND, WOKE, CAME, GAVE, OPEN, BY_ARRIVAL, TAKES, RUNNING, KIND = range(8, 17)  # what a plan sets anew
HEAD, TAIL = range(17, TALLY)
CLOCK = 8
NOW, WAKE, NEXT, START_COST, RESTART_COST, CHECKPOINT, TICK, LETS_IN = range(CLOCK)  # LETS_IN [GPU s]: NaN = None
NO_QUEUE, IN_TURN, WHOEVER = range(3)  # as ideal_queue
_NEVER = np.iinfo(np.int64).max


@kernel
def undecided_pile(tally: Int64s) -> bool:
    """Whether a plan made now can differ from the last one (see Plan.wake)."""
    waiting = tally[PRESENT] - tally[HELD]
    if tally[WOKE] or (tally[CAME] and tally[TAKES]):
        return waiting > 0 or tally[RUNNING] != 0
    if tally[KIND] != NO_QUEUE:
        return False
    return waiting > 0 and (tally[CAME] != 0 or tally[GAVE] != 0) and tally[FREE] >= tally[BOUND]


@kernel
def proceed_pile(
    until_s: float,
    to_plan: bool,
    times: Floats,
    counts: Int64s,
    life: Floats,
    lists: Int64s,
    tally: Int64s,
    clock: Floats,
    notes: Floats,
    ran: Floats,
) -> int:
    """Let time pass up to and with until_s; returns the number of events. to_plan: no further than a plan is due, or
    all jobs have ended.

    It also ends where notes or ran could not hold what comes next. NEXT of the clock tells when something happens.
    """
    happened = 0
    while True:
        clock[NEXT] = next_pile(times, life, lists, tally, clock)
        tally[DUE] = undecided_pile(tally)
        full = tally[NOTED] >= len(notes) or tally[LEAVES] + tally[HELD] > len(ran)
        due = to_plan and (tally[LEFT] == 0 or tally[DUE] != 0)
        if full or due or clock[NEXT] > until_s or clock[NEXT] == np.inf:
            return happened
        clock[NOW] = clock[NEXT]
        while tally[HELD] > 0 and life[UNTIL, lists[HEAP, 0]] <= clock[NOW]:
            _end(lists[HEAP, 0], times, counts, life, lists, tally, clock, ran)
            happened += 1
        happened += _receive(times, counts, life, lists, tally, clock)
        if clock[WAKE] <= clock[NOW]:
            tally[WOKE], clock[WAKE] = 1, np.inf
            happened += 1
        if tally[KIND] != NO_QUEUE and not undecided_pile(tally):
            _follow(times, counts, life, lists, tally, clock)
        note_pile(tally, clock, notes)


@kernel
def next_pile(times: Floats, life: Floats, lists: Int64s, tally: Int64s, clock: Floats) -> float:
    """When a job ends or comes next, or the order changes; infinity if nothing will."""
    next_s = clock[WAKE]
    if tally[HELD] > 0:
        next_s = min(next_s, life[UNTIL, lists[HEAP, 0]])
    if tally[ARRIVED] < len(times):
        next_s = min(next_s, times[lists[ARRIVALS, tally[ARRIVED]], SUBMIT])
    return next_s


@kernel
def note_pile(tally: Int64s, clock: Floats, notes: Floats) -> None:
    """Note GPUs free and jobs waiting from now on: (N, 3) time, free, waiting. Of one time the last note counts."""
    at = tally[NOTED]
    if at > 0 and notes[at - 1, 0] == clock[NOW]:
        at -= 1
    notes[at, 0], notes[at, 1], notes[at, 2] = clock[NOW], tally[FREE], tally[PRESENT] - tally[HELD]
    tally[NOTED] = at + 1


@kernel
def enact_pile(
    seen: Int64s,
    target: Int64s,
    queue: Int64s,
    needs: Int64s,
    times: Floats,
    counts: Int64s,
    life: Floats,
    lists: Int64s,
    tally: Int64s,
    clock: Floats,
    notes: Floats,
    ran: Floats,
) -> int:
    """Stop who is not in the target, start who is, and keep the queue; returns how many stopped or started.

    seen: (N,) rows of the snapshot. target: places in it. queue: (Q,) places, in order; needs: (Q,) as
    Plan.queue_needs, or none. Kind of the queue and what Plan.wake says are the caller's to set, before.
    """
    differ = np.empty(len(seen), np.int64)
    stops, changed = changes(seen, times, target, differ)
    for k in range(stops):
        _stop(seen[differ[k]], times, counts, life, lists, tally, clock, ran)
    for k in range(stops, changed):
        _start(seen[differ[k]], times, counts, life, lists, tally, clock)
    for k in range(len(queue)):
        lists[QUEUE, k] = seen[queue[k]]
    for k in range(len(needs)):
        lists[NEEDS, k] = needs[k]
    tally[HEAD], tally[TAIL], tally[DUE] = 0, len(queue), 0
    note_pile(tally, clock, notes)
    clock[NEXT] = next_pile(times, life, lists, tally, clock)
    return changed


@kernel
def _start(row: int, times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats) -> None:
    cost_s = clock[RESTART_COST]
    if np.isnan(life[FIRST, row]):
        life[FIRST, row], cost_s = clock[NOW], clock[START_COST]
    left_s = cost_s + (life[NEEDED, row] - life[PROGRESS, row])
    times[row, START], life[UNTIL, row] = clock[NOW], clock[NOW] + left_s
    tally[FREE] -= counts[row, GPUS]
    tally[HELD] = heap_push(row, life[UNTIL], lists[HEAP], lists[SEAT], tally[HELD])


@kernel
def _leave(
    row: int, times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats, ran: Floats
) -> float:
    """GPUs back; returns how long this run took [s]. It is noted: (M, 3) row, start, end."""
    start_s = times[row, START]
    at = tally[LEAVES]
    ran[at, 0], ran[at, 1], ran[at, 2] = row, start_s, clock[NOW]
    tally[LEAVES] = at + 1
    times[row, RAN] += clock[NOW] - start_s
    times[row, START] = np.nan
    tally[FREE] += counts[row, GPUS]
    tally[HELD] = heap_remove(row, life[UNTIL], lists[HEAP], lists[SEAT], tally[HELD])
    return clock[NOW] - start_s


@kernel
def _stop(
    row: int, times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats, ran: Floats
) -> None:
    run_s = _leave(row, times, counts, life, lists, tally, clock, ran)
    cost_s = clock[RESTART_COST] if counts[row, RESTARTS] else clock[START_COST]
    made_s, step_s = life[PROGRESS, row] + max(0.0, run_s - cost_s), clock[CHECKPOINT]
    life[PROGRESS, row] = max(life[PROGRESS, row], made_s // step_s * step_s) if step_s else made_s
    counts[row, RESTARTS] += 1
    times[row, STOPPED] = clock[NOW]


@kernel
def _end(
    row: int, times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats, ran: Floats
) -> None:
    _leave(row, times, counts, life, lists, tally, clock, ran)
    life[END, row] = clock[NOW]
    active, present = lists[ACTIVE], tally[PRESENT]
    for place in range(np.searchsorted(active[:present], row), present - 1):
        active[place] = active[place + 1]
    tally[PRESENT] -= 1
    tally[LEFT] -= 1
    tally[GAVE] = 1


@kernel
def _receive(times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats) -> int:
    """Jobs that come until now; they start if the plan lets all in and there is room. Returns their number."""
    first, asked, came_before = tally[ARRIVED], 0, tally[CAME]
    while tally[ARRIVED] < len(times) and times[lists[ARRIVALS, tally[ARRIVED]], SUBMIT] <= clock[NOW]:
        row = lists[ARRIVALS, tally[ARRIVED]]
        asked += counts[row, GPUS]
        _arrive(row, counts, lists, tally)
    came = tally[ARRIVED] - first
    if came and tally[OPEN] and tally[PRESENT] - tally[HELD] == came and asked <= tally[FREE]:
        for at in range(first, tally[ARRIVED]):
            _start(lists[ARRIVALS, at], times, counts, life, lists, tally, clock)
    elif came and tally[KIND] == WHOEVER and not came_before:
        _let_in(first, asked, times, counts, life, lists, tally, clock)
    return came


@kernel
def _let_in(
    first: int, asked: int, times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats
) -> None:
    """Start those that came where the plan allows that and all find GPUs that nobody else has a use for.

    first: among those that came so far. asked: GPUs.
    """
    if np.isnan(clock[LETS_IN]) or tally[WOKE] or clock[WAKE] <= clock[NOW] or asked > tally[FREE]:
        return
    needs = lists[NEEDS]
    for place in range(tally[TAIL]):
        if needs[place] <= tally[FREE]:
            return
    for place in range(tally[TAIL]):  # those that came may stand behind anybody who waits
        needs[place] -= asked
    tally[CAME] = 0
    for at in range(first, tally[ARRIVED]):
        row = lists[ARRIVALS, at]
        _start(row, times, counts, life, lists, tally, clock)
        changes_s = clock[NOW] + clock[LETS_IN] / counts[row, GPUS]
        clock[WAKE] = min(clock[WAKE], _wake_s(changes_s, clock[NOW], clock[TICK]))


@kernel
def _wake_s(at_s: float, now_s: float, tick_s: float) -> float:
    """As IdealModel.wake_s."""
    if at_s == np.inf or tick_s == 0:
        return max(at_s, now_s + 1e-3)
    return max(np.ceil(at_s / tick_s), np.floor(now_s / tick_s) + 1) * tick_s


@kernel
def _arrive(row: int, counts: Int64s, lists: Int64s, tally: Int64s) -> None:
    active, place = lists[ACTIVE], tally[PRESENT]
    while place > 0 and active[place - 1] > row:
        active[place] = active[place - 1]
        place -= 1
    active[place] = row
    tally[PRESENT] += 1
    tally[ARRIVED] += 1
    if tally[KIND] == IN_TURN:
        lists[QUEUE, tally[TAIL]] = row
        tally[TAIL] += 1
    if tally[BY_ARRIVAL]:
        tally[CAME] = 1
        tally[BOUND] = 0 if tally[TAKES] else min(tally[BOUND], counts[row, GPUS])


@kernel
def _follow(times: Floats, counts: Int64s, life: Floats, lists: Int64s, tally: Int64s, clock: Floats) -> None:
    """Start who is next in the plan's queue, as long as it fits; where it cannot tell, the next plan does."""
    queue, needs = lists[QUEUE], lists[NEEDS]
    while tally[KIND] == IN_TURN and tally[HEAD] < tally[TAIL]:
        row = queue[tally[HEAD]]
        if counts[row, GPUS] > tally[FREE]:
            return
        tally[HEAD] += 1
        _start(row, times, counts, life, lists, tally, clock)
    place = 0
    while tally[KIND] == WHOEVER and place < tally[TAIL]:
        if needs[place] > tally[FREE]:
            place += 1
            continue
        gpus = counts[queue[place], GPUS]
        if needs[place] < gpus:
            tally[WOKE] = 1
            return
        needs[:place] -= gpus
        needs[place] = _NEVER
        _start(queue[place], times, counts, life, lists, tally, clock)
        place = 0
