"""Batches of jobs in windows that double, each with as much weight as can be: AOnline."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, without_curve
from slurmsched.allocation.job_memory import NEVER_S, recall, remembered
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_work_s, service
from slurmsched.allocation.tenants import check_weights, unused_weights, weights_of
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Part, Period, SlotCount, check_ranges
from slurmsched.plain_text import pluralize
from slurmsched.protocols import Estimator, SpeedEstimator
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

_PLANNED = ("begin_s", "end_s", "batch_gpus")  # in a carry, by job: NEVER_S for a job that no batch took
MOST_SLOTS = 4_096  # of a window; beyond, slots are longer
_BATCH = "batch"  # in a carry: length and end of the window


@dataclass(frozen=True, slots=True, eq=False)
class BatchWindow:
    """A batch's window in slots of equal length. begin_s, slot_s [s]. used: (S,) GPUs. capacity: GPUs there are."""

    begin_s: float
    slot_s: float
    used: Floats
    capacity: int

    def cheapest(self, sizes: JobSizes, remaining_s: float, low: float, high: float) -> tuple[float, int, int, int]:
        """Cost, first slot, slots and GPUs of the cheapest run without a break; infinite cost if none fits."""
        price = (high / low) ** (self.used / max(self.capacity, 1))
        before = np.concatenate([[0.0], np.cumsum(price)])
        best = (math.inf, 0, 0, 0)
        for gpus, speed in zip(sizes.gpus.tolist(), sizes.speed.tolist(), strict=True):
            slots = max(math.ceil(remaining_s / speed / self.slot_s - 1e-9), 1)
            if slots > len(price):
                continue
            crowded = np.concatenate([[0], np.cumsum(self.used + gpus > self.capacity)])
            free = crowded[slots:] == crowded[:-slots]
            cost = np.where(free, (before[slots:] - before[:-slots]).round(6), math.inf)  # equal ones: the earliest
            first = int(np.argmin(cost))
            best = min(best, (low * gpus * self.slot_s * float(cost[first]), first, slots, gpus))
        return best


