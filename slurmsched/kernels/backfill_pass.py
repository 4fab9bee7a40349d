"""One pass of slurmctld's backfill scheduler: reservations of whole nodes over running jobs' time limits."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.nodes import pick_nodes, pick_spared, take_nodes, use_limits, within_limits
from slurmsched.kernels.ready import last_end, pick_later, ready_nodes, runs_to_go, tested_after
from slurmsched.kernels.slots import BITS, merged, overlaps, pack, reserve, unpack, unreserved
from slurmsched.model.columns import Bools, Floats, Int64s


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
    shortest: bool,
    last_of_all: bool,
) -> Int64s:
    """Which jobs start now, and where. (K, 3) int64: job, node, kind, as take_nodes gives them, in order of start.

    clock: now, end of the window, resolution of reservations, Unix time of 0 [s]. most: (3,) jobs started,
    reservations of one array, records of the table of reservations, at which the pass ends.
    free: (3, N) int64 and room: (L,) are changed. Running jobs by expected end: run_end (R,), and rows
    run_first .. + run_count of held_node (H,) and held (H, 3). block: (B, 2) begin and end of times in which
    the nodes of blocked (B, N) bool start nothing. completing: (N,) bool, nodes that start nothing now; a job that
    cannot do without them is held up, with a reservation. Jobs in the order they are tested: pool, usable, nodes, need,
    last, array, limit, amount and shortest as in main_pass; limit_s: (J,) time limits.
    A job is tried at the present, then where reservations end. Each try takes running jobs away in windows of time, and
    gives as its start the end of the last one taken that holds a node of the job's, or if last_of_all of the last one:
    none that ends after the next try begins, and at once those that end by its own time. Source: Slurm's
    sched/backfill and select/cons_tres (will-run).
    """
    now, window_end, step, epoch = clock[0], clock[1], clock[2], clock[3]
    jobs, width, runs = nodes.size, usable.shape[1], run_end.size
    order_end, order = np.empty(runs + jobs, np.float64), np.empty(runs + jobs, np.int64)
    order_end[:runs], order[:runs] = run_end, np.arange(runs)  # jobs that start in this pass come in between
    first, count = np.concatenate((run_first, np.zeros(jobs, np.int64))), np.concatenate((run_count, nodes))
    shapes, needs, lasts = shapes_of(need, last)
    ready, by_ready = np.empty((shapes.shape[0], width), np.int64), np.empty((shapes.shape[0], width), np.int64)
    able = np.full(shapes.shape[0], -1, np.int64)  # -1: not known now
    given, used, slots, made = np.empty((64, 3), np.int64), 0, 1, 1
    words = (width + BITS - 1) // BITS
    begin, end = np.empty(2 * (jobs + block.shape[0]) + 2), np.empty(2 * (jobs + block.shape[0]) + 2)
    opened = np.zeros((begin.size, words), np.int64)
    mask, chosen = np.ones(width, np.bool_), np.zeros(width, np.int64)
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
                for shape in (needs[j], lasts[j]):
                    if able[shape] < 0:
                        able[shape] = ready_nodes(
                            free, shapes[shape], order, runs, first, count, held_node, held, ready[shape],
                            by_ready[shape],
                        )  # fmt: skip
                start = future_start(
                    now, epoch, free, order_end, order, runs, first, count, held_node, held, ready, by_ready, able,
                    needs[j], lasts[j], mask, nodes[j], need[j], last[j], shortest, last_of_all, chosen,
                    from_s, later if later >= 0 else np.inf,
                )  # fmt: skip
            if start == np.inf:
                if later < 0:
                    break
                continue
            start = max(start, from_s)
            held_up = False
            if start <= now and (completing & (chosen > 0)).any():
                pick_spared(free, mask, completing, nodes[j], need[j], last[j], shortest, chosen)
                held_up = bool((completing & (chosen > 0)).any())
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
                first[run_first.size + j] = held_node.size
                held_node, held = with_held(held_node, held, chosen, need[j], last[j])
                used = take_nodes(free, need[j], last[j], chosen, j, given, used)
                use_limits(room, limit[j], amount[j])
                insert(order_end, order, runs, now + limit_s[j], run_first.size + j)
                runs += 1
                able[:] = -1
                started += 1
                rejected = 0
                break
            if later >= 0 and start > later:
                continue
            if start <= window_end:
                if made >= most[2]:
                    return given[:used].copy()
                before, slots = slots, reserve(begin, end, opened, slots, slot, slot_end, bits)
                made += slots - before
                slots = merged(begin, end, opened, slots, slot, slot_end)
                in_array += 1 if array[j] > 0 else 0
                rejected = array[j] if in_array >= most[1] else 0
            break
        if started >= most[0]:
            break
    return given[:used].copy()


@kernel
def shapes_of(need: Int64s, last: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The distinct rows of need and last (J, 3), and which of them is the need and the last of each job (J,)."""
    jobs = need.shape[0]
    shapes, places, known = np.empty((2 * jobs, 3), np.int64), np.empty((2, jobs), np.int64), 0
    for j in range(jobs):
        for side in range(2):
            row = need[j] if side == 0 else last[j]
            place = 0
            while place < known and (shapes[place] != row).any():
                place += 1
            shapes[place] = row
            places[side, j] = place
            known = max(known, place + 1)
    return shapes[:known].copy(), places[0], places[1]


