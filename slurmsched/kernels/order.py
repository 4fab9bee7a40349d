"""Rows in the order of several keys, sorted from an order that was right a quantum ago."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Floats, Int64s


def _lexsort(keys: Floats, order: Int64s) -> None:
    order[:] = np.lexsort(keys.T[::-1])


@kernel(plain_below=20_000, cold=_lexsort)
def sort_rows(keys: Floats, order: Int64s) -> None:
    """Sort order, (N,) rows of keys, in place: least first key first, ties by the next one, at last by row.

    keys: (N, K) without NaN. Merges the runs it finds, so that an order in which few rows must move costs a few passes.
    Source: ours; the natural merge sort of Knuth, The Art of Computer Programming 3 (1973), section 5.2.4.
    """
    rows = len(order)
    ends, runs = np.empty(rows + 1, np.int64), 0
    for i in range(1, rows + 1):
        if i == rows or _precedes(keys, order[i], order[i - 1]):
            ends[runs] = i
            runs += 1
    merged = np.empty(rows, np.int64)
    while runs > 1:
        low, kept = 0, 0
        for run in range(0, runs - 1, 2):
            _merge(keys, order, low, ends[run], ends[run + 1], merged)
            low = ends[run + 1]
            ends[kept] = low
            kept += 1
        if runs % 2 == 1:
            ends[kept] = rows
            kept += 1
        runs = kept


@kernel
def _merge(keys: Floats, order: Int64s, low: int, middle: int, high: int, merged: Int64s) -> None:
    """Merge the sorted rows order[low:middle] and order[middle:high] in place. merged: room, overwritten."""
    left, right = low, middle
    while left < middle and not _precedes(keys, order[middle], order[left]):
        left += 1  # these stay
    first, at = left, left
    while left < middle and right < high:
        if _precedes(keys, order[right], order[left]):
            merged[at] = order[right]
            right += 1
        else:
            merged[at] = order[left]
            left += 1
        at += 1
    for i in range(left, middle):
        merged[at] = order[i]
        at += 1
    for i in range(first, at):
        order[i] = merged[i]


@kernel
def _precedes(keys: Floats, a: int, b: int) -> bool:
    """Whether row a goes strictly before row b."""
    for k in range(keys.shape[1]):
        if keys[a, k] != keys[b, k]:
            return bool(keys[a, k] < keys[b, k])
    return a < b
