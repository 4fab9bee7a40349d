"""What a simulated cluster shows: the columns of the jobs there are now, in one pass; and what a plan changes."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s


@kernel(plain_below=512)
def job_columns(
    rows: Int64s, times: Floats, counts: Int64s, now_s: float, pending: int, running: int
) -> tuple[Floats, Int64s, Int32s]:
    """Columns of these jobs: (8, N) float64, (2, N) int64, (3, N) int32.

    rows: (N,). times: (J, 5) start of this run (NaN = waits), run time of earlier runs, when it last ran or came,
    submission, time limit [s]. counts: (J, 4) job id, GPUs, nodes, restarts. pending, running: the states' flags.
    Floats: submit, start, latest end, limit, run time of this run, of all runs [s], attained service [GPU s], waiting
    since it last ran [s]. Int64: job id, state. Int32: nodes, GPUs, restarts.
    """
    floats, ints = np.empty((8, rows.size), np.float64), np.empty((2, rows.size), np.int64)
    small = np.empty((3, rows.size), np.int32)
    for i in range(rows.size):
        row = rows[i]
        start_s, limit_s = times[row, 0], times[row, 4]
        waits = np.isnan(start_s)
        run_s = 0.0 if waits else now_s - start_s
        executed_s = times[row, 1] + run_s
        floats[0, i], floats[1, i], floats[2, i], floats[3, i] = times[row, 3], start_s, start_s + limit_s, limit_s
        floats[4, i], floats[5, i], floats[6, i] = run_s, executed_s, executed_s * counts[row, 1]
        floats[7, i] = now_s - times[row, 2] if waits else 0.0
        ints[0, i], ints[1, i] = counts[row, 0], pending if waits else running
        small[0, i], small[1, i], small[2, i] = counts[row, 2], counts[row, 1], counts[row, 3]
    return floats, ints, small


@kernel(plain_below=512)
def held_on_pile(job_id: Int64s, state: Int64s, gpus: Int32s, running: int) -> tuple[Int64s, Int32s]:
    """Who holds GPUs of a single node: (A,) job ids, ascending as given, and (2, A) node row (0) and GPUs.

    job_id, state, gpus: (N,). running: the flag of those that hold.
    """
    holders = 0
    for i in range(state.size):
        holders += state[i] == running
    ids, held = np.empty(holders, np.int64), np.zeros((2, holders), np.int32)
    a = 0
    for i in range(state.size):
        if state[i] == running:
            ids[a], held[1, a] = job_id[i], gpus[i]
            a += 1
    return ids, held


@kernel(plain_below=512)
def changes(rows: Int64s, times: Floats, target: Int64s) -> tuple[Int64s, Int64s]:
    """Places in `rows` of who must stop and of who must start, so that just the target runs. Both ascending.

    rows: (N,) rows of times, of which column 0 is NaN for a job that waits. target: (R,) places in rows.
    """
    wanted = np.zeros(rows.size, np.bool_)
    wanted[target] = True
    stops, starts = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    stopped, started = 0, 0
    for i in range(rows.size):
        waits = np.isnan(times[rows[i], 0])
        if wanted[i] and waits:
            starts[started] = i
            started += 1
        elif not (wanted[i] or waits):
            stops[stopped] = i
            stopped += 1
    return stops[:stopped], starts[:started]


@kernel(plain_below=512)
def who_waits(order: Int64s, stands: Int64s, served: Int64s, gpus: Int32s) -> tuple[Bools, int, int]:
    """Who holds GPUs once those served do, (N,) bool; fewest GPUs a waiting job asks for; row of the first of them.

    order: (N,) rows, most urgent first. stands: (N,) 0 = neither holds GPUs nor waits for them. served: (R,) rows.
    gpus: (N,). Both numbers are -1 if no job waits.
    """
    running = np.zeros(stands.size, np.bool_)
    running[served] = True
    least, head = -1, -1
    for row in order:
        if stands[row] > 0 and not running[row]:
            head = row if head < 0 else head
            least = gpus[row] if least < 0 else min(least, gpus[row])
    return running, least, head
