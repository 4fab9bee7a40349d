"""Reservations of whole nodes over time: slots, each with the nodes that are open in it, as sets of bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.gang_fit import bit_count
from slurmsched.kernels.slurmctld_nodes import NodeOrder, NodeRequest, first_ready, holds, pick_nodes
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
        word, first = 0, w * BITS
        for bit in range(min(BITS, mask.size - first)):
            word |= (1 if mask[first + bit] else 0) << bit
        words[w] = word


@kernel
def unpack(words: Int64s, mask: Bools) -> int:
    """Set mask (N,) bool to the bits of words; returns how many are set."""
    count = 0
    for w in range(words.size):
        word, first = words[w], w * BITS
        count += bit_count(word)
        for bit in range(min(BITS, mask.size - first)):
            mask[first + bit] = word >> bit & 1 == 1
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


# Over 30 lines: half is signature and docstring.
@kernel
def unreserved(
    table: SlotTable,
    slots: int,
    first: int,
    from_s: float,
    until: float,
    usable: Int64s,
    still_open: Int64s,
    ready: ReadyBy,
    may_stop: bool,
) -> tuple[float, bool]:
    """Write to still_open the usable nodes that no reservation holds in [from_s, until].

    Returns when to try again, -1 = never, and whether the job may fit on those nodes before that. Where it cannot and
    may_stop, still_open is not finished.

    slots: how many of the table are in use. first: that many of them end by from_s. usable, still_open: (W,) int64.
    To try again is worth it at the end of the first slot after which nodes are free that are not before it.
    """
    begin, end, opened = table.begin, table.end, table.opened
    later, known = -1.0, False
    still_open[:] = usable
    for k in range(first, slots):
        if later < 0 and k + 1 < slots and gains(usable, still_open, opened[k], opened[k + 1]):
            later = end[k]
        if begin[k] > until:
            if later < 0 and k + 2 < slots:
                later = end[k + 1]
            break
        for w in range(still_open.size):
            still_open[w] &= opened[k, w]
        if later >= 0:
            if not known:
                add_ready(ready, later)
                known = True
            if may_stop and not as_many(still_open, ready.words, ready.nodes):
                return later, False
    return later, not known or as_many(still_open, ready.words, ready.nodes)


@kernel
def may_start(
    table: SlotTable, slots: int, now: float, until: float, usable: Int64s, idle: Int64s, nodes: int, still_open: Int64s
) -> bool:
    """Whether that many idle nodes are not reserved in [now, until]: without them a job cannot start now.

    usable, idle: (W,) int64. still_open: (W,), overwritten. Later reservations and starts never make it true again.
    """
    begin, end, opened = table.begin, table.end, table.opened
    still_open[:] = usable & idle
    for k in range(slots):
        if begin[k] > until or not as_many(still_open, idle, nodes):
            break
        if end[k] > now:
            still_open &= opened[k]
    return as_many(still_open, idle, nodes)


@kernel
def add_ready(ready: ReadyBy, by_s: float) -> None:
    """Add to ready.words the nodes that hold what the job needs once the running jobs that end by then are gone."""
    place = ready.added[0]
    while place < ready.able:
        n = ready.by_ready[place]
        if ready.ready[n] > 0 and ready.end[ready.ready[n] - 1] > by_s:
            break
        ready.words[n // BITS] |= 1 << (n % BITS)
        place += 1
    ready.added[0] = place


@kernel
def as_many(one: Int64s, other: Int64s, nodes: int) -> bool:
    """Whether as many nodes are in both sets of bits. one, other: (W,)."""
    count = 0
    for w in range(one.size):
        both = one[w] & other[w]
        if both != 0:
            count += bit_count(both) if nodes > 1 else 1
            if count >= nodes:
                return True
    return nodes <= 0


@kernel
def gains(usable: Int64s, still_open: Int64s, now: Int64s, after: Int64s) -> bool:
    """Whether a usable node is open after, and not both still_open and open now. All (W,)."""
    for w in range(usable.size):  # noqa: SIM110 (no generators in kernels)
        if usable[w] & after[w] & ~(still_open[w] & now[w]) != 0:
            return True
    return False


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
                for row in range(slots, k + 1, -1):
                    begin[row], end[row] = begin[row - 1], end[row - 1]
                    opened[row] = opened[row - 1]
                begin[k + 1], end[k + 1], end[k] = edge, end[k], edge
                opened[k + 1] = opened[k]
                slots += 1
                break
    for k in range(slots):
        if begin[k] >= slot and end[k] <= slot_end:
            for w in range(nodes.size):
                opened[k, w] &= ~nodes[w]
    return slots


@kernel
def merged(table: SlotTable, slots: int, slot: float, slot_end: float) -> int:
    """Join the first two neighbours with the same nodes, from the last slot that ends before the reservation
    [slot, slot_end) to the one after it; returns the number of slots. Source: Slurm's sched/backfill.
    """
    begin, end, opened = table.begin, table.end, table.opened
    k = 0
    while k + 1 < slots and end[k + 1] < slot:
        k += 1
    while k + 1 < slots and end[k] <= slot_end:
        if (opened[k] == opened[k + 1]).all():
            end[k] = end[k + 1]
            for row in range(k + 1, slots - 1):
                begin[row], end[row] = begin[row + 1], end[row + 1]
                opened[row] = opened[row + 1]
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


@kernel
def touches(first: int, node_count: int, node: Int64s, mask: Bools | Int64s) -> bool:
    """Whether a run holds a node of mask (N,), where it is not 0: one of node[first : first + node_count]."""
    for k in range(first, first + node_count):  # noqa: SIM110 (no generators in kernels)
        if mask[node[k]]:
            return True
    return False


# Over 30 lines: one loop of slurmctld's; its cases share the window, its edge and the place in the list.
@kernel
def tested_after(
    to_go: int, epoch: float, runs: Runs, filled: int, mask: Bools, begun: int, bound: float
) -> tuple[int, float]:
    """How many runs are gone at slurmctld's first test that finds `to_go` of them gone, and the end of the last one.

    It takes those that hold nodes of mask away in windows of time, each twice as long as the one before, and tests
    after each; after more than MOST_REMOVED it goes on without a test. (0, infinite) if it never tests so late.
    epoch: Unix time of 0 [s]. begun: runs that are gone before. bound: it takes none away that ends later.
    """
    order_end, order, first, node_count, node = runs.end, runs.order, runs.first, runs.node_count, runs.node
    window, edge, i = FIRST_WINDOW_S, -1.0, begun
    while i < filled and order_end[i] <= bound:
        gone, latest, following = 0, -1.0, np.inf
        while i < filled and order_end[i] <= bound:
            if not touches(first[order[i]], node_count[order[i]], node, mask):
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
        if i < filled:
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
        if touches(first[order[i]], node_count[order[i]], node, chosen):
            return float(runs.end[i])
    return otherwise


@kernel
def pick_later(
    gone: int,
    free: Int64s,
    runs: Runs,
    ready: Int64s,
    mask: Bools,
    request: NodeRequest,
    order: NodeOrder,
    chosen: Int64s,
) -> None:
    """The nodes of a job that fits when `gone` runs are gone, in chosen (N,) as pick_nodes sets it.

    ready: (N,) of `need`, or for a single node of `last`, which is what that gives.
    """
    if request.nodes == 1 and not request.least_loaded:
        chosen[:] = 0
        chosen[first_ready(ready, mask, gone, order)] = 1 if (request.need == request.last).all() else 2
        return
    by_end, run_first, node_count, held_node, held = runs.order, runs.first, runs.node_count, runs.node, runs.held
    work = free.copy()
    for i in range(gone):
        first = run_first[by_end[i]]
        for k in range(first, first + node_count[by_end[i]]):
            for r in range(work.shape[0]):
                work[r, held_node[k]] += held[k, r]
    pick_nodes(work, mask, request, order, chosen)
