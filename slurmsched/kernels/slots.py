"""Reservations of whole nodes over time: slots, each with the nodes that are open in it, as sets of bits."""

from __future__ import annotations

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int64s

BITS = 62  # of each word, so that none is negative


@kernel
def pack(mask: Bools, words: Int64s) -> None:
    """Set words (W,) int64 to the bits of mask (N,) bool; W * BITS >= N."""
    words[:] = 0
    for n in range(mask.size):
        if mask[n]:
            words[n // BITS] |= 1 << (n % BITS)


@kernel
def unpack(words: Int64s, mask: Bools) -> int:
    """Set mask (N,) bool to the bits of words; returns how many are set."""
    count = 0
    for n in range(mask.size):
        mask[n] = (words[n // BITS] >> (n % BITS)) & 1 == 1
        count += mask[n]
    return count


@kernel
def unreserved(
    begin: Floats, end: Floats, opened: Int64s, slots: int, from_s: float, until: float, usable: Int64s, left: Int64s
) -> float:
    """The usable nodes that no reservation holds in [from_s, until], in left; returns when to try again, -1 = never.

    begin, end: (S,) of slots, the first `slots` of them filled, ascending and without gaps; opened: (S, W) their nodes.
    usable, left: (W,). To try again is worth it at the end of the first slot after which nodes are free that are not
    before it.
    """
    later = -1.0
    left[:] = usable
    for k in range(slots):
        if end[k] <= from_s:
            continue
        if later < 0 and k + 1 < slots and gains(usable, left, opened[k], opened[k + 1]):
            later = end[k]
        if begin[k] > until:
            if later < 0 and k + 2 < slots:
                later = end[k + 1]
            break
        some = False
        for w in range(left.size):
            left[w] &= opened[k, w]
            some = some or left[w] != 0
        if not some and later >= 0:
            break
    return later


@kernel
def gains(usable: Int64s, left: Int64s, now: Int64s, after: Int64s) -> bool:
    """Whether a usable node is open after, and not both left and open now. All (W,)."""
    gained = False
    for w in range(usable.size):
        gained = gained or usable[w] & after[w] & ~(left[w] & now[w]) != 0
    return gained


@kernel
def overlaps(
    begin: Floats, end: Floats, opened: Int64s, slots: int, slot: float, slot_end: float, nodes: Int64s
) -> bool:
    """Whether a reservation holds one of the nodes (W,) in [slot, slot_end)."""
    for k in range(slots):
        if begin[k] >= slot_end:
            break
        if end[k] > slot:
            for w in range(nodes.size):
                if nodes[w] & ~opened[k, w]:
                    return True
    return False


@kernel
def reserve(begin: Floats, end: Floats, opened: Int64s, slots: int, slot: float, slot_end: float, nodes: Int64s) -> int:
    """Close the nodes (W,) in [slot, slot_end); returns the number of slots, split where the reservation begins and
    ends."""
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
def merged(begin: Floats, end: Floats, opened: Int64s, slots: int, slot: float, slot_end: float) -> int:
    """Join the first two neighbours with the same nodes, from the last slot that ends before the reservation
    [slot, slot_end) to the one after it; returns the number of slots. Source: Slurm's sched/backfill.
    """
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
