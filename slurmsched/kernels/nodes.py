"""Which nodes slurmctld gives a job, and whether its limits let it start."""

from __future__ import annotations

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int64s


@kernel
def holds(free: Int64s, need: Int64s, n: int) -> bool:
    """Whether node n has free what one node of the job needs. free: (3, N) GPUs, CPUs, MiB. need: (3,)."""
    return bool(free[0, n] >= need[0] and free[1, n] >= need[1] and free[2, n] >= need[2])


@kernel
def pick_nodes(free: Int64s, usable: Bools, nodes: int, need: Int64s, last: Int64s, taken: Int64s) -> bool:
    """Whether the job fits; then taken[n] is 1 for nodes that give `need`, 2 for the one that gives `last`.

    free: (3, N) int64 GPUs, CPUs, MiB. usable: (N,) bool, nodes it may use. nodes: how many it asks for.
    need, last: (3,) int64, what each node and what the last one gives. taken: (N,) int64, overwritten.
    Runs of neighbouring nodes that fit are weighed by their free CPUs: the tightest one that is enough, else the
    largest. Of it the lowest nodes are taken, and as the only or last one that with the fewest free CPUs.
    Source: Slurm's select/cons_tres without a topology, of nodes of equal weight.
    """
    taken[:] = 0
    differs = last[0] != need[0] or last[1] != need[1] or last[2] != need[2]
    whole = nodes - 1 if differs else nodes
    left = whole
    while left > 0:
        first, end = best_run(free, usable, left, need, taken)
        if first < 0:
            return False
        if left == 1:
            first = tightest(free, usable, need, first, end, taken)
        for n in range(first, end):
            if left > 0 and usable[n] and taken[n] == 0 and holds(free, need, n):
                taken[n] = 1
                left -= 1
    if differs:
        first, end = best_run(free, usable, 1, last, taken)
        if first < 0:
            return False
        taken[tightest(free, usable, last, first, end, taken)] = 2
    return True


@kernel
def best_run(free: Int64s, usable: Bools, left: int, need: Int64s, taken: Int64s) -> tuple[int, int]:
    """The run [first, end) of neighbouring nodes to take nodes from; (-1, -1) if no node fits."""
    best, best_end, best_cpus, best_enough = -1, -1, 0, False
    n, width = 0, usable.size
    while n < width:
        begin, cpus, count = n, 0, 0
        while n < width and usable[n] and taken[n] == 0 and holds(free, need, n):
            cpus += free[1, n]
            count += 1
            n += 1
        enough = count >= left
        better = enough and (not best_enough or cpus < best_cpus)
        if count > 0 and (best < 0 or better or (not enough and cpus > best_cpus)):
            best, best_end, best_cpus, best_enough = begin, n, cpus, enough
        n += 1
    return best, best_end


@kernel
def tightest(free: Int64s, usable: Bools, need: Int64s, first: int, end: int, taken: Int64s) -> int:
    """The node of [first, end) that fits with the fewest free CPUs, the lowest of equals; -1 if none does."""
    best = -1
    for n in range(first, end):
        fits = usable[n] and taken[n] == 0 and holds(free, need, n)
        if fits and (best < 0 or free[1, n] < free[1, best]):
            best = n
    return best


@kernel
def take_nodes(free: Int64s, need: Int64s, last: Int64s, taken: Int64s) -> None:
    """Subtract from free, in place, what the nodes of `taken` give."""
    for n in range(taken.size):
        for r in range(3):
            if taken[n] == 1:
                free[r, n] -= need[r]
            elif taken[n] == 2:
                free[r, n] -= last[r]


@kernel
def within_limits(room: Floats, limit: Int64s, amount: Floats) -> bool:
    """Whether every limit of the job has room for it. room: (L,). limit: (K,) rows of room, -1 = none. amount: (K,)."""
    within = True
    for k in range(limit.size):
        within = within and (limit[k] < 0 or room[limit[k]] >= amount[k])
    return within


@kernel
def use_limits(room: Floats, limit: Int64s, amount: Floats) -> None:
    """Subtract from room, in place, what the job uses of its limits."""
    for k in range(limit.size):
        if limit[k] >= 0:
            room[limit[k]] -= amount[k]
