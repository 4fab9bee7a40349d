"""Which GPUs of a node slurmctld gives a job once the job's cores are chosen.

Slurm 24.05 and later, and (`old_...`) 21.08 to 23.11, in which the best linked GPUs come first. Written from what
select/cons_tres does (gres_select_filter.c), checked against 24.11.5 and 26.05.5; docs/topology-slurm.md has what is
known about each version. At the end: scores of a gres.conf over all states of a node.

Arguments of the pick_... kernels:
free: (G,) bool, GPUs that no job holds.
socket: (G,) int32, socket of the cores of each GPU, -1 = any socket.
links: (G, G) int32, the Links rows of gres.conf, read only if `linked`: every GPU has a row.
cores: (S,) int32, the job's cores on each socket.
bound: GPUs of sockets without such cores are not given.
Each returns (G,) bool, the GPUs given; fewer than asked for if the node does not have them.
"""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Int32s, Int64s

ANY = -1  # the socket of a GPU that is near every socket


@kernel
def sort_by_links(order: Int32s, score: Int32s) -> None:
    """Sort indices by score, the smallest first; equal ones keep their order, as in the C library's merge sort."""
    for i in range(1, order.size):
        g, j = order[i], i - 1
        while j >= 0 and score[order[j]] > score[g]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = g


@kernel
def take(
    s: int, need: int, free: Bools, socket: Int32s, links: Int32s, order: Int32s, score: Int32s, linked: bool,
    given: Bools,
) -> int:  # fmt: skip
    """Give up to `need` free GPUs of socket s in the order so far; how many were given.

    order, score: (G,) int32, changed: after each GPU the others gain its links and the order is sorted anew, the least
    linked first. Slurm then goes on at the second place of the new order, so the first is not looked at again.
    """
    i, missing = 0, need
    while i < order.size and missing > 0:
        g = order[i]
        i += 1
        if socket[g] != s or given[g] or not free[g]:
            continue
        given[g] = True
        missing -= 1
        if linked:
            for other in range(order.size):
                if other != g and free[other]:
                    score[other] += links[g, other]
            sort_by_links(order, score)
            i = 1
    return need - missing


@kernel
def share_of(cores: int, need: int, total: int, double: bool) -> int:
    """GPUs of a socket with that many of the job's `total` cores. double: as Slurm 26.05 reckons for requests by node.

    Else in floats: all requests in 24.11, those by job in both.
    """
    if double:
        return int(cores * (need / total))
    return int(np.float32(cores) * (np.float32(need) / np.float32(total)))


@kernel
def pick_per_node(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, need: int, bound: bool,
    double: bool = False,
) -> Bools:  # fmt: skip
    """--gres=gpu:N and --gpus-per-node=N: by the share of the job's cores on each socket, then what is left.

    double: whether the shares are reckoned in doubles.
    """
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    total = cores.sum()
    missing = need
    for s in range(cores.size):
        if cores[s] > 0:
            share = min(missing, share_of(cores[s], need, total, double))
            missing -= take(s, share, free, socket, links, order, score, linked, given)
    missing -= take(ANY, missing, free, socket, links, order, score, linked, given)
    for s in range(cores.size):
        if cores[s] > 0:
            missing -= take(s, missing, free, socket, links, order, score, linked, given)
    for s in range(cores.size):
        if cores[s] == 0 and not bound:
            missing -= take(s, missing, free, socket, links, order, score, linked, given)
    return given


@kernel
def pick_per_task(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, tasks: Int32s, each: int, bound: bool
) -> Bools:
    """--gpus-per-task=N: beside the tasks. tasks: (S,) int32, the job's tasks on each socket. each: GPUs of a task."""
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    missing = tasks.sum() * each
    for s in range(tasks.size):
        if tasks[s] > 0:
            missing -= take(s, min(missing, tasks[s] * each), free, socket, links, order, score, linked, given)
    missing -= take(ANY, missing, free, socket, links, order, score, linked, given)
    for s in range(tasks.size):
        if not bound:
            missing -= take(s, missing, free, socket, links, order, score, linked, given)
    return given


@kernel
def pick_per_socket(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, each: int, bound: bool
) -> Bools:
    """--gpus-per-socket=N: that many on each socket that the job has cores on."""
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    missing = (cores > 0).sum() * each
    for s in range(cores.size):
        if cores[s] > 0:
            missing -= take(s, each, free, socket, links, order, score, linked, given)
    missing -= take(ANY, missing, free, socket, links, order, score, linked, given)
    for used in range(2):  # what is missing: from the job's sockets, then from the others
        for s in range(cores.size):
            if (cores[s] > 0) == (used == 0) and (used == 0 or not bound):
                missing -= take(s, missing, free, socket, links, order, score, linked, given)
    return given


