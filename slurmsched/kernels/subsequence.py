"""Longest non-increasing subsequence: which jobs may keep their lever value."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Int64s


@kernel(plain_below=20_000)
def longest_non_increasing(values: Int64s, allowed: Bools) -> Bools:
    """Members of a longest non-increasing subsequence of the allowed values. (N,) bool.

    values: (N,) int64. allowed: (N,) bool. n log n by patience piles. Of several longest ones, the one
    whose last members come latest. Source: ours, after Fredman, Discrete Mathematics 11 (1975).
    """
    n = values.size
    pile = np.empty(n, np.int64)  # pile[k]: row that ends a subsequence of length k+1 with the largest value
    before = np.full(n, -1, np.int64)
    piles = 0
    for i in range(n):
        if not allowed[i]:
            continue
        low, high = 0, piles
        while low < high:
            middle = (low + high) // 2
            if values[pile[middle]] >= values[i]:
                low = middle + 1
            else:
                high = middle
        if low > 0:
            before[i] = pile[low - 1]
        pile[low] = i
        piles = max(piles, low + 1)
    member = np.zeros(n, np.bool_)
    at = pile[piles - 1] if piles > 0 else -1
    while at >= 0:
        member[at] = True
        at = before[at]
    return member
