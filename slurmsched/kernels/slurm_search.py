"""Scores a gres.conf over all states of a node, and bounds what any order of its lines can reach."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.slurm_pick import pick_per_job, pick_per_node
from slurmsched.kernels.slurm_pick_old import old_pick_per_job, old_pick_per_node
from slurmsched.model.columns import Int32s, Int64s


@kernel
def picked(
    free: Int64s, need: Int64s, cores: Int32s, socket: Int32s, links: Int32s, linked: bool, order: Int32s,
    per_job: bool, old: bool, double: bool,
) -> Int64s:  # fmt: skip
    """(T,) int64: in each state the mask of GPUs that Slurm picks.

    free: (T,) int64 masks of free GPUs. need: (T,) int64. cores: (T, S) int32, the job's cores on each socket.
    socket: (G,) int32 and links: (G, G) int32 by GPU. order: (G,) int32, the GPU at each index of gres.conf.
    per_job: --gpus=N instead of --gpus-per-node=N. old: before 24.05. double: from 25.11 on, not per_job.
    """
    gpus, given = order.size, np.zeros(free.size, np.int64)
    near, wired = np.empty(gpus, np.int32), np.empty((gpus, gpus), np.int32)
    unheld = np.empty(gpus, np.bool_)
    for i in range(gpus):
        near[i] = socket[order[i]]
        for j in range(gpus):
            wired[i, j] = links[order[i], order[j]]
    for t in range(free.size):
        for i in range(gpus):
            unheld[i] = free[t] >> order[i] & 1 == 1
        if old and per_job:
            got = old_pick_per_job(unheld, near, wired, linked, cores[t], need[t], False)
        elif old:
            got = old_pick_per_node(unheld, near, wired, linked, cores[t], need[t], False)
        elif per_job:
            got = pick_per_job(unheld, near, wired, linked, cores[t], need[t], False)
        else:
            got = pick_per_node(unheld, near, wired, linked, cores[t], need[t], False, double)
        for i in range(gpus):
            if got[i]:
                given[t] |= 1 << order[i]
    return given


@kernel
def most_good_seeds(starts: Int64s, good: Int64s, gpus: int) -> int:
    """The most states whose first GPU can be a good one, over all orders of the GPUs.

    starts: (T,) int64, in each state the GPUs of which Slurm takes the one with the lowest index first. good: (T,)
    int64, those that some best set holds. All gpus! orders are tried (Heap's algorithm): at most 8 GPUs.
    """
    order, turns = np.arange(gpus), np.zeros(gpus, np.int64)
    best, level = seeds_met(order, starts, good), 1
    while level < gpus:
        if turns[level] < level:
            other = 0 if level % 2 == 0 else turns[level]
            order[other], order[level] = order[level], order[other]
            best = max(best, seeds_met(order, starts, good))
            turns[level] += 1
            level = 1
        else:
            turns[level] = 0
            level += 1
    return best


@kernel
def seeds_met(order: Int64s, starts: Int64s, good: Int64s) -> int:
    """States in which the first GPU in this order is a good one."""
    met = 0
    for t in range(starts.size):
        for g in order:
            if starts[t] >> g & 1:
                met += good[t] >> g & 1
                break
    return met