# Over 30 lines: slurmctld's steps one after the other; each takes from what the one before left.
@kernel
def pick_per_job(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, need: int, bound: bool
) -> Bools:
    """--gpus=N on one node: all near the job's cores, less those that are linked least to the best linked one.

    Where those are too few, the rest comes from the other sockets, bound or not, the least linked first.
    """
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    most = free.size if linked and need > 1 else need
    target = 65534 if linked and need > 1 else need
    total = cores.sum()
    have = 0
    for s in range(cores.size):
        if cores[s] > 0 and have < most:
            share = min(target - have, share_of(cores[s], target, total, False))
            have += take(s, share, free, socket, links, order, score, False, given)
    have += take(ANY, max(0, most - have), free, socket, links, order, score, False, given)
    for s in range(cores.size):
        if cores[s] > 0 and have < most:
            have += take(s, most - have, free, socket, links, order, score, False, given)
    for s in range(cores.size):
        if cores[s] == 0 and have == 0 and not bound:
            have += take(s, 1, free, socket, links, order, score, False, given)
    if have > need:
        drop_least_linked(given, links, have - need)
    elif have < need:
        if linked:
            add_links(given, free, links, score)
            sort_by_links(order, score)
        for s in range(cores.size):
            have += take(s, need - have, free, socket, links, order, score, linked, given)
        take(ANY, need - have, free, socket, links, order, score, linked, given)
    return given


@kernel
def drop_least_linked(given: Bools, links: Int32s, excess: int) -> None:
    """Keep the first GPU of the best linked pair, and drop those with the fewest links to it, low index first."""
    best, most = -1, -1
    for i in range(given.size):
        for j in range(i + 1, given.size):
            if given[i] and given[j] and links[i, j] > most:
                best, most = i, links[i, j]
    for _ in range(excess if best >= 0 else 0):
        worst = -1
        for g in range(given.size):
            if g != best and given[g] and (worst < 0 or links[best, g] < links[best, worst]):
                worst = g
        given[worst] = False


@kernel
def add_links(given: Bools, free: Bools, links: Int32s, score: Int32s) -> None:
    """Give every free GPU the links it has with those given."""
    for g in range(given.size):
        for other in range(given.size):
            if given[g] and other != g and free[other]:
                score[other] += links[g, other]


# Slurm 21.08 to 23.11.

LEVELS = 4  # scores are scaled down to that many


@kernel
def take_scored(
    s: int, need: int, least: int, score: Int32s, free: Bools, socket: Int32s, links: Int32s, linked: bool,
    given: Bools, gained: Int32s,
) -> int:  # fmt: skip
    """Give up to `need` free GPUs of socket s whose score is at least so much, low index first; how many were given.

    gained: (G,) int32, changed: what the links to those given add to each free GPU.
    """
    missing = need
    for g in range(free.size):
        if missing > 0 and socket[g] == s and free[g] and not given[g] and score[g] >= least:
            given[g] = True
            missing -= 1
            for other in range(free.size):
                if linked and other != g and free[other]:
                    gained[other] += links[g, other]
    return need - missing


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
    missing = need
    for s in range(ANY, cores.size):
        if missing > 0 and (s == ANY or cores[s] > 0):
            missing -= take_scored(s, 1, 0, zero, free, socket, links, linked, given, score)
    best = scale(score)
    for far in range(2):
        for level in range(best, -1, -1):
            for s in range(ANY if far == 0 else 0, cores.size):
                if (far == 0) == (s == ANY or cores[s] > 0):
                    missing -= take_scored(s, missing, level, score, free, socket, links, linked, given, unused)
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


# Scores of a gres.conf over all states of a node, and bounds for any order of its lines.


# Over 30 lines: a third is signature and docstring; then one call for each of Slurm's four ways to pick.
@kernel
def picked(
    free: Int64s, need: Int64s, cores: Int32s, socket: Int32s, links: Int32s, linked: bool, order: Int32s,
    per_job: bool, old: bool, double: bool,
) -> Int64s:  # fmt: skip
    """(T,) int64: in each state the mask of GPUs that Slurm picks.

    free: (T,) int64 masks of free GPUs.
    need: (T,) int64.
    cores: (T, S) int32, the job's cores on each socket.
    socket: (G,) int32 and links: (G, G) int32 by GPU.
    order: (G,) int32, the GPU at each index of gres.conf.
    per_job: --gpus=N instead of --gpus-per-node=N.
    old: before 24.05.
    double: from 25.11 on, not per_job.
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
