"""Deadlines promised by least shares, spare GPUs by what they save: ElasticFlow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.allocation.elastic import (
    GrowingJob,
    JobSizes,
    Timetable,
    give_spare_gpus,
    least_share_in_time,
    sizes_of,
    timetable,
    without_curve,
)
from slurmsched.allocation.job_memory import ORIGIN, origin_s, recall, remembered
from slurmsched.allocation.job_times import (
    active,
    cluster_gpus,
    deadline_s,
    missing_time_notes,
    remaining_work_s,
    service,
)
from slurmsched.allocation.size_rounds import all_wait, size_changes
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Part, Period, SlotCount, check_ranges
from slurmsched.model.policy_info import DEADLINE_NOT_PROMISED, NEEDS_PREEMPTION, RESIZE_BY_REQUEUE
from slurmsched.plain_text import pluralize_of
from slurmsched.protocols import Estimator, SpeedEstimator

_KEPT = ("admitted", "given_gpus")  # in a carry, by job
_ROUND = "elastic_round"  # in a carry: when the next one begins


@dataclass(frozen=True, slots=True)
class ElasticFlow:
    """Each deadline job gets the fewest GPUs that end it in time. Spare GPUs go where they cost least GPU time.

    A job with hints min_gpus and max_gpus may have any doubling between them. Any other job has all its GPUs or none. A
    job whose deadline cannot be promised is best effort. Best effort starts by least remaining service; without an
    expected run time by attained service.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    slot_s: length of the first slots of the plan, and time between two changes of sizes [s].
    slots: slots of the plan.
    most_jobs: most deadline jobs of one plan, promised ones first, then in order of submission.
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Gu et al. (ElasticFlow), ASPLOS '23, for minimum satisfactory share, admission and elastic allocation. Ours:
    the curve where no table has a profiled one, slots that grow, best effort where the paper rejects a job.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DEADLINE,
        "Gu et al.: ElasticFlow, ASPLOS 2023",
        left_out=("Throughputs profiled by placement: a scaling curve depends on the number of GPUs only.",),
        needs=(PolicyInput.DEADLINE, PolicyInput.DURATION, PolicyInput.SIZES),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.REQUEUE, PolicyLever.START),
        on_slurm=(
            NEEDS_PREEMPTION,
            RESIZE_BY_REQUEUE,
            DEADLINE_NOT_PROMISED,
            "Sub-trees of powers of two are left to the placement.",
        ),
        criteria={
            "given_gpus": "given {} GPUs",
            "admitted": "its deadline was promised",
            "deadline_s": "deadline {at}",
        },
    )

    serial: Part = 0.02
    slot_s: Period = 600.0
    slots: SlotCount = 40
    most_jobs: Count = 200
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, remaining_s, due_s = snapshot.jobs, remaining_work_s(self.estimator, snapshot), deadline_s(snapshot.jobs)
        known, begins_s = recall(jobs, snapshot.carry, _KEPT), _begins_s(snapshot.carry)
        candidates = active(snapshot) & np.isfinite(due_s) & np.isfinite(remaining_s) & (remaining_s > 0)
        kept = {name: np.where(np.isnan(column), 0.0, column) for name, column in known.items()}
        idle = all_wait(snapshot, kept["given_gpus"])
        if idle or snapshot.now_s >= begins_s or (candidates & np.isnan(known["admitted"])).any():
            kept = self._planned(snapshot, remaining_s, due_s, candidates, kept["admitted"] > 0)
            begins_s = snapshot.now_s + self.slot_s
        admitted, given = (kept["admitted"] > 0) & candidates, np.where(active(snapshot), kept["given_gpus"], 0.0)
        order = ordered(jobs, given == 0, ~admitted, np.where(admitted, due_s, service(remaining_s, jobs)),
                        jobs.attained_gpu_s)  # fmt: skip
        why = {"given_gpus": given.astype(np.int64), "admitted": admitted, "deadline_s": due_s}
        carry = dict(remembered(jobs, {"admitted": admitted.astype(np.float64), "given_gpus": given}))
        return Ranking(order, why=why, carry=carry | {_ROUND: {"begins_s": begins_s}, ORIGIN: origin_s(snapshot)},
                       notes=(*_notes(snapshot, candidates, admitted, due_s, remaining_s),
                              *without_curve(snapshot, active(snapshot), self.speeds)),
                       changes=size_changes(snapshot, given.astype(np.int64), begins_s))  # fmt: skip

    def _planned(
        self, snapshot: Snapshot, remaining_s: Floats, due_s: Floats, candidates: Bools, before: Bools
    ) -> dict[str, Floats]:
        """The jobs whose deadlines are promised, and GPUs of each job from now on."""
        gpus, count = cluster_gpus(snapshot), len(candidates)
        order = ordered(snapshot.jobs, ~before)
        rows = order[candidates[order]][: self.most_jobs].tolist()
        sizes = dict(zip(rows, sizes_of(snapshot, rows, self.serial, self.speeds), strict=True))
        promised = self._fill(snapshot, {row: sizes[row] for row in rows if before[row]}, remaining_s, due_s)
        for row in rows:
            if before[row]:
                continue
            asked = {each: sizes[each] for each in (*promised, row)}
            found = self._fill(snapshot, asked, remaining_s, due_s)
            promised = found if len(found) == len(asked) else promised
        given = np.zeros(count, np.int64)
        for row, share in promised.items():
            given[row] = share[0]
        self._spare(snapshot, remaining_s, given, gpus)
        admitted = np.zeros(count)
        admitted[list(promised)] = 1.0
        return {"admitted": admitted, "given_gpus": given.astype(np.float64)}

    def _fill(
        self, snapshot: Snapshot, sizes: dict[int, JobSizes], remaining_s: Floats, due_s: Floats
    ) -> dict[int, Int64s]:
        """GPUs in each slot of those that can be in time, earliest deadline first, by row."""
        table, plans, ids = self._table(snapshot), dict[int, Int64s](), snapshot.jobs.job_id
        for row in sorted(sizes, key=lambda row: (due_s[row], ids[row])):
            plan = least_share_in_time(sizes[row], float(remaining_s[row]), float(due_s[row]), table)
            if plan is not None:
                table.take(plan)
                plans[row] = plan
        return plans

    def _table(self, snapshot: Snapshot) -> Timetable:
        return timetable(snapshot.now_s, self.slot_s, self.slots, cluster_gpus(snapshot), origin_s(snapshot))

    def _spare(self, snapshot: Snapshot, remaining_s: Floats, given: Int64s, gpus: int) -> None:
        """Hand out what the promises leave of this slot, into `given`: first to best effort, then as larger sizes."""
        jobs, who = snapshot.jobs, active(snapshot)
        order = ordered(jobs, given == 0, service(remaining_s, jobs), jobs.attained_gpu_s)
        rows = order[who[order]][: max(gpus, 1)].tolist()
        sizes = sizes_of(snapshot, rows, self.serial, self.speeds)
        shares = [
            GrowingJob(row, each, float(remaining_s[row]), int(given[row]))
            for row, each in zip(rows, sizes, strict=True)
        ]
        for share in give_spare_gpus(shares, gpus - int(given.sum())):
            given[share.row] = share.gpus

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When sizes may change next [Unix s]; infinity if there are no jobs."""
        return _begins_s(ranking.carry) if active(snapshot).any() else np.inf


def _notes(
    snapshot: Snapshot, candidates: Bools, admitted: Bools, due_s: Floats, remaining_s: Floats
) -> tuple[str, ...]:
    out = int((candidates & ~admitted).sum())
    refused = (
        (f"{pluralize_of(out, int(candidates.sum()), 'deadline', 'is', 'are')} not promised: best effort",)
        if out
        else ()
    )
    return (*missing_time_notes(active(snapshot), due_s, remaining_s), *refused)


def _begins_s(carry: Any) -> float:
    """When the next round of a carry begins, -infinity without one."""
    carried = carry.get(_ROUND)
    return float(carried["begins_s"]) if isinstance(carried, dict) and "begins_s" in carried else -np.inf
