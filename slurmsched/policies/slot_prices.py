"""Prices of GPUs that rise with what is promised, and the cheapest plan of a job under them: primal-dual admission.

Source: Bao et al. (OASiS), INFOCOM 2018, for exponential prices by slot; one resource (GPUs) is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.policies.timetable import Sizes, Timetable

Interval = Sequence[float]  # begin [Unix s], end [Unix s], GPUs


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """gpus: (S,) in each slot. end_s: when the job ends [Unix s]. cost: of all its GPU hours."""

    gpus: Int64s
    end_s: float
    cost: float


def promise(table: Timetable, intervals: Sequence[Interval]) -> None:
    """Enter what one job was promised. A slot counts the most that the job holds in any part of it."""
    held = np.zeros(len(table.free), np.int64)
    for begin_s, end_s, gpus in intervals:
        inside = (table.begin_s < end_s) & (table.end_s > begin_s)
        held[inside] = np.maximum(held[inside], int(gpus))
    table.take(held)


def prices(table: Timetable, capacity: int, least: float) -> Floats:
    """Price of a GPU hour in each slot: `least` where nothing is promised, 1 where everything is. (S,)."""
    used = 1.0 - np.clip(table.free / max(capacity, 1), 0.0, 1.0)
    return np.asarray(least ** (1.0 - used))


def choices(sizes: Sizes, left_s: float, table: Timetable, price: Floats) -> list[Choice]:
    """The cheapest plan by each slot in which the job could end at the latest; none where it cannot.

    Sizes are raised step by step where run time costs least; the last step may give more than is needed, so that plans
    are cheapest but for a part of one slot.
    """
    steps = _Steps.of(sizes, table, price)
    found: list[Choice] = []
    for last in range(len(table.free)):
        inside = steps.slot <= last
        done_s = np.cumsum(steps.work_s[inside])
        if not len(done_s) or done_s[-1] < left_s - 1e-6:
            continue
        count = int(np.searchsorted(done_s, left_s - 1e-6)) + 1
        taken = np.flatnonzero(inside)[:count]
        gpus = np.bincount(steps.slot[taken], steps.gpus[taken], len(table.free)).astype(np.int64)
        ends_s = float(table.end_s[np.flatnonzero(gpus)[-1]])
        found.append(Choice(gpus, ends_s, float(steps.cost[taken].sum())))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """From each size to the next in each slot, cheapest run time first. (K,) each."""

    slot: Int64s
    gpus: Int64s
    work_s: Floats
    cost: Floats

    @classmethod
    def of(cls, sizes: Sizes, table: Timetable, price: Floats) -> _Steps:
        length_s = table.end_s - table.begin_s
        more, faster = np.diff(sizes.gpus, prepend=0), np.diff(sizes.speed, prepend=0.0)
        slot, step = (each.ravel() for each in np.indices((len(length_s), len(more))))
        work_s, cost = faster[step] * length_s[slot], price[slot] * more[step] * length_s[slot] / 3_600.0
        fits = (sizes.gpus[step] <= table.free[slot]) & (work_s > 0)
        order = np.lexsort((step, slot, (cost / np.maximum(work_s, 1e-12)).round(12)))
        order = order[fits[order]]
        return cls(slot[order], more[step][order].astype(np.int64), work_s[order], cost[order])


def intervals_of(gpus: Int64s, table: Timetable) -> list[list[float]]:
    """A plan by slot as intervals in which the job holds as many GPUs."""
    made: list[list[float]] = []
    for slot in np.flatnonzero(gpus).tolist():
        begin_s, end_s, held = float(table.begin_s[slot]), float(table.end_s[slot]), float(gpus[slot])
        if made and made[-1][1] == begin_s and made[-1][2] == held:
            made[-1][1] = end_s
        else:
            made.append([begin_s, end_s, held])
    return made


def promised(carry: Any, name: str) -> dict[str, list[list[float]]]:
    """The promises of a carry under this name, by job; none if another policy left it."""
    kept = carry.get(name)
    return {str(job): [list(map(float, each)) for each in plan] for job, plan in kept.items()} if isinstance(
        kept, dict) else {}  # fmt: skip
