"""Room between kept neighbours: which of them must move too, so that nobody is squeezed in."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Int64s


@kernel(plain_below=20_000)
def with_room(height: Int64s, kept: Bools, margin: int, floor: int, ceiling: int) -> Bools:
    """The kept rows, less those next to a run of moved rows that would get less than `margin` from row to row.

    height: (N,) int64, falling over the kept rows. kept: (N,) bool. Each run grows upwards or downwards, whichever
    takes fewer kept rows to find room; floor and ceiling bound the open ends. Returns (N,) bool. Source: ours.
    """
    n = height.size
    stays = kept.copy()
    row = 0
    while row < n:
        if stays[row]:
            row += 1
            continue
        above, below = row - 1, row
        while above >= 0 and not stays[above]:
            above -= 1
        while below < n and not stays[below]:
            below += 1
        up, down = above, below
        while True:
            if _roomy(height, up, below, margin, floor, ceiling):
                stays[up + 1 : below] = False
                row = below
                break
            if _roomy(height, above, down, margin, floor, ceiling):
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


@kernel(plain_below=20_000)  # as with_room: a short queue must not load numba for its sake
def _roomy(height: Int64s, above: int, below: int, margin: int, floor: int, ceiling: int) -> bool:
    """Whether the rows between `above` and `below` (-1 and N: open ends) can lie `margin` apart and from both."""
    high = ceiling + 1 if above < 0 else height[above]
    low = floor - 1 if below == height.size else max(height[below], floor - 1)
    return high - low >= (below - above) * margin
