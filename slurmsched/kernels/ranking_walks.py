"""Walk a ranking over GPUs that are free or may be taken back: who should hold GPUs, and where."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.kernels.free_gpus import givable, wanted_of
from slurmsched.kernels.gang_fit import bit_count, headroom, part_of, pick_gang, room_of
from slurmsched.kernels.gang_series import GangSeries
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
        if not pick_gang(free, handicap, gpus[j], nodes[j], size, shares):
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
        pick_gang(free, price, gpus[j], nodes[j], size, shares)  # it fits, whatever the price
        given[rank] = shares
        unclaimed -= shares
    return given


@kernel(plain_below=512)
def shares_given(given: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Rows of `given` that are not all zeros, how many entries each has, and their columns and values, row by row.

    given: (R, N) GPUs of each node that each job is given. Returns (S,), (S,), (E,), (E,).
    """
    rows, count, entries = np.empty(given.shape[0], np.int64), np.zeros(given.shape[0], np.int64), 0
    served = 0
    for row in range(given.shape[0]):
        for n in range(given.shape[1]):
            count[served] += 1 if given[row, n] != 0 else 0
        if count[served] > 0:
            rows[served] = row
            entries += count[served]
            served += 1
    node, gpus, place = np.empty(entries, np.int64), np.empty(entries, np.int64), 0
    for row in rows[:served]:
        for n in range(given.shape[1]):
            if given[row, n] != 0:
                node[place], gpus[place] = n, given[row, n]
                place += 1
    return rows[:served], count[:served], node, gpus


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


class PlacedGangs(NamedTuple):
    """Jobs that were given GPUs, one after another. The arrays are longer than what is written.

    rows, nodes: (R,) row of each job, and how many nodes it has.
    node, mask: (E,) rows of these nodes, and the GPUs on each.
    written: (2,) how many jobs and nodes there are.
    """

    rows: Int64s
    nodes: Int64s
    node: Int64s
    mask: Int64s
    written: Int64s


# Over 30 lines: half is signature and docstring.
@kernel(plain_below=512)
def next_fitting(
    rows: Int64s,
    begin: int,
    asks: GangSeries,
    held: HeldSets,
    free: FreeSets,
    placed: PlacedGangs,
    whole_parts: bool,
    beside: bool,
) -> int:
    """Place in `rows`, from `begin` on, of the first waiting job that may find room; rows.size if there is none.

    A running job on the way keeps what it holds if all of it is free: it takes that from `free` and is added to
    `placed`. Running jobs before all waiting ones keep it in any case.
    rows: (R,) of the jobs, most urgent first.
    asks: what each of these rows asks for. Only GPUs are counted, of all nodes.
    whole_parts: whether each part of a gang must find room on a node.
    beside: whether CPUs and memory of a running job must be free too.
    Source: slurmsched.
    """
    at_least = np.zeros(65, np.int64)  # nodes with so many free GPUs
    for n in range(free.gpus.size):
        for gpus in range(bit_count(free.gpus[n]) + 1):
            at_least[gpus] += 1
    waited = begin > 0
    for place in range(begin, rows.size):
        row = rows[place]
        if held.entries[row] == 0:
            waited = True
            if _may_fit(asks, place, at_least, whole_parts):
                return place
        elif not waited or _is_free(row, held, free, beside):
            _keep(row, held, free, placed, at_least)
    return rows.size


@kernel_part
def _may_fit(asks: GangSeries, i: int, at_least: Int64s, whole_parts: bool) -> bool:
    """Whether so many nodes have so many free GPUs."""
    if asks.gpus[i] == 0 or not whole_parts:
        return 0 < asks.gpus[i] <= at_least[1:].sum()
    part = min(part_of(asks.gpus[i], asks.nodes[i], asks.size[i]), asks.gpus[i])
    parts, rest = asks.gpus[i] // part, asks.gpus[i] % part
    return at_least[part] >= parts and (rest == 0 or at_least[rest] > parts)


