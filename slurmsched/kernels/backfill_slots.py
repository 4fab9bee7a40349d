"""Reservations of whole nodes over time: slots, each with the nodes that are open in it, as sets of bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.gang_fit import bit_count
from slurmsched.kernels.slurmctld_nodes import (
    NodeOrder,
    NodeRequest,
    first_ready,
    holds,
    take_last,
    take_needed,
    unequal,
)
from slurmsched.model.columns import Bools, Floats, Int64s

BITS = 62  # of each word, so that none is negative


class SlotTable(NamedTuple):
    """The table of reservations, with room for S slots; those in use are ascending and without gaps.

    begin, end: (S,) float64 of each slot [s].
    opened: (S, W) int64, the nodes open in it, as pack sets them.
    """

    begin: Floats
    end: Floats
    opened: Int64s


@kernel
def pack(mask: Bools | Int64s, words: Int64s) -> None:
    """Set words (W,) int64 to the bits of mask (N,), where it is not 0; W * BITS >= N."""
    for w in range(words.size):
        word, first, any_set = 0, w * BITS, False
        bits = min(BITS, mask.size - first)
        for bit in range(bits):
            any_set |= mask[first + bit] != 0
        for bit in range(bits if any_set else 0):
            word |= (1 if mask[first + bit] else 0) << bit
        words[w] = word


@kernel
def unpack(words: Int64s, mask: Bools) -> None:
    """Set mask (N,) bool to the bits of words."""
    for w in range(words.size):
        word, first = words[w], w * BITS
        for bit in range(min(BITS, mask.size - first)):
            mask[first + bit] = word >> bit & 1 == 1


@kernel
def nodes_in(words: Int64s) -> int:
    """How many nodes a set of bits has."""
    count = 0
    for w in range(words.size):
        count += bit_count(words[w])
    return count


class ReadyBy(NamedTuple):
    """Nodes that hold what one job needs by some time, while the job is tried at later and later times.

    ready, by_ready: (N,) int64, and able: as ready_nodes sets them.
    end: (R,) float64 expected ends of the running jobs [s], ascending.
    nodes: how many nodes the job asks for.
    words: (W,) int64, the nodes by the last time asked for, as pack sets them.
    added: (1,) int64, how many of by_ready are in words.
    """

    ready: Int64s
    by_ready: Int64s
    able: int
    end: Floats
    nodes: int
    words: Int64s
    added: Int64s


# Over 30 lines: a third is signature and docstring; slots are walked through once for all that is asked of them.
@kernel
def next_try(
    table: SlotTable,
    slots: int,
    from_s: float,
    limit_s: float,
    window_end: float,
    usable: Int64s,
    still_open: Int64s,
    ready: ReadyBy,
    tried: bool,
    again: bool,
) -> tuple[float, float, bool, bool]:
    """The first try, from from_s on, at which a job may fit on the usable nodes that no reservation holds then.

    Returns the time of the try, when to try again, -1 = never, and whether it may fit. Then whether it found enough
    nodes unreserved at this try or one before. If it may fit at none these are of the last try.

    slots: how many of the table are in use.
    limit_s: how long the nodes must stay unreserved [s].
    usable, still_open: (W,) int64. still_open is set to the nodes.
    tried: whether it found enough nodes unreserved before.
    again: whether there are further tries.
    To try again is worth it at the end of the first slot after which nodes are free that are not before it.
    """
    begin, end, opened, soon, nodes, first = table.begin, table.end, table.opened, ready.words, ready.nodes, 0
    gone, by_ready, able, run_end, added = ready.ready, ready.by_ready, ready.able, ready.end, ready.added
    while True:
        while first < slots and end[first] <= from_s:
            first += 1
        later, until, may_fit = -1.0, from_s + limit_s, True
        still_open[:] = usable
        for k in range(first, slots):
            known = later >= 0
            if not known and k + 1 < slots:
                gained = 0  # usable nodes that are open after, and not both still open and open now
                for w in range(still_open.size):
                    gained |= usable[w] & opened[k + 1, w] & ~(still_open[w] & opened[k, w])
                later = end[k] if gained else later
            if begin[k] > until:
                if later < 0 and k + 2 < slots:
                    later = end[k + 1]
                break
            for w in range(still_open.size):
                still_open[w] &= opened[k, w]
            if later >= 0:
                if not known:
                    added[0] = add_ready(gone, by_ready, able, run_end, soon, added[0], later)
                may_fit = not tried or as_many(still_open, soon, nodes)
                if not may_fit:
                    break
        if may_fit and later >= 0:
            added[0] = add_ready(gone, by_ready, able, run_end, soon, added[0], later)
            may_fit = as_many(still_open, soon, nodes)
        enough = (may_fit or not tried) and nodes_in(still_open) >= nodes
        tried = tried or enough
        if (may_fit and enough) or later < 0 or later > window_end or not again:
            return from_s, later, may_fit and enough, tried
        from_s = later


@kernel
def last_gain(table: SlotTable, slots: int, by_s: float, usable: Int64s, now: float) -> float:
    """The end, by_s at the latest, of the last slot after which usable nodes are open that are not open in it; now if
    there is none [s]. usable: (W,).

    Every job on these nodes is tried at each such time, if it does not start before.
    """
    end, opened = table.end, table.opened
    for k in range(slots - 2, -1, -1):
        if end[k] <= by_s and gains(opened, k, usable):
            return float(end[k])
    return now


@kernel
def gains(opened: Int64s, k: int, usable: Int64s) -> bool:
    """Whether usable (W,) nodes are open after slot k of a SlotTable that are not open in it."""
    gained = 0
    for w in range(usable.size):
        gained |= usable[w] & opened[k + 1, w] & ~opened[k, w]
    return gained != 0


@kernel
def enough_before(
    table: SlotTable, slots: int, before_s: float, usable: Int64s, nodes: int, limit_s: float, still_open: Int64s
) -> bool:
    """Whether a job tried before that time ever finds so many usable nodes unreserved for its time.

    usable: (W,). still_open: (W,), overwritten.
    """
    begin, opened = table.begin, table.opened
    for first in range(slots):
        if begin[first] >= before_s:
            break
        if first > 0 and not gains(opened, first - 1, usable):
            continue
        still_open[:] = usable
        for k in range(first, slots):
            if begin[k] > begin[first] + limit_s:
                break
            for w in range(usable.size):
                still_open[w] &= opened[k, w]
        if nodes_in(still_open) >= nodes:
            return True
    return False


@kernel
def may_start(
    table: SlotTable, slots: int, until: float, usable: Int64s, idle: Int64s, nodes: int, still_open: Int64s
) -> bool:
    """Whether that many idle nodes are not reserved until then: without them a job cannot start now.

    The first slot begins now. usable, idle: (W,) int64. still_open: (W,), overwritten. Later reservations and starts
    never make it true again.
    """
    begin, opened = table.begin, table.opened
    still_open[:] = usable & idle
    for k in range(slots):
        if begin[k] > until:
            break
        some = 0
        for w in range(still_open.size):
            still_open[w] &= opened[k, w]
            some |= still_open[w]
        if some == 0:
            break
    return as_many(still_open, idle, nodes)


@kernel
def add_ready(
    ready: Int64s, by_ready: Int64s, able: int, end: Floats, words: Int64s, place: int, by_s: float
) -> int:  # fmt: skip
    """Add to words the nodes that hold what the job needs once the running jobs that end by then are gone.

    place: how many of by_ready are in words. Returns how many are then. The others: see ReadyBy. Plain arrays, since
    numba counts a reference to each array that a call takes out of a tuple.
    """
    while place < able:
        n = by_ready[place]
        if ready[n] > 0 and end[ready[n] - 1] > by_s:
            break
        words[n // BITS] |= 1 << (n % BITS)
        place += 1
    return place


@kernel
def as_many(one: Int64s, other: Int64s, nodes: int) -> bool:
    """Whether as many nodes are in both sets of bits. one, other: (W,)."""
    if nodes == 1:
        found = 0
        for w in range(one.size):
            found |= one[w] & other[w]
        return found != 0
    count = 0
    for w in range(one.size):
        count += bit_count(one[w] & other[w])
    return count >= nodes


@kernel
def overlaps(table: SlotTable, slots: int, slot: float, slot_end: float, nodes: Int64s) -> bool:
    """Whether a reservation holds one of the nodes (W,) in [slot, slot_end)."""
    begin, end, opened = table.begin, table.end, table.opened
    for k in range(slots):
        if begin[k] >= slot_end:
            break
        if end[k] > slot:
            for w in range(nodes.size):
                if nodes[w] & ~opened[k, w]:
                    return True
    return False


@kernel
def reserve(table: SlotTable, slots: int, slot: float, slot_end: float, nodes: Int64s) -> int:
    """Close the nodes (W,) in [slot, slot_end); returns the number of slots, split where the reservation begins and
    ends."""
    begin, end, opened = table.begin, table.end, table.opened
    for edge in (slot, slot_end):
        for k in range(slots):
            if begin[k] < edge < end[k]:
                for row in range(slots, k, -1):
                    copy_slot(begin, end, opened, row - 1, row)
                begin[k + 1], end[k] = edge, edge
                slots += 1
                break
    for k in range(slots):
        if begin[k] >= slot and end[k] <= slot_end:
            for w in range(nodes.size):
                opened[k, w] &= ~nodes[w]
    return slots


@kernel
def copy_slot(begin: Floats, end: Floats, opened: Int64s, k: int, to: int) -> None:
    """Write slot k of a SlotTable to row `to`."""
    begin[to], end[to] = begin[k], end[k]
    for w in range(opened.shape[1]):
        opened[to, w] = opened[k, w]


@kernel
def merged(table: SlotTable, slots: int, slot: float, slot_end: float) -> int:
    """Join the first two neighbours with the same nodes, from the last slot that ends before the reservation [slot,
    slot_end) to the one after it; returns the number of slots. Source: Slurm's sched/backfill.
    """
    begin, end, opened = table.begin, table.end, table.opened
    k = 0
    while k + 1 < slots and end[k + 1] < slot:
        k += 1
    while k + 1 < slots and end[k] <= slot_end:
        differs = 0
        for w in range(opened.shape[1]):
            differs |= opened[k, w] ^ opened[k + 1, w]
        if differs == 0:
            end[k] = end[k + 1]
            for row in range(k + 1, slots - 1):
                copy_slot(begin, end, opened, row + 1, row)
            return slots - 1
        k += 1
    return slots


# When nodes will hold what a job needs.

FIRST_WINDOW_S = 30.0  # within which running jobs are taken away together; doubles at each step
MOST_REMOVED = 200  # running jobs taken away between two tests


class Runs(NamedTuple):
    """Running jobs by expected end, with room for R of them; `filled` says how many there are.

    end: (R,) float64 expected ends [s], ascending; infinity = never.
    order: (R,) int64, which run ends then: its row of first and node_count.
    first, node_count: (R,) int64; a run holds the rows first .. first + node_count of node and held.
    node: (H,) int64 rows of nodes.
    held: (H, R) int64, what the run holds there [GPUs, CPUs, MiB and more].
    """

    end: Floats
    order: Int64s
    first: Int64s
    node_count: Int64s
    node: Int64s
    held: Int64s


@kernel
def ready_nodes(free: Int64s, need: Int64s, runs: Runs, filled: int, ready: Int64s, by_ready: Int64s) -> int:
    """How many runs must be gone, in order of their ends, before each node holds `need`.

    free: (R, N). need: (R,). ready: (N,) is set, 0 = holds it now, filled + 1 = never. by_ready: (N,) is set to the
    nodes that ever do, soonest first. Returns how many do.
    """
    order, run_first, node_count, held_node, held = runs.order, runs.first, runs.node_count, runs.node, runs.held
    work, able = free.copy(), 0
    for n in range(ready.size):
        ready[n] = filled + 1
        if holds(free, need, n):
            ready[n], by_ready[able] = 0, n
            able += 1
    for i in range(filled):
        first = run_first[order[i]]
        for k in range(first, first + node_count[order[i]]):
            n = held_node[k]
            if ready[n] <= filled:
                continue
            for r in range(need.size):
                work[r, n] += held[k, r]
            if holds(work, need, n):
                ready[n], by_ready[able] = i + 1, n
                able += 1
    return able


@kernel
def runs_to_go(ready: Int64s, by_ready: Int64s, able: int, mask: Bools, nodes: int) -> int:
    """How many runs must be gone before that many nodes of mask (N,) are ready; -1 if that never is."""
    if nodes <= 0:
        return 0
    for k in range(able):
        if mask[by_ready[k]]:
            nodes -= 1
            if nodes == 0:
                return int(ready[by_ready[k]])
    return -1


# Over 30 lines: one loop of slurmctld's; its cases share the window, its edge and the place in the list.
@kernel
def tested_after(
    to_go: int, epoch: float, runs: Runs, filled: int, mask: Bools, begun: int, bound: float
) -> tuple[int, float]:
    """How many runs are gone at slurmctld's first test that finds `to_go` of them gone, and the end of the last one.

    It takes those that hold nodes of mask away in windows of time, each twice as long as the one before, and tests
    after each; after more than MOST_REMOVED it goes on without a test. (0, infinite) if it never tests so late.
    epoch: Unix time of 0 [s].
    begun: runs that are gone before.
    bound: it takes none away that ends later.
    """
    order_end, order, first, node_count, node = runs.end, runs.order, runs.first, runs.node_count, runs.node
    window, edge, i = FIRST_WINDOW_S, -1.0, begun
    while i < filled and order_end[i] <= bound:
        gone, latest, following = 0, -1.0, np.inf
        while i < filled and order_end[i] <= bound:
            row, holds_one = first[order[i]], False
            for k in range(row, row + node_count[order[i]]):
                holds_one = holds_one or mask[node[k]]
            if not holds_one:
                i += 1
                continue
            if edge < 0:
                edge = order_end[i] + (window - (order_end[i] + epoch) % window) if order_end[i] < np.inf else np.inf
            latest = order_end[i]
            gone += 1
            i += 1
            following = order_end[i] if i < filled else np.inf
            if following > edge + window or gone > MOST_REMOVED:
                break
        if latest < 0:
            break
        if gone > MOST_REMOVED:
            continue
        if i >= to_go:
            return i, latest
        window *= 2.0
        while following > edge + window and window < np.inf:
            window *= 2.0
    return 0, np.inf


@kernel
def last_end(runs: Runs, chosen: Int64s, begun: int, gone: int, otherwise: float) -> float:
    """The end of the last run that holds a node of chosen (N,); `otherwise` if none does.

    Only the runs from begun to gone count, in order of their ends.
    """
    order, first, node_count, node = runs.order, runs.first, runs.node_count, runs.node
    for i in range(gone - 1, begun - 1, -1):
        for k in range(first[order[i]], first[order[i]] + node_count[order[i]]):
            if chosen[node[k]]:
                return float(runs.end[i])
    return otherwise


@kernel
def pick_later(
    gone: int,
    free: Int64s,
    runs: Runs,
    ready: Int64s,
    last_ready: Int64s,
    mask: Bools,
    request: NodeRequest,
    order: NodeOrder,
    chosen: Int64s,
) -> None:
    """The nodes of a job that fits when `gone` runs are gone, in chosen (N,) as pick_nodes sets it.

    ready, last_ready: (N,) as ready_nodes sets them, of `need` and of `last`.
    """
    chosen[:] = 0
    nodes, differs = request.nodes, unequal(request.need, request.last)
    if nodes == 1 and not request.least_loaded:
        chosen[first_ready(last_ready, mask, gone, order)] = 2 if differs else 1
        return
    cpus, run_order, first, node_count, node, held = (
        free[1].copy(), runs.order, runs.first, runs.node_count, runs.node, runs.held,
    )  # fmt: skip
    for i in range(gone):
        for k in range(first[run_order[i]], first[run_order[i]] + node_count[run_order[i]]):
            cpus[node[k]] += held[k, 1]
    missing = nodes - 1 if differs else nodes
    take_needed(mask & (ready <= gone), cpus, missing, request.least_loaded, order, chosen)
    if differs:
        take_last(mask & (last_ready <= gone), cpus, request.least_loaded, order.weight, chosen)
