"""Which GPUs of a node slurmctld gives a job once the job's cores are chosen: Slurm 21.08 to 23.11.

Written from what select/cons_tres does (gres_select_filter.c of 23.02 and 23.11). Arguments and results as in
`slurm_pick`, which is for later versions; there the best linked GPUs no longer come first.
"""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.slurm_pick import ANY, drop_least_linked
from slurmsched.model.columns import Bools, Int32s

LEVELS = 4  # scores are scaled down to so many


@kernel
def take_scored(
    s: int, need: int, least: int, score: Int32s, free: Bools, socket: Int32s, links: Int32s, linked: bool,
    given: Bools, gained: Int32s,
) -> int:  # fmt: skip
    """Give up to `need` free GPUs of socket s whose score is at least so much, low index first; how many were given.

    gained: (G,) int32, changed: what the links to those given add to each free GPU.
    """
    left = need
    for g in range(free.size):
        if left > 0 and socket[g] == s and free[g] and not given[g] and score[g] >= least:
            given[g] = True
            left -= 1
            for other in range(free.size):
                if linked and other != g and free[other]:
                    gained[other] += links[g, other]
    return need - left


@kernel
def scale(score: Int32s) -> int:
    """Scale the scores down to at most LEVELS; the highest one left."""
    best = max(0, int(score.max()))
    if best > LEVELS:
        step = (best + LEVELS - 1) // LEVELS
        for g in range(score.size):
            score[g] //= step
        best = max(0, int(score.max()))
    return best


@kernel
def old_pick_per_node(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, need: int, bound: bool
) -> Bools:
    """One GPU near each socket of the job, then those best linked to them: there, and at last elsewhere."""
    given, zero = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    score, unused = np.zeros(free.size, np.int32), np.zeros(free.size, np.int32)
    left = need
    for s in range(ANY, cores.size):
        if left > 0 and (s == ANY or cores[s] > 0):
            left -= take_scored(s, 1, 0, zero, free, socket, links, linked, given, score)
    best = scale(score)
    for far in range(2):
        for level in range(best, -1, -1):
            for s in range(ANY if far == 0 else 0, cores.size):
                if (far == 0) == (s == ANY or cores[s] > 0):
                    left -= take_scored(s, left, level, score, free, socket, links, linked, given, unused)
    return given


@kernel
def old_pick_per_task(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, tasks: Int32s, each: int, bound: bool
) -> Bools:
    """Low index first beside the tasks, then those best linked to them, wherever they are."""
    given, zero = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    score, unused = np.zeros(free.size, np.int32), np.zeros(free.size, np.int32)
    goal, have = 0, 0
    for s in range(tasks.size):
        goal += tasks[s] * each
        have += take_scored(s, goal - have, 0, zero, free, socket, links, linked, given, score)
    for level in range(scale(score), -1, -1):
        for s in range(ANY, tasks.size):
            have += take_scored(s, goal - have, level, score, free, socket, links, linked, given, unused)
    return given


@kernel
def old_pick_per_socket(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, each: int, bound: bool
) -> Bools:
    """Low index first near each socket of the job, then those of no socket; Links play no part."""
    given, zero = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    for s in range(cores.size):
        if cores[s] > 0:
            have = take_scored(s, each, 0, zero, free, socket, links, False, given, zero)
            take_scored(ANY, each - have, 0, zero, free, socket, links, False, given, zero)
    return given


@kernel
def old_pick_per_job(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, need: int, bound: bool
) -> Bools:
    """As later versions near the job's cores; what is missing comes from elsewhere, best linked to the first one."""
    given, zero = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    most, have = free.size if linked and need > 1 else need, 0
    for s in range(ANY, cores.size):
        if s == ANY or cores[s] > 0:
            have += take_scored(s, most - have, 0, zero, free, socket, links, False, given, zero)
    for s in range(cores.size):
        if cores[s] == 0 and have == 0:
            have += take_scored(s, 1, 0, zero, free, socket, links, False, given, zero)
    if have > need:
        drop_least_linked(given, links, have - need)
    elif have < need and given.any():
        score = zero.copy()
        if linked:
            score[:] = np.maximum(0, links[np.argmax(given)])
        for level in range(score.max(), -1, -1):
            for s in range(ANY, cores.size):
                have += take_scored(s, need - have, level, score, free, socket, links, False, given, zero)
    return given