@kernel_part
def _is_free(row: int, held: HeldSets, free: FreeSets, beside: bool) -> bool:
    """Whether all that a running job holds is free."""
    for k in range(held.first[row], held.first[row] + held.entries[row]):
        n = held.node[k]
        if held.mask[k] & ~free.gpus[n] != 0:
            return False
        if beside and (free.cpus[n] < held.cpus[k] - 1e-6 or free.memory_mib[n] < held.memory_mib[k] - 1e-6):
            return False
    return True


@kernel_part
def _keep(row: int, held: HeldSets, free: FreeSets, placed: PlacedGangs, at_least: Int64s) -> None:
    """A running job keeps what it holds."""
    jobs, nodes = placed.written[0], placed.written[1]
    placed.rows[jobs], placed.nodes[jobs] = row, held.entries[row]
    for k in range(held.first[row], held.first[row] + held.entries[row]):
        n = held.node[k]
        before = bit_count(free.gpus[n])
        free.gpus[n] &= ~held.mask[k]
        free.cpus[n] -= held.cpus[k]
        free.memory_mib[n] -= held.memory_mib[k]
        for gpus in range(bit_count(free.gpus[n]) + 1, before + 1):
            at_least[gpus] -= 1
        placed.node[nodes], placed.mask[nodes] = n, held.mask[k]
        nodes += 1
    placed.written[0], placed.written[1] = jobs + 1, nodes


@kernel
def without(free: FreeSets, held: HeldSets, rows: Int64s) -> tuple[Int64s, Floats, Floats]:
    """What is free less what these running jobs hold: GPUs, CPUs and memory of each node. (N,) each."""
    gpus, cpus, memory_mib = free.gpus.copy(), free.cpus.copy(), free.memory_mib.copy()
    for row in rows:
        for k in range(held.first[row], held.first[row] + held.entries[row]):
            gpus[held.node[k]] &= ~held.mask[k]
            cpus[held.node[k]] -= held.cpus[k]
            memory_mib[held.node[k]] -= held.memory_mib[k]
    return gpus, cpus, memory_mib


# Over 30 lines: half is signature and docstring.
@kernel
def fewest_displaced(
    free: FreeSets,
    held: HeldSets,
    later: Int64s,
    begin: int,
    usable: Bools,
    takes: tuple[int, int, int],
    beside: tuple[float, float],
    whole_parts: bool,
) -> tuple[int, Int64s, Int64s]:
    """How many of the least urgent running jobs must go at least so that a gang finds room, and what is free then.

    The number is later.size + 1 if it finds none. GPUs and room of each node, see gang_fit.headroom: (N,) each.
    free: with what the jobs of `later` hold.
    later: rows of running jobs, least urgent first.
    begin: how many of them go in any case.
    takes: nodes with a part of the gang, GPUs of such a part, and of one more part or 0.
    beside: CPUs and memory with each GPU.
    whole_parts: as next_fitting takes it.
    Source: slurmsched.
    """
    gpus, cpus, memory_mib = without(free, held, later[begin:])
    room = headroom(gpus, usable, cpus, memory_mib, beside[0], beside[1])
    parts, part, rest = takes
    large, small, total = (room >= part).sum(), (room >= rest).sum(), room.sum()
    gone = begin
    while total < parts * part + rest or (whole_parts and (large < parts or (rest > 0 and small <= parts))):
        if gone == later.size:
            return gone + 1, gpus, room
        for k in range(held.first[later[gone]], held.first[later[gone]] + held.entries[later[gone]]):
            n = held.node[k]
            gpus[n] |= held.mask[k] & free.gpus[n]
            cpus[n] += held.cpus[k]
            memory_mib[n] += held.memory_mib[k]
            had = room[n]
            if usable[n]:
                room[n] = room_of(bit_count(gpus[n]), cpus[n], memory_mib[n], beside[0], beside[1])
            large += int(room[n] >= part) - int(had >= part)
            small += int(room[n] >= rest) - int(had >= rest)
            total += room[n] - had
        gone += 1
    if gone > begin:  # anew: others may hold the same GPUs
        gpus, cpus, memory_mib = without(free, held, later[gone:])
        room = headroom(gpus, usable, cpus, memory_mib, beside[0], beside[1])
    return gone, gpus, room


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
