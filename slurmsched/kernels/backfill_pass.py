"""One pass of slurmctld's backfill scheduler: reservations of whole nodes over running jobs' time limits."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.nodes import give_nodes, pick_nodes, take_nodes, use_limits, within_limits
from slurmsched.kernels.slots import BITS, overlaps, pack, reserve, unpack, unreserved
from slurmsched.model.columns import Bools, Floats, Int64s

FIRST_WINDOW_S = 30.0  # within which running jobs are taken away together; doubles at each step
MOST_REMOVED = 200  # running jobs taken away between two tests


@kernel
def backfill_pass(
    clock: Floats,
    most: Int64s,
    free: Int64s,
    run_end: Floats,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    held: Int64s,
    block: Floats,
    blocked: Bools,
    completing: Bools,
    usable: Bools,
    pool: Int64s,
    nodes: Int64s,
    need: Int64s,
    last: Int64s,
    limit_s: Floats,
    array: Int64s,
    limit: Int64s,
    amount: Floats,
    room: Floats,
) -> Int64s:
    """Which jobs start now, and where. (K, 3) int64: job, node, kind, as take_nodes gives them, in order of start.

    clock: now, end of the window, resolution of reservations, Unix time of 0 [s]. most: (2,) jobs
    started, reservations of one array.
    free: (3, N) int64 and room: (L,) are changed. Running jobs by expected end: run_end (R,), and rows
    run_first .. + run_count of held_node (H,) and held (H, 3). block: (B, 2) begin and end of times in which
    the nodes of blocked (B, N) bool start nothing. completing: (N,) bool, nodes that start nothing now; a job that
    would start there is held up, with a reservation. Jobs in the order they are tested: pool, usable, nodes, need,
    last, array, limit and amount as in main_pass; limit_s: (J,) time limits.
    A job is tried at the present, then where reservations end. Each try takes running jobs away in windows of time, and
    gives the end of the last one taken as its start. Source: Slurm's sched/backfill and select/cons_tres (will-run).
    """
    now, window_end, step, epoch = clock[0], clock[1], clock[2], clock[3]
    jobs, width, runs = nodes.size, usable.shape[1], run_end.size
    order_end, order_run = np.empty(runs + jobs, np.float64), np.empty(runs + jobs, np.int64)
    order_end[:runs], order_run[:runs] = run_end, np.arange(runs)  # run >= runs: the job started in this pass
    first = np.zeros(jobs, np.int64)  # row of `given` from which on a job that started has its nodes
    given, used, slots = np.empty((64, 3), np.int64), 0, 1
    words = (width + BITS - 1) // BITS
    begin, end = np.empty(2 * (jobs + block.shape[0]) + 2), np.empty(2 * (jobs + block.shape[0]) + 2)
    opened = np.zeros((begin.size, words), np.int64)
    mask, chosen, work = np.ones(width, np.bool_), np.zeros(width, np.int64), free.copy()
    pools, left, bits = (
        np.zeros((usable.shape[0], words), np.int64), np.zeros(words, np.int64), np.zeros(words, np.int64)
    )  # fmt: skip
    for p in range(usable.shape[0]):
        pack(usable[p], pools[p])
    pack(mask, opened[0])
    begin[0], end[0] = now, window_end
    for b in range(block.shape[0]):
        pack(blocked[b], bits)
        slots = reserve(begin, end, opened, slots, block[b, 0], block[b, 1], bits)
    rejected, in_array, current, started = 0, 0, 0, 0
    for j in range(jobs):
        if array[j] > 0:
            if array[j] != current:
                current, in_array = array[j], 0
            if array[j] == rejected:
                continue
            rejected = array[j]
        if not within_limits(room, limit[j], amount[j]):
            continue
        later = now
        while True:
            from_s, until = later, later + limit_s[j]
            if from_s > window_end:
                break
            later = unreserved(begin, end, opened, slots, from_s, until, pools[pool[j]], left)
            start = np.inf
            if unpack(left, mask) >= nodes[j]:
                start = future_start(
                    now, epoch, free, work, order_end, order_run, runs, run_first, run_count, held_node, held,
                    first, given, mask, nodes, need, last, j, chosen,
                )  # fmt: skip
            if start == np.inf:
                if later < 0:
                    break
                continue
            start = max(start, from_s)
            held_up = start <= now and (completing & (chosen > 0)).any()
            if held_up:
                start, later = now + 1.0, -1.0
            slot, slot_end = start, start + limit_s[j]
            if step > 0:
                slot = np.floor((slot + epoch) / step) * step - epoch
                slot_end = np.ceil((slot_end + epoch) / step) * step - epoch
            pack(chosen > 0, bits)
            if start > now and not held_up and overlaps(begin, end, opened, slots, slot, slot_end, bits):
                later = start + (step if step > 0 else 1.0) if start == from_s else start
                continue
            if start <= now:
                if used + nodes[j] > given.shape[0]:
                    given = np.concatenate((given, np.empty((used + nodes[j], 3), np.int64)))
                first[j] = used
                used = take_nodes(free, need[j], last[j], chosen, j, given, used)
                use_limits(room, limit[j], amount[j])
                insert(order_end, order_run, runs, now + limit_s[j], run_first.size + j)
                runs += 1
                started += 1
                rejected = 0
                break
            if later >= 0 and start > later:
                continue
            if start <= window_end:
                slots = reserve(begin, end, opened, slots, slot, slot_end, bits)
                in_array += 1 if array[j] > 0 else 0
                rejected = array[j] if in_array >= most[1] else 0
            break
        if started >= most[0]:
            break
    return given[:used].copy()


@kernel
def insert(order_end: Floats, order_run: Int64s, runs: int, end: float, run: int) -> None:
    """Put a run into the lists by ascending end, behind equal ones."""
    place = runs
    while place > 0 and order_end[place - 1] > end:
        order_end[place], order_run[place] = order_end[place - 1], order_run[place - 1]
        place -= 1
    order_end[place], order_run[place] = end, run


@kernel
def give_back(
    work: Int64s,
    run: int,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    held: Int64s,
    first: Int64s,
    given: Int64s,
    nodes: Int64s,
    need: Int64s,
    last: Int64s,
    mask: Bools,
) -> bool:
    """Whether the run holds one of the nodes of mask; then what it holds is added to work."""
    job = run - run_first.size
    if job >= 0:
        return give_nodes(work, need[job], last[job], given[first[job] : first[job] + nodes[job]], mask)
    touches, begin = False, run_first[run]
    for k in range(begin, begin + run_count[run]):
        touches = touches or mask[held_node[k]]
    if touches:
        for k in range(begin, begin + run_count[run]):
            for r in range(3):
                work[r, held_node[k]] += held[k, r]
    return touches


@kernel
def future_start(
    now: float,
    epoch: float,
    free: Int64s,
    work: Int64s,
    order_end: Floats,
    order_run: Int64s,
    runs: int,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    held: Int64s,
    first: Int64s,
    given: Int64s,
    mask: Bools,
    nodes: Int64s,
    need: Int64s,
    last: Int64s,
    j: int,
    chosen: Int64s,
) -> float:
    """When job j could start on the nodes of mask, as slurmctld guesses it; infinite if never. chosen: its nodes."""
    if pick_nodes(free, mask, nodes[j], need[j], last[j], chosen):
        return now
    work[:] = free
    window, edge, i = FIRST_WINDOW_S, -1.0, 0
    while i < runs:
        gone, latest, following = 0, -1.0, np.inf
        while i < runs:
            run = order_run[i]
            if not give_back(work, run, run_first, run_count, held_node, held, first, given, nodes, need, last, mask):
                i += 1
                continue
            if edge < 0:
                edge = order_end[i] + (window - (order_end[i] + epoch) % window) if order_end[i] < np.inf else np.inf
            latest = order_end[i]
            gone += 1
            i += 1
            following = order_end[i] if i < runs else np.inf
            if following > edge + window or gone > MOST_REMOVED:
                break
        if latest < 0:
            break
        if gone <= MOST_REMOVED and pick_nodes(work, mask, nodes[j], need[j], last[j], chosen):
            return max(latest, now + 1.0)
        if i < runs and gone <= MOST_REMOVED:
            window *= 2.0
            while following > edge + window and window < np.inf:
                window *= 2.0
    return np.inf
