"""Which jobs may keep their nice value: a longest non-increasing subsequence, with a margin between neighbours."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.model.columns import Bools, Int64s

PLAIN_BELOW = 200_000  # rows; of so many both take less time in plain Python than the import of numba


def _longest_by_bisection(values: Int64s, allowed: Bools) -> Bools:
    """As longest_non_increasing, with the search of Python's library."""
    ends, pile = list[int](), list[int]()  # of each pile the value that it ends with, negated, and its row
    before, negated = np.full(len(values), -1, np.int64), (-values).tolist()
    for row in np.flatnonzero(allowed).tolist():
        at = bisect_right(ends, negated[row])
        before[row] = pile[at - 1] if at else -1
        ends[at : at + 1], pile[at : at + 1] = [negated[row]], [row]
    member = np.zeros(len(values), np.bool_)
    row = pile[-1] if pile else -1
    while row >= 0:
        member[row] = True
        row = int(before[row])
    return member


@kernel(plain_below=PLAIN_BELOW, plain=_longest_by_bisection)
def longest_non_increasing(values: Int64s, allowed: Bools) -> Bools:
    """Members of a longest non-increasing subsequence of the allowed values. (N,) bool.

    values: (N,) int64. allowed: (N,) bool. n log n by patience piles. Of several longest ones, the one whose last
    members come latest. Source: slurmsched, after Fredman, Discrete Mathematics 11 (1975).
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


# Margins between neighbours.


# Over 30 lines: one search from both ends of a run of rows; each step changes what the next one tests.
@kernel(plain_below=PLAIN_BELOW)
def keep_with_margin(priority: Int64s, kept: Bools, margin: int, floor: int, ceiling: int) -> Bools:
    """The kept rows, less those next to a run of moved rows that would get less than `margin` from row to row.

    priority: (N,) int64, falling over the kept rows. kept: (N,) bool. Each run grows upwards or downwards, whichever
    takes fewer kept rows to find room; floor and ceiling bound the open ends. Returns (N,) bool. Source: slurmsched.
    """
    n = priority.size
    stays = kept.copy()
    row = 0
    while row < n:
        if stays[row]:
            row += 1
            continue
        above, below = row - 1, row  # the row above stays, as each run is left behind as a whole
        while below < n and not stays[below]:
            below += 1
        up, down = above, below
        while True:
            if _has_margin(priority, up, below, margin, floor, ceiling):
                stays[up + 1 : below] = False
                row = below
                break
            if _has_margin(priority, above, down, margin, floor, ceiling):
                stays[above + 1 : down] = False
                row = down
                break
            if up < 0 and down >= n:
                return np.zeros(n, np.bool_)
            up = max(up - 1, -1)
            while up >= 0 and not stays[up]:
                up -= 1
            down = min(down + 1, n)
            while down < n and not stays[down]:
                down += 1
    return stays


@kernel_part
def _has_margin(priority: Int64s, above: int, below: int, margin: int, floor: int, ceiling: int) -> bool:
    """Whether the rows between `above` and `below` (-1 and N: open ends) can lie `margin` apart and from both."""
    high = ceiling + 1 if above < 0 else priority[above]
    low = floor - 1 if below == priority.size else max(priority[below], floor - 1)
    return high - low >= (below - above) * margin
