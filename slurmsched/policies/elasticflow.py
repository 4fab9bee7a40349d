"""Deadlines promised by least shares, spare GPUs by what they save: ElasticFlow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.cards import PREEMPTS, PROMISED, RESIZES
from slurmsched.policies.deadlines import active, cluster_gpus, deadline_s, missing
from slurmsched.policies.expected import remaining_s, service
from slurmsched.policies.memory import ORIGIN, origin_s, recall, remembered
from slurmsched.policies.order import ordered
from slurmsched.policies.ranges import Count, Part, Period, Slots, check_ranges
from slurmsched.policies.spare import Share, spread
from slurmsched.policies.timetable import Sizes, Timetable, filled, sizes_of, timetable, without_curve
from slurmsched.protocols import Estimator, SpeedEstimator
from slurmsched.words import some_of

_KEPT = ("admitted", "given_gpus")  # in a carry, by job
_ROUND = "elastic_round"  # in a carry: when the next one begins


@dataclass(frozen=True, slots=True)
class ElasticFlow:
    """Each deadline job has the fewest GPUs that end it in time; spare GPUs go where they cost least GPU time.

    serial: part of a job's work that more GPUs do not speed up; the scaling curve is Amdahl's law with it.
    slot_s: length of the first slots of the plan, and time between two changes of sizes [s]. slots: of the plan.
    most_jobs: deadline jobs that are planned, those promised before and then in order of submission.
    speeds: where a table knows a job's speed by number of GPUs, its curve counts in the place of Amdahl's law.
    estimator: where expected run times come from, at the size that a job asks for.
    A job with hints min_gpus and max_gpus may have any doubling between; any other all its GPUs or none. A job whose
    deadline cannot be promised is best effort. Best effort starts by least remaining service, without an expected run
    time by attained service.
    Raises ConfigError for a parameter out of range.
    Source: Gu et al. (ElasticFlow), ASPLOS '23, for minimum satisfactory share, admission and elastic allocation. The
    curve where no table has a profiled one, slots that grow, and best effort in place of turning away are ours.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.DEADLINE,
        "Gu et al.: ElasticFlow, ASPLOS 2023",
        left_out=("Throughputs profiled by placement: a curve is by number of GPUs.",),
        needs=(Input.DEADLINE, Input.DURATION, Input.SIZES),
        uses=(Use.ORDER, Use.SIZE, Use.REQUEUE),
        on_slurm=(
            PREEMPTS,
            RESIZES,
            PROMISED,
            "Sub-trees of powers of two are left to the placement.",
        ),
    )

    serial: Part = 0.02
    slot_s: Period = 600.0
    slots: Slots = 40
    most_jobs: Count = 200
    speeds: SpeedEstimator = field(default_factory=Alike)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, left_s, due_s = snapshot.jobs, remaining_s(self.estimator, snapshot), deadline_s(snapshot.jobs)
        known, begins_s = recall(jobs, snapshot.carry, _KEPT), _begins_s(snapshot.carry)
        wants = active(snapshot) & np.isfinite(due_s) & np.isfinite(left_s) & (left_s > 0)
        kept = {name: np.where(np.isnan(column), 0.0, column) for name, column in known.items()}
        if snapshot.now_s >= begins_s or (wants & np.isnan(known["admitted"])).any():
            kept = self._planned(snapshot, left_s, due_s, wants, kept["admitted"] > 0)
            begins_s = snapshot.now_s + self.slot_s
        admitted, given = (kept["admitted"] > 0) & wants, np.where(active(snapshot), kept["given_gpus"], 0.0)
        order = ordered(jobs, given == 0, ~admitted, np.where(admitted, due_s, service(left_s, jobs)),
                        jobs.attained_gpu_s)  # fmt: skip
        why = {"given_gpus": given.astype(np.int64), "admitted": admitted, "deadline_s": due_s}
        carry = dict(remembered(jobs, {"admitted": admitted.astype(np.float64), "given_gpus": given}))
        return Ranking(order, why=why, carry=carry | {_ROUND: {"begins_s": begins_s}, ORIGIN: origin_s(snapshot)},
                       notes=(*_notes(snapshot, wants, admitted, due_s, left_s),
                              *without_curve(snapshot, active(snapshot), self.speeds)),
                       wants=_wants(snapshot, given))  # fmt: skip

    def _planned(
        self, snapshot: Snapshot, left_s: Floats, due_s: Floats, wants: Bools, before: Bools
    ) -> dict[str, Floats]:
        """Who is promised its deadline, and GPUs of each job from now on."""
        gpus, count = cluster_gpus(snapshot), len(wants)
        order = ordered(snapshot.jobs, ~before)
        rows = order[wants[order]][: self.most_jobs].tolist()
        sizes = dict(zip(rows, sizes_of(snapshot, rows, self.serial, self.speeds), strict=True))
        promised = self._fill(snapshot, {row: sizes[row] for row in rows if before[row]}, left_s, due_s)
        for row in rows:
            if before[row]:
                continue
            asked = {each: sizes[each] for each in (*promised, row)}
            found = self._fill(snapshot, asked, left_s, due_s)
            promised = found if len(found) == len(asked) else promised
        given = np.zeros(count, np.int64)
        for row, share in promised.items():
            given[row] = share[0]
        self._spare(snapshot, left_s, given, gpus)
        admitted = np.zeros(count)
        admitted[list(promised)] = 1.0
        return {"admitted": admitted, "given_gpus": given.astype(np.float64)}

    def _fill(self, snapshot: Snapshot, sizes: dict[int, Sizes], left_s: Floats, due_s: Floats) -> dict[int, Int64s]:
        """GPUs in each slot of those that can be in time, earliest deadline first, by row."""
        table, plans, ids = self._table(snapshot), dict[int, Int64s](), snapshot.jobs.job_id
        for row in sorted(sizes, key=lambda row: (due_s[row], ids[row])):
            plan = filled(sizes[row], float(left_s[row]), float(due_s[row]), table)
            if plan is not None:
                table.take(plan)
                plans[row] = plan
        return plans

    def _table(self, snapshot: Snapshot) -> Timetable:
        return timetable(snapshot.now_s, self.slot_s, self.slots, cluster_gpus(snapshot), origin_s(snapshot))

    def _spare(self, snapshot: Snapshot, left_s: Floats, given: Int64s, gpus: int) -> None:
        """Hand out what the promises leave of this slot, into `given`: first to best effort, then as larger sizes."""
        jobs, who = snapshot.jobs, active(snapshot)
        order = ordered(jobs, given == 0, service(left_s, jobs), jobs.attained_gpu_s)
        rows = order[who[order]][: max(gpus, 1)].tolist()
        sizes = sizes_of(snapshot, rows, self.serial, self.speeds)
        shares = [Share(row, each, float(left_s[row]), int(given[row])) for row, each in zip(rows, sizes, strict=True)]
        for share in spread(shares, gpus - int(given.sum())):
            given[share.row] = share.gpus

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity where nobody is."""
        return _begins_s(ranking.carry) if active(snapshot).any() else np.inf


def _wants(snapshot: Snapshot, given: Floats) -> Wants | None:
    """Sizes that differ from what is asked for."""
    gpus = np.where((given > 0) & (given != snapshot.jobs.gpus), given, 0).astype(np.int32)
    return Wants(gpus=gpus) if gpus.any() else None


def _notes(snapshot: Snapshot, wants: Bools, admitted: Bools, due_s: Floats, left_s: Floats) -> tuple[str, ...]:
    out = int((wants & ~admitted).sum())
    told = (f"{some_of(out, int(wants.sum()), 'deadline', 'is', 'are')} not promised: best effort",) if out else ()
    return (*missing(active(snapshot), due_s, left_s), *told)


def _begins_s(carry: Any) -> float:
    """When the next round of a carry begins, -infinity without one."""
    kept = carry.get(_ROUND)
    return float(kept["begins_s"]) if isinstance(kept, dict) and "begins_s" in kept else -np.inf