@kernel
def with_held(held_node: Int64s, held: Int64s, chosen: Int64s, need: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """held_node (H,) and held (H, 3) with what a job that starts on the nodes of chosen (N,) holds behind."""
    rows = np.flatnonzero(chosen)
    more = np.empty((rows.size, 3), np.int64)
    for k in range(rows.size):
        more[k] = need if chosen[rows[k]] == 1 else last
    return np.concatenate((held_node, rows)), np.concatenate((held, more))


@kernel
def insert(order_end: Floats, order: Int64s, runs: int, end: float, run: int) -> None:
    """Put a run into the lists by ascending end, behind equal ones."""
    place = runs
    while place > 0 and order_end[place - 1] > end:
        order_end[place], order[place] = order_end[place - 1], order[place - 1]
        place -= 1
    order_end[place], order[place] = end, run


@kernel
def future_start(
    now: float,
    epoch: float,
    free: Int64s,
    order_end: Floats,
    order: Int64s,
    runs: int,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    held: Int64s,
    ready: Int64s,
    by_ready: Int64s,
    able: Int64s,
    of_need: int,
    of_last: int,
    mask: Bools,
    nodes: int,
    need: Int64s,
    last: Int64s,
    shortest: bool,
    last_of_all: bool,
    chosen: Int64s,
    from_s: float,
    bound: float,
) -> float:
    """When a job could start on the nodes of mask, as slurmctld guesses it; infinite if never. chosen: its nodes.

    from_s: runs that end by then are gone at once. bound: no run that ends later is taken away. last_of_all: it starts
    at the end of the last run taken away, on whatever nodes.

    ready, by_ready (C, N) and able (C,): of each row of shapes_of, as ready_nodes gives them; of_need, of_last: the
    rows of the job. `last` is nowhere more than `need`, so that it fits as soon as enough nodes hold each.
    """
    whole = nodes if of_need == of_last else nodes - 1
    to_go = runs_to_go(ready[of_need], by_ready[of_need], able[of_need], mask, whole)
    if to_go >= 0 and of_need != of_last:
        rest = runs_to_go(ready[of_last], by_ready[of_last], able[of_last], mask, nodes)
        to_go = max(to_go, rest) if rest >= 0 else -1
    if to_go < 0:
        return np.inf
    gone, latest = 0, from_s
    while from_s > now and gone < runs and order_end[gone] <= from_s:
        gone += 1
    begun = gone
    if to_go == 0 and gone == 0:
        pick_nodes(free, mask, nodes, need, last, shortest, chosen)
        return from_s
    if gone < to_go:
        gone, latest = tested_after(
            to_go, epoch, order_end, order, runs, run_first, run_count, held_node, mask, gone, bound
        )
    if latest < np.inf:
        pick_later(
            gone, free, order, run_first, run_count, held_node, held, ready[of_last if nodes == 1 else of_need], mask,
            nodes, need, last, shortest, chosen,
        )  # fmt: skip
        if not last_of_all:
            latest = last_end(order_end, order, run_first, run_count, held_node, chosen, begun, gone, latest)
    return max(latest, now + 1.0)
