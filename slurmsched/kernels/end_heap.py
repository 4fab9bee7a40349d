"""The next end of a run: a heap of rows in which each stands once, so that a run that is cut short leaves it."""

from __future__ import annotations

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Floats, Int64s


@kernel
def heap_push(row: int, until_s: Floats, heap: Int64s, seat: Int64s, size: int) -> int:
    """Put the row among the `size` first of the heap; returns how many there are then.

    until_s: (J,) end of each row's run; the earliest stands first, of equal ones the lowest row. seat: (J,) place of
    each row in the heap. Source: ours; Williams, Algorithm 232, CACM 7(6), 1964, with the places kept.
    """
    heap[size], seat[row] = row, size
    _up(size, until_s, heap, seat)
    return size + 1


@kernel
def heap_remove(row: int, until_s: Floats, heap: Int64s, seat: Int64s, size: int) -> int:
    """Take the row out; returns how many are left. As heap_push."""
    at, last = seat[row], size - 1
    moved = heap[last]
    if at < last:
        heap[at], seat[moved] = moved, at
        _up(at, until_s, heap, seat)
        _down(seat[moved], until_s, heap, seat, last)
    return last


@kernel
def _before(one: int, other: int, until_s: Floats) -> bool:
    return until_s[one] < until_s[other] or (until_s[one] == until_s[other] and one < other)


@kernel
def _up(at: int, until_s: Floats, heap: Int64s, seat: Int64s) -> None:
    """Let the row at this place rise to where it belongs."""
    row = heap[at]
    while at > 0 and _before(row, heap[(at - 1) // 2], until_s):
        heap[at] = heap[(at - 1) // 2]
        seat[heap[at]] = at
        at = (at - 1) // 2
    heap[at], seat[row] = row, at


@kernel
def _down(at: int, until_s: Floats, heap: Int64s, seat: Int64s, size: int) -> None:
    """Let the row at this place sink to where it belongs, among `size`."""
    row = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(heap[child + 1], heap[child], until_s):
            child += 1
        if not _before(heap[child], row, until_s):
            break
        heap[at] = heap[child]
        seat[heap[at]] = at
        at = child
    heap[at], seat[row] = row, at
