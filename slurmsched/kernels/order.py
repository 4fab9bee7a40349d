"""Rows in the order of several keys, as all policies sort them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Floats, Int64s


def lexsorted(job_id: Int64s, arrived_s: Floats, keys: NDArray[Any]) -> Int64s:
    """The same as order_by by numpy: for a process that has not loaded numba."""
    if _ascending(arrived_s) and _ascending(job_id):  # rows are in that order already, and sorting is stable
        return np.lexsort(keys[::-1]) if len(keys) else np.arange(len(job_id))
    return np.lexsort((job_id, arrived_s, *keys[::-1]))


def _ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


@kernel(cold=lexsorted)
def order_by(job_id: Int64s, arrived_s: Floats, keys: Floats) -> Int64s:
    """Rows by the first key, ties by the next one, then by arrival, then by job id. (N,) int64.

    keys: (K, N), least goes first, NaN goes last. Merges ascending runs of doubling length: rows in order cost one
    pass. Source: ours; a textbook merge sort.
    """
    rows, width = job_id.size, 1
    order, other = np.arange(rows), np.empty(rows, np.int64)
    while width < rows:
        for low in range(0, rows, 2 * width):
            middle, high = min(low + width, rows), min(low + 2 * width, rows)
            left, right = low, middle
            if middle == high or not _before(order[middle], order[middle - 1], job_id, arrived_s, keys):
                other[low:high] = order[low:high]
                continue
            for place in range(low, high):
                take_right = left == middle or (
                    right < high and _before(order[right], order[left], job_id, arrived_s, keys)
                )
                other[place] = order[right] if take_right else order[left]
                if take_right:
                    right += 1
                else:
                    left += 1
        order, other = other, order
        width *= 2
    return order


@kernel
def _before(a: int, b: int, job_id: Int64s, arrived_s: Floats, keys: Floats) -> bool:
    """Whether row a goes strictly before row b."""
    for k in range(keys.shape[0]):
        x, y = keys[k, a], keys[k, b]
        if x < y or (np.isnan(y) and not np.isnan(x)):
            return True
        if y < x or (np.isnan(x) and not np.isnan(y)):
            return False
    x, y = arrived_s[a], arrived_s[b]
    if x < y or (np.isnan(y) and not np.isnan(x)):
        return True
    if y < x or (np.isnan(x) and not np.isnan(y)):
        return False
    return bool(job_id[a] < job_id[b])