@dataclass(frozen=True, slots=True)
class AOnline:
    """Plans waiting jobs in batches. A batch takes jobs that are worth more than their cheapest run costs.

    A job without an expected run time is in no batch. It comes after the planned jobs, by attained service.
    window_s: length of the first window [s]. Each later window is twice as long while jobs remain unplanned.
    slots: slots of the first window. Longer windows have more slots of the same length.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    most_jobs: most jobs of one batch, the least remaining service divided by weight first.
    fill: jobs may start before their planned time on idle GPUs, and unplanned jobs too. False: they wait.
    weights: weights of jobs, "KIND:NAME=WEIGHT" each; KIND is qos, user or account.
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times.
    Raises ConfigError for a parameter out of range.
    Source: Zhou et al. (AOnline), IEEE TCC 2022, for batches of growing windows and the primal-dual choice within one.
    Ours: the order within a batch, GPUs as the only resource, the scaling curve, fill.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DEADLINE,
        "Zhou et al.: AOnline, IEEE TCC 2022",
        left_out=("Resources other than GPUs.",),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES),
        uses=(PolicyLever.ORDER, PolicyLever.START, PolicyLever.SIZE),
        on_slurm=(
            "A job has its size from its start on: Slurm resizes no running job.",
            "Parameter servers and workers are not told apart: a job is its GPUs.",
        ),
        criteria={"begin_s": "planned from {at}", "batch_gpus": "planned on {0+} GPUs"},
    )

    window_s: Period = 3_600.0
    slots: SlotCount = 24
    serial: Part = 0.02
    most_jobs: Count = 300
    fill: bool = True
    weights: tuple[str, ...] = ()
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_weights(self.weights)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, remaining_s = snapshot.jobs, remaining_work_s(self.estimator, snapshot)
        known = recall(jobs, snapshot.carry, _PLANNED)
        plan = {name: np.where(np.isnan(column), NEVER_S, column) for name, column in known.items()}
        batch = _batch(snapshot.carry)
        waits = startable(snapshot) & (jobs.gpus > 0) & np.isfinite(remaining_s)
        if self._over(snapshot, plan, waits, batch):
            batch = self._new(snapshot, plan, waits, remaining_s, batch)
        planned = plan["begin_s"] > NEVER_S
        order = ordered(jobs, ~planned, np.where(planned, plan["begin_s"], jobs.attained_gpu_s))
        why = {
            "begin_s": np.where(planned, plan["begin_s"], np.inf),
            "batch_gpus": np.where(planned, plan["batch_gpus"], -1.0),
        }
        carry = dict(remembered(jobs, plan)) | {_BATCH: batch}
        notes = (*_notes(snapshot, remaining_s, waits & ~planned), *without_curve(snapshot, waits, self.speeds),
                 *unused_weights(snapshot, self.weights))  # fmt: skip
        return Ranking(order, why=why, carry=carry, notes=notes, changes=self._changes(snapshot, plan, planned))

    def _over(self, snapshot: Snapshot, plan: dict[str, Floats], waits: Bools, batch: dict[str, float]) -> bool:
        """Whether a new batch begins: somebody waits for one, and the window is over or all of the last batch began."""
        unplanned = waits & (plan["begin_s"] <= NEVER_S)
        return bool(unplanned.any()) and (snapshot.now_s >= batch["until_s"] or not (waits & ~unplanned).any())

    def _new(
        self, snapshot: Snapshot, plan: dict[str, Floats], waits: Bools, remaining_s: Floats, before: dict[str, float]
    ) -> dict[str, float]:
        """A new batch, entered into the plan; its window."""
        length_s = self._length_s(snapshot, waits, remaining_s, before)
        for column in plan.values():
            column[waits] = NEVER_S
        window = self._window(snapshot, plan, length_s)
        jobs = snapshot.jobs
        weight = weights_of(jobs, self.weights)
        remaining_gpu_s = service(remaining_s, jobs)
        order = ordered(jobs, remaining_gpu_s / weight)
        rows = order[waits[order]][: self.most_jobs]
        worth = weight[rows] / np.maximum(remaining_gpu_s[rows], 1.0)
        low, high = float(worth.min()) / 4.0, float(worth.max())
        for row, sizes in zip(rows.tolist(), sizes_of(snapshot, rows.tolist(), self.serial, self.speeds), strict=True):
            cost, first, slots, gpus = window.cheapest(sizes, float(remaining_s[row]), low, max(high, low))
            if cost >= weight[row]:
                continue
            window.used[first : first + slots] += gpus
            plan["begin_s"][row] = window.begin_s + first * window.slot_s
            plan["end_s"][row] = window.begin_s + (first + slots) * window.slot_s
            plan["batch_gpus"][row] = gpus
        unplanned = bool((waits & (plan["begin_s"] <= NEVER_S)).any())
        return {"length_s": length_s, "until_s": snapshot.now_s + length_s, "left": float(unplanned)}

    def _length_s(self, snapshot: Snapshot, waits: Bools, remaining_s: Floats, before: dict[str, float]) -> float:
        """Length of the next window: doubled while jobs are left over, and long enough for the shortest. [s]"""
        length_s = 2 * before["length_s"] if before["left"] else self.window_s
        least_s = float(remaining_s[waits].min())
        return max(length_s, self.window_s * 2.0 ** math.ceil(math.log2(max(least_s / self.window_s, 1.0))))

    def _window(self, snapshot: Snapshot, plan: dict[str, Floats], length_s: float) -> BatchWindow:
        """The window, with the GPUs of those that run taken until they are expected to end."""
        slot_s, capacity, now_s = self.window_s / self.slots, cluster_gpus(snapshot), snapshot.now_s
        slots = min(round(length_s / slot_s), MOST_SLOTS)
        slot_s, used = length_s / slots, np.zeros(slots)
        remaining_s = remaining_work_s(self.estimator, snapshot)
        for row in np.flatnonzero(holding(snapshot.jobs)).tolist():
            used[: math.ceil(min(max(float(remaining_s[row]), slot_s) / slot_s, slots))] += snapshot.jobs.gpus[row]
        return BatchWindow(now_s, slot_s, used, capacity)

    def _changes(self, snapshot: Snapshot, plan: dict[str, Floats], planned: Bools) -> JobChanges | None:
        """Sizes of those that wait for their run, and their start if they may not start before."""
        jobs, waits = snapshot.jobs, snapshot.jobs.pending & active(snapshot)
        other = waits & planned & (plan["batch_gpus"] != jobs.gpus)
        sizes = np.where(other, plan["batch_gpus"], 0).astype(np.int32)
        held = waits & (not self.fill)
        start: Floats = np.where(held, np.where(planned, plan["begin_s"], np.inf), -np.inf)
        if not other.any() and not held.any():
            return None
        return JobChanges(gpus=sizes if other.any() else None, start_s=start if held.any() else None)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the window is over, where somebody waits [Unix s]."""
        waits = (~running & active(snapshot)).any()
        until_s = _batch(ranking.carry)["until_s"]
        return until_s if waits and until_s > snapshot.now_s else np.inf


def _batch(carry: Any) -> dict[str, float]:
    """The last window of a carry; one that is over if there is none."""
    carried = carry.get(_BATCH)
    if isinstance(carried, dict) and {"length_s", "until_s", "left"} <= set(carried):
        return {name: float(carried[name]) for name in ("length_s", "until_s", "left")}
    return {"length_s": 0.0, "until_s": -math.inf, "left": 0.0}


def _notes(snapshot: Snapshot, remaining_s: Floats, unplanned: Bools) -> tuple[str, ...]:
    blind, out = int((active(snapshot) & np.isinf(remaining_s)).sum()), int(unplanned.sum())
    count = pluralize(blind, "job has", "jobs have")
    notes = [f"{count} no expected run time: in no batch, by attained service"] if blind else []
    notes += [f"{pluralize(out, 'job waits', 'jobs wait')} for the next batch"] if out else []
    return tuple(notes)
