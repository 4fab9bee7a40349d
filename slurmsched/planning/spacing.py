"""From a wanted order to priorities with the fewest writes.

A job's *height* is the priority slurmsched steers: site factors plus our lever, the user's own nice
left out. A higher job starts first; among equals Slurm takes the earlier submitted, then the lower id.
"""

from __future__ import annotations

import numpy as np

from slurmsched.kernels.room import with_room
from slurmsched.kernels.subsequence import longest_non_increasing
from slurmsched.model.columns import Bools, Int64s
from slurmsched.words import some


def spaced(
    height: Int64s, tie: Int64s, *, gap: int, margin: int, floor: int, ceiling: int, start: int, low: bool = True
) -> tuple[Int64s, Bools]:
    """New heights that put the jobs into the given order, and which jobs keep theirs.

    height: (N,) int64, now, in the wanted order (most urgent first). tie: (N,) int64, place of each in
    Slurm's own order among equal priorities. gap: distance left to neighbours where there is room.
    margin: least distance of a written job to its neighbours; where kept ones leave less, the nearest of them
    are written too, so that factors which drift do not undo the order at once. 0: the number kept is the largest
    possible. floor, ceiling: bounds of what is written; where `low` allows it, a kept job may lie under the floor if
    all after it are kept. start: height of the lowest job when none is kept. Returns (N,) int64 and (N,) bool.
    Source: ours.
    Raises ValueError if ceiling - floor has no room for the jobs.
    """
    n = len(height)
    if n == 0:
        return height.copy(), np.zeros(0, np.bool_)
    if ceiling - floor < n:
        raise ValueError(f"no room for {some(n, 'job')} between priority {floor} and {ceiling}")
    steps = descents(tie)
    level = height + steps
    tail = low_tail(height, level, floor) if low else n
    kept = np.zeros(n, np.bool_)
    kept[tail:] = True
    if tail:
        allowed = (level >= floor + steps[tail - 1]) & (level <= ceiling) & (height >= floor)
        kept[:tail] = longest_non_increasing(level[:tail], allowed[:tail])
    if margin:
        kept = with_room(height, kept, margin, floor, ceiling)
    fill = _Fill(height, steps, kept, gap, floor, ceiling, start)
    return fill.all(), kept


def descents(tie: Int64s) -> Int64s:
    """Least drop in height from the first job to each: 1 wherever Slurm's own tie order disagrees. (N,) int64."""
    steps = np.zeros(len(tie), np.int64)
    np.cumsum(tie[1:] < tie[:-1], out=steps[1:])
    return steps


def low_tail(height: Int64s, level: Int64s, floor: int) -> int:
    """First row of the longest tail that lies under the floor and is in order already."""
    ends = np.flatnonzero((height[:-1] >= floor) | (level[:-1] < level[1:]))
    if height[-1] >= floor:
        return len(height)
    return int(ends[-1]) + 1 if len(ends) else 0


class _Fill:
    """Heights for the runs of rows between kept neighbours."""

    def __init__(
        self, height: Int64s, steps: Int64s, kept: Bools, gap: int, floor: int, ceiling: int, start: int
    ) -> None:
        self.height, self.steps, self.kept = height, steps, kept
        self.gap, self.floor, self.ceiling, self.start = gap, floor, ceiling, start

    def all(self) -> Int64s:
        made = self.height.copy()
        keepers = np.flatnonzero(self.kept)
        edges = np.concatenate(([-1], keepers, [len(self.height)]))
        for edge in np.flatnonzero(np.diff(edges) > 1):
            first, last = int(edges[edge]), int(edges[edge + 1])
            made[first + 1 : last] = self._run(first, last)
        return made

    def _run(self, above: int, below: int) -> Int64s:
        """Heights of the rows between the kept rows `above` and `below` (-1 and N: open ends)."""
        count = below - above - 1
        up = np.arange(count, 0, -1, dtype=np.int64)
        low = self.floor - 1 if below == len(self.height) else max(int(self.height[below]), self.floor - 1)
        if above < 0:
            high = self.ceiling + 1
            wished = max(self.start, low + self.gap) + (up - 1) * self.gap
            tight = low + self.steps[min(below, len(self.steps) - 1)] - self.steps[:below]
        else:
            high = int(self.height[above])
            wished = high - (count + 1 - up) * self.gap
            tight = high - (self.steps[above + 1 : below] - self.steps[above])
        open_end = above < 0 or below == len(self.height)
        if open_end and wished[-1] > low and wished[0] < high:
            return wished
        return low + up * (high - low) // (count + 1) if high - low > count else tight
