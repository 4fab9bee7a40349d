"""Which nodes slurmctld gives a job, and whether its limits let it start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int64s


class NodeRequest(NamedTuple):
    """What a job asks for.

    nodes: how many nodes.
    need: (R,) int64, what each of them gives [GPUs, CPUs, MiB, then CPUs of each partition that limits them].
    last: (R,) int64, what the last one gives of the same, nowhere more than `need`.
    least_loaded: it gets the nodes with the most free CPUs (LLN).
    """

    nodes: int
    need: Int64s
    last: Int64s
    least_loaded: bool


class NodeOrder(NamedTuple):
    """Which of the nodes that fit come first.

    shortest: a single node comes from the shortest run of neighbouring nodes that fit.
    weight: (N,) int64, nodes of the least weight come first.
    """

    shortest: bool
    weight: Int64s


@kernel
def holds(free: Int64s, need: Int64s, n: int) -> bool:
    """Whether node n has free what one node of the job needs. free: (R, N) GPUs, CPUs, MiB and more. need: (R,)."""
    held = free[0, n] >= need[0] and free[1, n] >= need[1] and free[2, n] >= need[2]
    for r in range(3, need.size):
        held = held and free[r, n] >= need[r]
    return bool(held)


@kernel
def unequal(one: Int64s, other: Int64s) -> bool:
    """Whether two needs differ. (R,), (R,)."""
    differs = False
    for r in range(one.size):
        differs = differs or one[r] != other[r]
    return differs


@kernel
def pick_nodes(free: Int64s, usable: Bools, request: NodeRequest, order: NodeOrder, taken: Int64s) -> bool:
    """Whether the job fits; then taken[n] is 1 for nodes that give `need`, 2 for the one that gives `last`.

    Nodes of less weight come first. Of equal weight a single node is the lowest that fits; if order.shortest, the
    lowest of the shortest run of neighbouring nodes that fit. A job under LLN gets the nodes with the most free CPUs.
    Several come from one run, from its lowest node on, then from further runs. The best run is found one by one:

    - A run that is long enough wins if it is the first such run or has fewer free CPUs than the best.
    - A run that is too short wins over a best run that is too short and has fewer free CPUs.

    free: (R, N) int64 GPUs, CPUs, MiB and more.
    usable: (N,) bool, nodes that the job may use.
    taken: (N,) int64, overwritten.
    Source: Slurm's select/cons_tres without a topology; single nodes as 26.05 does, and if order.shortest as 24.11.
    """
    taken[:] = 0
    nodes, need, last = request.nodes, request.need, request.last
    differs = unequal(last, need)
    missing = nodes - 1 if differs else nodes
    if not take_needed(fitting(free, usable, need), free[1], missing, request.least_loaded, order, taken):
        return False
    return not differs or take_last(fitting(free, usable, last), free[1], request.least_loaded, order.weight, taken)


@kernel
def pick_spared(
    free: Int64s, usable: Bools, spared: Bools, request: NodeRequest, order: NodeOrder, taken: Int64s
) -> None:
    """As pick_nodes of a job that fits, but of nodes of equal weight those of spared (N,) come last.

    Source: Slurm's select/cons_tres, _set_sched_weight.
    """
    pick_nodes(free, usable, request, NodeOrder(order.shortest, 2 * order.weight + spared), taken)


@kernel
def fitting(free: Int64s, usable: Bools, need: Int64s) -> Bools:
    """Which usable nodes hold `need`. (N,) bool."""
    fits = np.empty(usable.size, np.bool_)
    for n in range(usable.size):
        fits[n] = usable[n] and holds(free, need, n)
    return fits


@kernel
def take_needed(fits: Bools, cpus: Int64s, missing: int, least_loaded: bool, order: NodeOrder, taken: Int64s) -> bool:
    """Set taken (N,) to 1 for `missing` nodes that fit; whether there are that many, else it is not changed.

    fits: (N,) bool, nodes that hold what the job needs. cpus: (N,) int64, free CPUs.
    """
    alone, weight = missing == 1, order.weight
    if fits.sum() < missing:
        return False
    if least_loaded or (alone and not order.shortest):
        for _ in range(missing):
            taken[first_node(fits, cpus, weight, least_loaded, taken)] = 1
        return True
    runs = fitting_runs(fits, cpus, weight, taken, alone)
    while missing > 0:
        best = best_run(runs, missing, alone)
        missing = take_between(runs[best, 0], runs[best, 1], missing, taken)
        runs[best, 1] = runs[best, 0]
    return True


@kernel
def first_node(fits: Bools, cpus: Int64s, weight: Int64s, least_loaded: bool, taken: Int64s) -> int:
    """The node of the least weight that fits and is not taken, -1 if there is none; of those the one with the most free
    CPUs if least_loaded, then the lowest. fits, cpus: see take_needed."""
    best = -1
    for n in range(fits.size):
        if not fits[n] or taken[n] > 0:
            continue
        better = best < 0 or weight[n] < weight[best]
        if better or (least_loaded and weight[n] == weight[best] and cpus[n] > cpus[best]):
            best = n
    return best


@kernel
def take_between(n: int, end: int, missing: int, taken: Int64s) -> int:
    """Set taken (N,) to 1 for `missing` nodes of [n, end), from the lowest on. Returns how many are not found."""
    while n < end and missing > 0:
        taken[n] = 1
        missing -= 1
        n += 1
    return missing


@kernel
def take_last(fits: Bools, cpus: Int64s, least_loaded: bool, weight: Int64s, taken: Int64s) -> bool:
    """Set taken (N,) to 2 for the first node that holds `last` and is not taken; whether there is one.

    fits, cpus: see take_needed.
    """
    n = first_node(fits, cpus, weight, least_loaded, taken)
    if n >= 0:
        taken[n] = 2
    return n >= 0


@kernel
def fitting_runs(fits: Bools, cpus: Int64s, weight: Int64s, taken: Int64s, alone: bool) -> Int64s:
    """Runs of neighbouring nodes of one weight that fit and are not taken, ascending. (R, 4) int64.

    Begin, end, and free CPUs of the run; if alone, its nodes. Then its weight. fits, cpus: see take_needed.
    """
    width = fits.size
    runs, found, n = np.empty((width, 4), np.int64), 0, 0
    while n < width:
        begin, held = n, 0
        while n < width and fits[n] and taken[n] == 0 and weight[n] == weight[begin]:
            held += 1 if alone else cpus[n]
            n += 1
        if n == begin:
            n += 1
            continue
        runs[found, 0], runs[found, 1], runs[found, 2], runs[found, 3] = begin, n, held, weight[begin]
        found += 1
    return runs[:found]


@kernel
def best_run(runs: Int64s, missing: int, alone: bool) -> int:
    """The row of the run to take nodes from, -1 if none is left. runs: (R, 4), as fitting_runs gives them; one without
    nodes is used up. alone: for one node."""
    best, best_cpus, best_enough, least = -1, 0, False, lightest(runs)
    for row in range(runs.shape[0]):
        size, cpus = runs[row, 1] - runs[row, 0], runs[row, 2]
        if size == 0 or runs[row, 3] > least:
            continue
        enough = size >= missing
        better = enough and (not best_enough or cpus < best_cpus)
        if best < 0 or better or (not enough and cpus > best_cpus):
            best, best_cpus, best_enough = row, cpus, enough
        if alone and best_cpus == 1:
            break
    return best


@kernel
def lightest(runs: Int64s) -> int:
    """The least weight of runs that are not used up. runs: (R, 4), as fitting_runs gives them."""
    least = np.iinfo(np.int64).max
    for row in range(runs.shape[0]):
        if runs[row, 1] > runs[row, 0]:
            least = min(least, runs[row, 3])
    return least


@kernel
def first_ready(ready: Int64s, mask: Bools, gone: int, order: NodeOrder) -> int:
    """The node that pick_nodes gives a job of one node, of mask and ready once `gone` runs are; -1 of none."""
    best, least_weight = -1, np.iinfo(np.int64).max
    for n in range(mask.size):
        if mask[n] and ready[n] <= gone and order.weight[n] < least_weight:
            best, least_weight = n, order.weight[n]
    if not order.shortest:
        return best
    best, least, n = -1, mask.size + 1, 0
    while n < mask.size:
        begin = n
        while n < mask.size and mask[n] and ready[n] <= gone and order.weight[n] == least_weight:
            n += 1
        if begin < n < begin + least:
            best, least = begin, n - begin
        n += 1
    return best


@kernel
def take_nodes(free: Int64s, request: NodeRequest, taken: Int64s, job: int, given: Int64s, used: int) -> int:
    """Subtract from free, in place, what the nodes of `taken` give, and note them in given from row `used` on.

    given: (G, 3) int64 rows of job, node, and 1 for a node that gives `need`, 2 for the one that gives `last`. Returns
    how many rows are used then.
    """
    need, last = request.need, request.last
    for n in range(taken.size):
        if taken[n] == 0:
            continue
        for r in range(need.size):
            free[r, n] -= need[r] if taken[n] == 1 else last[r]
        given[used, 0], given[used, 1], given[used, 2] = job, n, taken[n]
        used += 1
    return used


@kernel
def within_limits(room: Floats, limit: Int64s, amount: Floats) -> bool:
    """Whether every limit of the job has room for it.

    room: (L,).
    limit: (K,) rows of room, below 0 = none that holds it back, L + row = one that is only looked at.
    amount: (K,).
    """
    within = True
    for k in range(limit.size):
        within = within and (limit[k] < 0 or room[limit[k] % room.size] >= amount[k])
    return within


@kernel
def use_limits(room: Floats, limit: Int64s, amount: Floats) -> None:
    """Subtract from room, in place, what the job uses of its limits.

    -1 = none, -2 - row: it only counts there, L + row: it takes nothing.
    """
    for k in range(limit.size):
        if limit[k] != -1 and limit[k] < room.size:
            room[limit[k] if limit[k] >= 0 else -2 - limit[k]] -= amount[k]
