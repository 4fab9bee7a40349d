"""Walk a ranking over GPUs that are free or may be taken back: who should hold GPUs, and where."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.free_gpus import givable, wanted_of
from slurmsched.kernels.gang_fit import pick_gang
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s


# Over 30 lines: one walk over shared arrays of nodes; a part of it would take most of them as parameters.
@kernel(plain_below=512)
def walk(
    order: Int64s,
    gpus: Int64s,
    nodes: Int64s,
    first: Int64s,
    count: Int64s,
    held_node: Int64s,
    held_gpus: Int64s,
    pool: Int64s,
    usable: Bools,
    capacity: Int64s,
    handicap: Floats,
) -> Int64s:
    """GPUs of each node that each job of the order should hold. (R, N) int64; a row of zeros: none.

    order: (R,) rows of the tables below, most urgent first.
    gpus, nodes: (J,) asked.
    first, count: (J,) a running job holds held_gpus[k] GPUs on held_node[k], k in first[j] .. first[j]+count[j]. It
        stays there or goes. count 0 is a pending job.
    pool: (J,) row of usable, a (P, N) bool table of the nodes a job may go to.
    capacity: (N,) GPUs there are to give.
    handicap: (N,) float64, 0 to below 1: which of such nodes come first, the lowest; among equals the one left fullest.
    A pending job takes idle GPUs first, then those of the least urgent running jobs.
    Source: slurmsched.
    """
    ranks, width = order.size, capacity.size
    size = capacity.max() if width > 0 else 0
    given = np.zeros((ranks, width), np.int64)
    unclaimed = capacity.copy()
    undecided = np.zeros(width, np.int64)  # held by running jobs that the walk has not come to
    for rank in range(ranks):
        for k in range(first[order[rank]], first[order[rank]] + count[order[rank]]):
            undecided[held_node[k]] += held_gpus[k]
    free, price, shares = np.empty(width, np.int64), np.empty(width, np.float64), np.empty(width, np.int64)
    for rank in range(ranks):
        j = order[rank]
        begin, end = first[j], first[j] + count[j]
        if end > begin:
            fits = True
            for k in range(begin, end):
                undecided[held_node[k]] -= held_gpus[k]
                fits = fits and unclaimed[held_node[k]] >= held_gpus[k]
            for k in range(begin, end if fits else begin):
                given[rank, held_node[k]] += held_gpus[k]
                unclaimed[held_node[k]] -= held_gpus[k]
            continue
        total = 0
        for n in range(width):
            free[n] = unclaimed[n] if usable[pool[j], n] else 0
            total += free[n]
        if gpus[j] <= 0 or total < gpus[j]:
            continue
        part = min(size, -(-gpus[j] // max(nodes[j], -(-gpus[j] // size))))
        price[:] = handicap
        for n in range(width):
            need = min(part, free[n])
            gained = unclaimed[n] - undecided[n]
            # From the least urgent up: the last one that must go is the price.
            later = ranks - 1
            while gained < need and later > rank:
                for k in range(first[order[later]], first[order[later]] + count[order[later]]):
                    if held_node[k] == n:
                        gained += held_gpus[k]
                        price[n] = ranks - later + handicap[n]
                later -= 1
        if pick_gang(free, price, gpus[j], nodes[j], size, shares):
            given[rank] = shares
            unclaimed -= shares
    return given


# Walks over GPU sets.


class HeldSets(NamedTuple):
    """What running jobs hold, one entry a job and node.

    first, entries: (J,) where those of each job begin, and how many they are.
    node, mask: (A,) row of the node and GPUs.
    cpus, memory_mib: (A,) beside them.
    """

    first: Int64s
    entries: Int64s
    node: Int64s
    mask: Int64s
    cpus: Floats
    memory_mib: Floats


class FreeSets(NamedTuple):
    """What is free of each node: GPUs as masks, CPUs and memory. (N,) each."""

    gpus: Int64s
    cpus: Floats
    memory_mib: Floats


@kernel(plain_below=512)
def keep_sets(rows: Int64s, held: HeldSets, free: FreeSets, beside: bool) -> Bools:
    """Which running jobs keep what they hold, because all of it is free. (R,) bool. They take it from `free`.

    rows: (R,) of the jobs, most urgent first.
    beside: whether CPUs and memory must be free too.
    Source: slurmsched.
    """
    kept = np.ones(rows.size, np.bool_)
    for rank in range(rows.size):
        begin = held.first[rows[rank]]
        end = begin + held.entries[rows[rank]]
        for k in range(begin, end):
            n = held.node[k]
            whole = held.mask[k] & ~free.gpus[n] == 0
            short = free.cpus[n] < held.cpus[k] - 1e-6 or free.memory_mib[n] < held.memory_mib[k] - 1e-6
            kept[rank] = kept[rank] and whole and not (beside and short)
        for k in range(begin, end if kept[rank] else begin):
            n = held.node[k]
            free.gpus[n] &= ~held.mask[k]
            free.cpus[n] -= held.cpus[k]
            free.memory_mib[n] -= held.memory_mib[k]
    return kept


# Walks that only count GPUs.


@kernel(plain_below=512)
def fill_in_order(order: Int64s, gpus: Int64s, capacity: int) -> Int64s:
    """Rows that get GPUs when each gang that fits takes what it asks for, in order. (S,) int64, in that order.

    order: (R,) rows, most urgent first. gpus: (J,) asked or held by row; a row that asks for none gets none.
    capacity: GPUs to give. Source: slurmsched; first fit.
    """
    served = np.empty(order.size, np.int64)
    free, count = capacity, 0
    for row in order:
        if 0 < gpus[row] <= free:
            served[count] = row
            count += 1
            free -= gpus[row]
            if free == 0:
                break
    return served[:count]


@kernel(plain_below=512)
def place_by_count(
    order: Int64s,
    standing: Int64s,
    jobs: tuple[Int64s, Int32s],
    held: tuple[Int64s, Int64s, Int32s],
    nodes: tuple[Bools, Int32s, Int32s],
    placed: Int64s,
) -> int:
    """How many jobs get GPUs when each gang that fits takes what it asks for, in order.

    order: (R,) rows of jobs, most urgent first.
    standing: (N,) of standing_of.
    jobs: ids and GPUs asked for, (N,) each.
    held: (A,) each, job id, row of the node, GPUs.
    nodes: (M,) each, closed, GPUs, GPUs used.
    placed: (5, R) int64, overwritten, the columns of Assignments by served job, all on node row 0.
    Source: slurmsched; first fit.
    """
    wanted = wanted_of(jobs[0], standing, jobs[1], held[0], held[2])
    served = fill_in_order(order, wanted, givable(nodes[0], nodes[1], nodes[2], held[1], held[2]).sum())
    for i in range(served.size):
        placed[0, i], placed[1, i], placed[2, i], placed[3, i] = served[i], i, 1, 0
        placed[4, i] = wanted[served[i]]
    return served.size


# Over 30 lines: the three steps of EASY share the count of free GPUs and the row of the head.
@kernel(plain_below=512)
def backfill_by_count(gpus: Int64s, ahead_s: Floats, running: int, capacity: int) -> Bools:
    """Which gangs get GPUs when none may delay the first that must wait: EASY. (R,) bool.

    gpus: (R,) int64, the first `running` rows hold theirs already, the others wait, most urgent first.
    ahead_s: (R,) float64, how much longer each will run at most, counted from its start or from now [s].
    capacity: GPUs of the pile. Source: Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
    """
    served = np.zeros(gpus.size, np.bool_)
    free = capacity
    for i in range(running):
        served[i] = True
        free -= gpus[i]
    head = running
    while head < gpus.size and gpus[head] <= free:
        served[head] = gpus[head] > 0
        free -= gpus[head]
        head += 1
    if head >= gpus.size or free <= 0:
        return served
    shadow_s, extra = np.inf, free
    for place in np.argsort(ahead_s[:head]):
        if not served[place]:
            continue
        if extra >= gpus[head] and ahead_s[place] > shadow_s:
            break
        extra += gpus[place]
        if extra >= gpus[head]:
            shadow_s = ahead_s[place]
    extra -= gpus[head]
    for i in range(head + 1, gpus.size):
        if gpus[i] <= 0 or gpus[i] > free:
            continue
        if ahead_s[i] > shadow_s:
            if gpus[i] > extra:
                continue
            extra -= gpus[i]
        served[i] = True
        free -= gpus[i]
        if free <= 0:
            break
    return served


# Backfill.


# Over 30 lines: one search over the table of slots; each job that is placed changes the table for the next.
@kernel
def backfill(
    times: Floats,
    free: Int64s,
    gpus: Int64s,
    nodes: Int64s,
    limit_s: Floats,
    price: Floats,
    size: int,
    most: int,
    whole: bool,
) -> Int64s:
    """Which jobs start at times[0], on which nodes. (J, N) int64: GPUs of each node given to each job, 0 = waits.

    times: (K,) float64 ascending [s].
    free: (K, N) int64, free[k] holds from times[k] to times[k+1], the last for good.
    gpus, nodes: (J,) int64 and limit_s: (J,) float64 of the jobs in priority order.
    price: (N,) float64, as gang.pick_gang takes it.
    size: most GPUs of one node.
    most: reservations made for jobs that must wait: 1 is EASY, J conservative.
    whole: a reservation holds whole nodes, as slurmctld's do.
    Jobs that do not fit before the last time get no reservation.
    Source: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001; Slurm's sched/backfill for `whole`.
    """
    jobs, width = gpus.size, free.shape[1]
    started = np.zeros((jobs, width), np.int64)
    room = times.size + jobs  # a job adds one time at most: its end
    at, have, slots = np.empty(room, np.float64), np.empty((room, width), np.int64), times.size
    at[:slots], have[:slots] = times, free
    shares, lowest = np.zeros(width, np.int64), np.empty(width, np.int64)
    made = 0
    for j in range(jobs):
        last = 1 if made >= most else slots
        k = 0
        while k < last:
            end, fits, skip = at[k] + limit_s[j], True, k + 1
            lowest[:] = have[k]
            s = k
            while s < slots and (s == k or at[s] < end):
                for n in range(width):
                    lowest[n] = min(lowest[n], have[s, n])
                if not pick_gang(lowest, price, gpus[j], nodes[j], size, shares):
                    # Where it does not fit by that slot alone, no earlier start can span the slot.
                    alone = s > k and not pick_gang(have[s], price, gpus[j], nodes[j], size, shares)
                    skip, fits = (s + 1 if alone else k + 1), False
                    break
                s += 1
            if fits:
                break
            k = skip
        if k >= last:
            continue
        pick_gang(lowest, price, gpus[j], nodes[j], size, shares)
        end = at[k] + limit_s[j]
        if (s < slots and at[s] > end) or (s == slots and end < np.inf):
            for row in range(slots, s, -1):
                at[row], have[row] = at[row - 1], have[row - 1]
            at[s], have[s] = end, have[s - 1]
            slots += 1
        for n in range(width):
            if shares[n] == 0:
                continue
            for row in range(k, s):
                have[row, n] = 0 if whole and k > 0 else have[row, n] - shares[n]
        if k == 0:
            started[j] = shares
        else:
            made += 1
    return started
