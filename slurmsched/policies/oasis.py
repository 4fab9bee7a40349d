"""Admission by online prices: OASiS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.allocation.elastic import (
    SlotPlan,
    Timetable,
    cheapest_plans,
    intervals_of,
    promise,
    promised,
    sizes_of,
    slot_prices,
    timetable,
    without_curve,
)
from slurmsched.allocation.job_memory import ORIGIN, job_keys, origin_s
from slurmsched.allocation.job_times import active, cluster_gpus, deadline_s, remaining_work_s
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.parameters import Count, Part, Period, Range, SlotCount, Weight, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.plain_text import pluralize
from slurmsched.protocols import Estimator, SpeedEstimator

_KEY = "oasis"  # in a carry: by job, the intervals promised; none for a job that was refused
NOW, OVERRUN, LATER, OUT = range(4)


@dataclass(frozen=True, slots=True)
class Oasis:
    """Admits a job if it is worth more than the GPUs of its best plan cost. Prices rise with what is promised.

    A job without a deadline is worth half whenever it ends. A job without an expected run time cannot be planned: it
    comes last, by attained service, like rejected jobs.
    least_price: price of a GPU hour in a slot without promises. Where everything is promised it is 1, the worth of a
        GPU hour in time.
    steepness: how fast the worth falls around the deadline, relative to the time from submission to it.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    slot_s: length of the first slots of the plan [s].
    slots: slots of the plan.
    fill: jobs before their planned time, and rejected jobs, may have idle GPUs. False: they wait.
    most_jobs: most new jobs of one cycle.
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times.
    Raises ConfigError for a parameter out of range.
    Source: Bao et al. (OASiS), INFOCOM 2018, for prices, best plans and admission for good. Ours: GPUs as the only
    resource, the scaling curve, fill, worth in GPU hours.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DEADLINE,
        "Bao, Peng, Wu, Li: OASiS, INFOCOM 2018",
        left_out=(
            "Resources other than GPUs, and their prices.",
            "Utilities of any form: the worth falls around the deadline along one curve.",
        ),
        needs=(PolicyInput.DEADLINE, PolicyInput.DURATION, PolicyInput.SIZES),
        uses=(PolicyLever.ORDER, PolicyLever.START, PolicyLever.SIZE, PolicyLever.REQUEUE),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            "A job that is refused is not turned away: it waits behind those admitted, and the plan says how many do.",
            "Parameter servers and workers are not told apart: a job is its GPUs.",
        ),
        criteria={"planned_gpus": "planned on {} GPUs", "start_s": "planned from {at}", "deadline_s": "deadline {at}"},
    )

    least_price: Annotated[float, Range(1e-6, 1.0)] = 0.01
    steepness: Weight = 10.0
    serial: Part = 0.02
    slot_s: Period = 600.0
    slots: SlotCount = 40
    fill: bool = True
    most_jobs: Count = 200
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, keys = snapshot.jobs, job_keys(snapshot.jobs)
        remaining_s, due_s = remaining_work_s(self.estimator, snapshot), deadline_s(snapshot.jobs)
        plans, undecided = self._plans(snapshot, keys, remaining_s, due_s)
        group, gpus, start_s = _standing(snapshot, keys, plans)
        order = ordered(jobs, group, np.where(group == OUT, jobs.attained_gpu_s, start_s))
        who = active(snapshot)
        refused = int((who & (group == OUT) & np.isfinite(remaining_s)).sum()) - undecided
        blind = int((who & np.isinf(remaining_s)).sum())
        cheap, unknown = pluralize(refused, "job is", "jobs are"), pluralize(blind, "job has", "jobs have")
        notes = [f"{cheap} worth less than the GPUs of any plan cost: last"] if refused > 0 else []
        notes += [f"{unknown} no expected run time: last, by attained service"] if blind else []
        notes += without_curve(snapshot, who, self.speeds)
        why = {"standing": group, "planned_gpus": gpus, "start_s": start_s, "deadline_s": due_s}
        carry = {_KEY: plans, ORIGIN: origin_s(snapshot)}
        return Ranking(
            order, why=why, carry=carry, notes=tuple(notes), changes=self._changes(snapshot, group, gpus, start_s)
        )

    def _plans(
        self, snapshot: Snapshot, keys: list[str], remaining_s: Floats, due_s: Floats
    ) -> tuple[dict[str, list[list[float]]], int]:
        """The plans of active jobs, new ones included, by job; and how many jobs are put off to the next cycle."""
        who = active(snapshot) & np.isfinite(remaining_s)
        carried = promised(snapshot.carry, _KEY)
        here = {keys[row] for row in np.flatnonzero(~snapshot.jobs.finished).tolist()}
        plans = {job: plan for job, plan in carried.items() if job in here}
        order = ordered(snapshot.jobs)
        new = [row for row in order[who[order]].tolist() if keys[row] not in plans]
        if not new:
            return plans, 0
        table = timetable(snapshot.now_s, self.slot_s, self.slots, cluster_gpus(snapshot), origin_s(snapshot))
        for plan in plans.values():
            promise(table, plan)
        now = new[: self.most_jobs]
        for row, sizes in zip(now, sizes_of(snapshot, now, self.serial, self.speeds), strict=True):
            price = slot_prices(table, cluster_gpus(snapshot), self.least_price)
            found = cheapest_plans(sizes, max(float(remaining_s[row]), 1.0), table, price)
            plans[keys[row]] = self._admitted(snapshot, row, found, table, float(remaining_s[row]), float(due_s[row]))
        return plans, len(new) - len(now)

    def _admitted(
        self, snapshot: Snapshot, row: int, found: list[SlotPlan], table: Timetable, remaining_s: float, due_s: float
    ) -> list[list[float]]:
        """The plan that is worth most above its cost, entered into the table; none if none is worth its cost."""
        came_s = float(arrival_s(snapshot.jobs)[row])
        gpu_h = max(remaining_s, 1.0) * float(snapshot.jobs.gpus[row]) / 3_600.0
        gains = [gpu_h * self.worth(choice.end_s, came_s, due_s) - choice.cost for choice in found]
        if not gains or max(gains) <= 0:
            return []
        best = found[int(np.argmax(gains))]
        table.take(best.gpus)
        return intervals_of(best.gpus, table)

    def worth(self, end_s: float, came_s: float, due_s: float) -> float:
        """Worth of a GPU hour of a job that ends then, 0 to 1: a sigmoid around the deadline. Times [Unix s]."""
        if np.isinf(due_s):
            return 0.5
        late = (end_s - due_s) / max(due_s - came_s, 1.0)
        return float(1.0 / (1.0 + np.exp(np.clip(self.steepness * late, -500.0, 500.0))))

    def _changes(self, snapshot: Snapshot, group: Int64s, gpus: Int64s, start_s: Floats) -> JobChanges | None:
        """Sizes that differ from the request, and the start of each job that must wait."""
        due = (group == NOW) & (gpus != snapshot.jobs.gpus)
        sizes = np.where(due, gpus, 0).astype(np.int32)
        waits = np.isin(group, (LATER, OUT)) & active(snapshot) & (not self.fill)
        start: Floats = np.where(waits, start_s, -np.inf)
        if not due.any() and not waits.any():
            return None
        return JobChanges(gpus=sizes if due.any() else None, start_s=start if waits.any() else None)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next promised interval begins or ends [Unix s], infinity if none does."""
        times = [at_s for plan in promised(ranking.carry, _KEY).values() for part in plan for at_s in part[:2]]
        return min((at_s for at_s in times if at_s > snapshot.now_s), default=np.inf)


def _standing(
    snapshot: Snapshot, keys: list[str], plans: dict[str, list[list[float]]]
) -> tuple[Int64s, Int64s, Floats]:
    """By row: whether it is due now, overran its promise, is due later or is out; GPUs promised now; when it is due
    next [Unix s], infinity if never. (N,) each."""
    count, now_s = len(keys), snapshot.now_s
    group, gpus, start_s = np.full(count, OUT, np.int64), np.zeros(count, np.int64), np.full(count, np.inf)
    for row, key in enumerate(keys):
        if not (plan := plans.get(key)):
            continue
        begin_s, end_s, held = next((part for part in plan if part[1] > now_s), (np.inf, np.inf, 0.0))
        group[row] = OVERRUN if np.isinf(end_s) else (NOW if begin_s <= now_s else LATER)
        start_s[row], gpus[row] = begin_s, int(held) if group[row] == NOW else 0
    return group, gpus, start_s
