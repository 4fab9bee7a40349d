"""Which nodes slurmctld gives a job, and whether its limits let it start."""

from __future__ import annotations

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int64s


@kernel
def holds(free: Int64s, need: Int64s, n: int) -> bool:
    """Whether node n has free what one node of the job needs. free: (3, N) GPUs, CPUs, MiB. need: (3,)."""
    return bool(free[0, n] >= need[0] and free[1, n] >= need[1] and free[2, n] >= need[2])


@kernel
def pick_nodes(
    free: Int64s, usable: Bools, nodes: int, need: Int64s, last: Int64s, shortest: bool, taken: Int64s
) -> bool:
    """Whether the job fits; then taken[n] is 1 for nodes that give `need`, 2 for the one that gives `last`.

    free: (3, N) int64 GPUs, CPUs, MiB. usable: (N,) bool, nodes it may use. nodes: how many it asks for.
    need, last: (3,) int64, what each node and what the last one gives. taken: (N,) int64, overwritten.
    A single node is the lowest that fits; if shortest, the lowest of the shortest run of neighbouring nodes that fit.
    Several come from one run, from its lowest on, then from further runs. Run by run, the best so far gives way to one
    that is long enough and has fewer free CPUs (or is the first long enough), and to one too short that has more.
    Source: Slurm's select/cons_tres without a topology, nodes of equal weight; single nodes as 26.05 does, and if
    shortest as 24.11.
    """
    taken[:] = 0
    differs = last[0] != need[0] or last[1] != need[1] or last[2] != need[2]
    left = nodes - 1 if differs else nodes
    alone = left == 1
    if not alone and not enough_nodes(free, usable, left, need):
        return False
    if take_runs(free, usable, left, need, shortest, alone, taken) > 0:
        return False
    return not differs or take_last(free, usable, last, taken)


@kernel
def pick_spared(
    free: Int64s,
    usable: Bools,
    spared: Bools,
    nodes: int,
    need: Int64s,
    last: Int64s,
    shortest: bool,
    taken: Int64s,
) -> None:
    """As pick_nodes of a job that fits, but nodes of spared (N,) come only where the others are not enough."""
    taken[:] = 0
    differs = last[0] != need[0] or last[1] != need[1] or last[2] != need[2]
    left = nodes - 1 if differs else nodes
    alone = left == 1
    left = take_runs(free, usable & ~spared, left, need, shortest, alone, taken)
    take_runs(free, usable & spared, left, need, shortest, alone, taken)
    if differs and not take_last(free, usable & ~spared, last, taken):
        take_last(free, usable & spared, last, taken)


@kernel
def take_runs(free: Int64s, usable: Bools, left: int, need: Int64s, shortest: bool, alone: bool, taken: Int64s) -> int:
    """Set taken (N,) to 1 for usable nodes that hold `need`, run by run, until `left` are; returns how many are not."""
    while left > 0:
        n, end = 0, usable.size
        if shortest or not alone:
            n, end = best_run(free, usable, left, need, taken, alone)
        before = left
        while n < end and left > 0:
            if usable[n] and taken[n] == 0 and holds(free, need, n):
                taken[n] = 1
                left -= 1
            n += 1
        if left == before:
            break
    return left


@kernel
def take_last(free: Int64s, usable: Bools, last: Int64s, taken: Int64s) -> bool:
    """Set taken (N,) to 2 for the lowest usable node that holds `last` and is not taken; whether there is one."""
    for n in range(usable.size):
        if usable[n] and taken[n] == 0 and holds(free, last, n):
            taken[n] = 2
            return True
    return False


@kernel
def enough_nodes(free: Int64s, usable: Bools, nodes: int, need: Int64s) -> bool:
    """Whether as many usable nodes hold what the job needs."""
    for n in range(usable.size):
        if usable[n] and holds(free, need, n):
            nodes -= 1
            if nodes <= 0:
                return True
    return nodes <= 0


@kernel
def best_run(free: Int64s, usable: Bools, left: int, need: Int64s, taken: Int64s, alone: bool) -> tuple[int, int]:
    """The run [first, end) of neighbouring nodes to take nodes from; (0, 0) if no node fits. alone: for one node."""
    best, best_end, best_cpus, best_enough = 0, 0, 0, False
    n, width = 0, usable.size
    while n < width:
        begin, cpus = n, 0
        while n < width and usable[n] and taken[n] == 0 and holds(free, need, n):
            cpus += 1 if alone else free[1, n]
            n += 1
        enough = n - begin >= left
        better = enough and (not best_enough or cpus < best_cpus)
        if n > begin and (best == best_end or better or (not enough and cpus > best_cpus)):
            best, best_end, best_cpus, best_enough = begin, n, cpus, enough
        if alone and best_cpus == 1:
            break
        n += 1
    return best, best_end


@kernel
def shortest_run(ready: Int64s, mask: Bools, gone: int) -> int:
    """Lowest node of the shortest run of neighbouring nodes of mask that are ready once `gone` runs are; -1 of none."""
    best, least, n = -1, mask.size + 1, 0
    while n < mask.size:
        begin = n
        while n < mask.size and mask[n] and ready[n] <= gone:
            n += 1
        if begin < n < begin + least:
            best, least = begin, n - begin
        n += 1
    return best


@kernel
def take_nodes(free: Int64s, need: Int64s, last: Int64s, taken: Int64s, job: int, given: Int64s, used: int) -> int:
    """Subtract from free, in place, what the nodes of `taken` give, and note them in given from row `used` on.

    given: (G, 3) int64 rows of job, node, and 1 for a node that gives `need`, 2 for the one that gives `last`. Returns
    how many rows are used then.
    """
    for n in range(taken.size):
        if taken[n] == 0:
            continue
        for r in range(3):
            free[r, n] -= need[r] if taken[n] == 1 else last[r]
        given[used, 0], given[used, 1], given[used, 2] = job, n, taken[n]
        used += 1
    return used


@kernel
def give_nodes(free: Int64s, need: Int64s, last: Int64s, given: Int64s, mask: Bools) -> bool:
    """Whether one of the nodes given (K, 3) is in mask (N,) bool; then what they give is added to free, in place."""
    touches = False
    for k in range(given.shape[0]):
        touches = touches or mask[given[k, 1]]
    if touches:
        for k in range(given.shape[0]):
            for r in range(3):
                free[r, given[k, 1]] += need[r] if given[k, 2] == 1 else last[r]
    return touches


@kernel
def within_limits(room: Floats, limit: Int64s, amount: Floats) -> bool:
    """Whether every limit of the job has room for it. room: (L,). limit: (K,) rows of room, below 0 = none that holds
    it back, L + row = one that is only looked at. amount: (K,).
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
