"""Which job holds which GPU when, as a grid of samples that a page has room for."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Floats, Int64s

LINES, COLUMNS = 100, 400  # GPUs and times at most


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Samples of a schedule. gpu: (L,) numbers of the GPUs looked at. at_s: (C,) times. run: (L, C) the run that holds
    the GPU then, as a place among the runs given, -1 for none."""

    gpu: Int64s
    at_s: Floats
    run: Int64s


def grid(
    gpus: Int64s, start_s: Floats, end_s: Floats, total: int, until_s: float, lines: int = LINES, columns: int = COLUMNS
) -> Grid:
    """The grid of these runs on `total` GPUs, from 0 to until_s.

    gpus, start_s, end_s: (R,), what each run held and when. At most `lines` GPUs, evenly spread, at the middle of
    `columns` equal spans: a share of cells is, but for chance, the share of GPU time.
    """
    looked = np.unique(np.linspace(0, total - 1, min(total, lines)).round().astype(np.int64))
    step_s = until_s / columns
    at_s: Floats = (np.arange(columns, dtype=np.float64) + 0.5) * step_s
    line = np.full(total, -1, np.int64)
    line[looked] = np.arange(len(looked))
    run = np.full((len(looked), columns), -1, np.int64)
    first, last = np.searchsorted(at_s, start_s), np.searchsorted(at_s, end_s)
    for place, held in numbered(gpus, start_s, end_s, total):
        shown = line[held]
        run[shown[shown >= 0], first[place] : last[place]] = place
    return Grid(looked, at_s, run)


def numbered(gpus: Int64s, start_s: Floats, end_s: Floats, total: int) -> list[tuple[int, list[int]]]:
    """Each run by its place, in order of start, and the numbers of the GPUs it holds: the lowest that are free.

    The numbers are for the picture: a cluster model counts GPUs, on nodes or in one pile, and numbers none. Runs of no
    length are left out. Where runs share GPUs, so that they hold more than there are, the later ones have what is left.
    """
    free, busy, made = list(range(total)), list[tuple[float, int]](), list[tuple[int, list[int]]]()
    given: dict[int, list[int]] = {}
    for place in np.lexsort((end_s, start_s)).tolist():
        if end_s[place] <= start_s[place]:
            continue
        while busy and busy[0][0] <= start_s[place]:
            for gpu in given.pop(heapq.heappop(busy)[1]):
                heapq.heappush(free, gpu)
        given[place] = [heapq.heappop(free) for _ in range(min(int(gpus[place]), len(free)))]
        heapq.heappush(busy, (float(end_s[place]), place))
        made.append((place, given[place]))
    return made
