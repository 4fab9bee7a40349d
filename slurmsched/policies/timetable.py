"""GPUs over time in slots, and the sizes that a job may have: what planning policies fill jobs into."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.protocols import CurveEstimator
from slurmsched.words import some_of

SINGLE = 12  # slots of the least length; each later one is longer by GROWTH
GROWTH = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """The sizes one job may have. gpus: (K,) ascending. speed: (K,) over its speed at the size it asks for."""

    gpus: Int64s
    speed: Floats


def amdahl(gpus: Floats | Int64s, serial: float) -> Floats:
    """Speed at so many GPUs over that at one, if the part `serial` of the work is done by one alone. Amdahl's law."""
    return np.asarray(1.0 / (serial + (1.0 - serial) / np.asarray(gpus, np.float64)))


def sizes_of(snapshot: Snapshot, rows: Sequence[int], serial: float, speeds: object = None) -> list[Sizes]:
    """The sizes of these jobs: doublings from min_gpus to max_gpus and what it asks for; the latter alone without
    hints.

    speeds: where it is a CurveEstimator that knows a job, its curve counts in the place of Amdahl's law, and sizes that
    are no faster than a smaller one are left out; where none is left, it has what it asks for.
    """
    asked = snapshot.jobs.gpus.tolist()
    low, high = hint_column(snapshot.jobs, "min_gpus").tolist(), hint_column(snapshot.jobs, "max_gpus").tolist()
    elastic = [low[row] <= high[row] for row in rows]
    made = [_sizes(asked[row], low[row] if may else 0.0, high[row] if may else 0.0, serial)
            for row, may in zip(rows, elastic, strict=True)]  # fmt: skip
    if not isinstance(speeds, CurveEstimator):
        return made
    return [_by_curve(each, snapshot, row, speeds) for row, each in zip(rows, made, strict=True)]


def _by_curve(sizes: Sizes, snapshot: Snapshot, row: int, speeds: CurveEstimator) -> Sizes:
    curve = speeds.curve(snapshot, row, sizes.gpus) if len(sizes.gpus) > 1 else None
    if curve is None:
        return sizes
    useful = curve > np.maximum.accumulate(np.append(0.0, curve[:-1]))
    return Sizes(sizes.gpus[useful], curve[useful]) if useful.any() else _sizes(int(snapshot.jobs.gpus[row]), 0, 0, 0)


def without_curve(snapshot: Snapshot, who: Bools, speeds: object) -> tuple[str, ...]:
    """A note where elastic jobs among these are unknown to a CurveEstimator; nothing where Amdahl's law is all there
    is. who: (N,) bool."""
    if not isinstance(speeds, CurveEstimator):
        return ()
    one = np.ones(1, np.int64)
    elastic = hint_column(snapshot.jobs, "min_gpus") <= hint_column(snapshot.jobs, "max_gpus")
    rows = np.flatnonzero(who & elastic).tolist()
    unknown = sum(speeds.curve(snapshot, row, one) is None for row in rows)
    told = some_of(unknown, len(rows), "elastic job", "is", "are")
    return (f"{told} in no table of speeds: Amdahl's law",) if unknown else ()


@lru_cache(maxsize=4_096)
def _sizes(asked: int, low: float, high: float, serial: float) -> Sizes:
    steps = {int(low) << step for step in range(24) if (int(low) << step) <= high} if low else {asked}
    gpus = np.array(sorted(steps | ({asked} if not low or low <= asked <= high else set())), np.int64)
    return Sizes(gpus, amdahl(gpus, serial) / amdahl(np.array([asked]), serial)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Timetable:
    """begin_s, end_s: (S,) of each slot [Unix s], one after the other. free: (S,) GPUs not promised."""

    begin_s: Floats
    end_s: Floats
    free: Int64s

    def until(self, due_s: float) -> Floats:
        """Seconds of each slot before this time. (S,)."""
        return np.clip(np.minimum(self.end_s, due_s) - self.begin_s, 0.0, None)

    def take(self, gpus: Int64s) -> None:
        """Promise so many GPUs in each slot. (S,)."""
        self.free[:] -= gpus


def timetable(now_s: float, slot_s: float, slots: int, gpus: int, origin_s: float = 0.0) -> Timetable:
    """An empty timetable from now on. Slots end at multiples of slot_s [s] from origin_s on; later ones are longer."""
    length = np.ceil(GROWTH ** np.maximum(np.arange(slots) - SINGLE + 1, 0)) * slot_s
    end_s = origin_s + math.floor((now_s - origin_s) / slot_s) * slot_s + np.cumsum(length)
    begin_s = np.concatenate([[now_s], end_s[:-1]])
    return Timetable(begin_s, end_s, np.full(slots, gpus, np.int64))


def filled(sizes: Sizes, left_s: float, due_s: float, table: Timetable) -> Int64s | None:
    """GPUs in each slot by the least share that ends the job in time, None if none does. (S,) int64.

    A share is a size that the job has wherever there is room for it, and the largest that fits elsewhere; from the
    slot on in which it ends it has none. left_s: run time to come at the size it asks for. Source: Gu et al.
    (ElasticFlow), ASPLOS '23, progressive filling.
    """
    spare_s, fits = table.until(due_s), np.searchsorted(sizes.gpus, table.free, side="right") - 1
    gpus, speed = np.append(sizes.gpus, 0), np.append(sizes.speed, 0.0)  # the last, at -1: nothing fits
    for share in range(len(sizes.gpus)):
        index = np.minimum(fits, share)
        done_s = np.cumsum(speed[index] * spare_s)
        if done_s[-1] >= left_s - 1e-6:
            before_s = done_s - speed[index] * spare_s
            return np.where(before_s < left_s - 1e-6, gpus[index], 0)
    return None
