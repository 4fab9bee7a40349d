"""Columns of the jobs in a replay, and what a plan changes of who runs."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.gang_fit import part_of
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s


# Over 30 lines: more than half is signature and docstring.
@kernel(plain_below=512)
def job_columns(
    rows: Int64s,
    times: Floats,
    counts: Int64s,
    now_s: float,
    flags: tuple[int, int],
    floats: Floats,
    ints: Int64s,
    small: Int32s,
    holder: Int64s,
    held: Int32s,
) -> int:
    """Columns of these jobs, written to floats (8, N), ints (2, N) and small (3, N) int32; how many of them run.

    rows: (N,).
    times: (J, 5) start of this run (NaN = waits), run time of earlier runs, when it last ran or came, submission, time
        limit [s].
    counts: (J, 4) job id, GPUs, nodes, restarts.
    flags: of pending and running.
    floats: submit, start, latest end, limit, run time of this run, of all runs [s], attained service [GPU s], waiting
        since it last ran [s].
    ints: job id, state.
    small: nodes, GPUs, restarts.
    holder, held: (N,) each, ids and GPUs of those that run are written to their beginning, in the order of rows.
    """
    holders = 0
    for i in range(rows.size):
        row = rows[i]
        start_s, limit_s = times[row, 0], times[row, 4]
        waits = np.isnan(start_s)
        run_s = 0.0 if waits else now_s - start_s
        executed_s = times[row, 1] + run_s
        floats[0, i], floats[1, i], floats[2, i], floats[3, i] = times[row, 3], start_s, start_s + limit_s, limit_s
        floats[4, i], floats[5, i], floats[6, i] = run_s, executed_s, executed_s * counts[row, 1]
        floats[7, i] = now_s - times[row, 2] if waits else 0.0
        ints[0, i], ints[1, i] = counts[row, 0], flags[0] if waits else flags[1]
        small[0, i], small[1, i], small[2, i] = counts[row, 2], counts[row, 1], counts[row, 3]
        if not waits:
            holder[holders], held[holders] = counts[row, 0], counts[row, 1]
            holders += 1
    return holders


@kernel(plain_below=512)
def changed_runs(rows: Int64s, times: Floats, target: Int64s, differ: Int64s) -> tuple[int, int]:
    """How many must stop, and how many stop or start, so that just the target runs.

    rows: (N,) rows of times, of which column 0 is NaN for a job that waits. target: (R,) places in rows. differ: (N,),
    the places of those that stop, then of those that start, are written to it, both ascending.
    """
    wanted = np.zeros(rows.size, np.bool_)
    wanted[target] = True
    stops = 0
    for i in range(rows.size):
        if not (wanted[i] or np.isnan(times[rows[i], 0])):
            differ[stops] = i
            stops += 1
    changed = stops
    for i in range(rows.size):
        if wanted[i] and np.isnan(times[rows[i], 0]):
            differ[changed] = i
            changed += 1
    return stops, changed


@kernel(plain_below=512)
def who_waits(
    order: Int64s, stands: Int64s, served: Int64s, gpus: Int32s, running: Bools, queue: Int64s
) -> tuple[int, int, int]:
    """Fewest GPUs a waiting job asks for, how many wait, fewest GPUs that must be free for one of them.

    order: (N,) rows, most urgent first. stands: (N,) 0 = neither holds GPUs nor waits for them. served: (R,) rows.
    gpus: (N,). running: (N,) is overwritten: who holds GPUs once those served do. queue: (2, N), rows of those that
    wait, in order, are written to it, and what each asks for less what jobs after it hold. -1, 0, 0 if no job waits.
    """
    running[:] = False
    behind = 0
    for row in served:
        running[row] = True
        behind += gpus[row]
    least, waiting, need = -1, 0, 0
    for row in order:
        if running[row]:
            behind -= gpus[row]
        elif stands[row] > 0:
            queue[0, waiting], queue[1, waiting] = row, gpus[row] - behind
            need = queue[1, waiting] if waiting == 0 else min(need, queue[1, waiting])
            least = gpus[row] if waiting == 0 else min(least, gpus[row])
            waiting += 1
    return least, waiting, need


@kernel(plain_below=512)
def count_in_order(
    order: Int64s, gpus: Int32s, capacity: int, placed: Int64s, running: Bools, queue: Int64s
) -> tuple[int, int, int]:
    """How many jobs get GPUs when each that fits takes what it asks for, in order; how many wait, and the least need.

    order: (N,) rows, most urgent first. gpus: (N,). placed: (5, N), the columns of Assignments by served job, all on
    node row 0. running: (N,) whether a job is served. queue: (2, N) rows of those that wait, in order, and what each
    needs: what it asks for less what jobs behind it get. placed, running and queue are overwritten. A job that asks for
    no GPU neither waits nor runs.
    """
    served, held = 0, 0
    for row in order:
        running[row] = 0 < gpus[row] <= capacity - held
        if running[row]:
            placed[0, served], placed[1, served], placed[2, served], placed[3, served] = row, served, 1, 0
            placed[4, served] = gpus[row]
            held += gpus[row]
            served += 1
    waiting, least = 0, 0
    for row in order:
        if running[row]:
            held -= gpus[row]
        elif gpus[row] > 0:
            queue[0, waiting], queue[1, waiting] = row, gpus[row] - held
            least = queue[1, waiting] if waiting == 0 else min(least, queue[1, waiting])
            waiting += 1
    return served, waiting, least


# Over 30 lines: half is signature and docstring.
@kernel(plain_below=512)
def room_needed(
    order: Int64s,
    waits: Bools,
    gpus: Int32s,
    nodes: Int32s,
    placed: tuple[Int64s, Int64s, Int64s],
    held: tuple[Int64s, Int64s],
    capacity: Int64s,
) -> Int64s:
    """GPUs that must come free on each node before a part of any waiting gang finds more room there. (N,) int64.

    Each gang may have what jobs before it in the order leave. Zeros if one finds room as it is.
    order: (J,) rows, most urgent first.
    waits: (J,) whether a job waits.
    gpus, nodes: (J,) asked for.
    placed: of the jobs that hold GPUs (R,): row, where its entries in `held` begin, how many they are.
    held: row of the node and GPUs, (A,) each.
    capacity: (N,) GPUs.
    """
    entry, free = np.full(waits.size, -1, np.int64), capacity.copy()
    needs, size = np.full(capacity.size, np.iinfo(np.int64).max), capacity.max()
    for place in range(placed[0].size):
        entry[placed[0][place]] = place
    for row in order:
        if entry[row] >= 0:
            begin = placed[1][entry[row]]
            for k in range(begin, begin + placed[2][entry[row]]):
                free[held[0][k]] -= held[1][k]
        if not waits[row] or gpus[row] <= 0:
            continue
        part = min(part_of(gpus[row], nodes[row], size), gpus[row])
        parts, rest, large, small = gpus[row] // part, gpus[row] % part, 0, 0
        for n in range(capacity.size):
            large += 1 if free[n] >= part else 0
            small += 1 if free[n] >= rest else 0
            for take in (part, rest):
                if free[n] < take:
                    needs[n] = min(needs[n], take - free[n])
        if large >= parts and (rest == 0 or small > parts):
            needs[:] = 0
            break
    return needs
