"""Deadlines promised by packing leases, best effort in what they leave: Chronus."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.allocation.job_memory import job_keys, recall, remembered
from slurmsched.allocation.job_times import (
    active,
    cluster_gpus,
    deadline_s,
    expected_remaining_s,
    missing_time_notes,
    service,
)
from slurmsched.allocation.leases import (
    EXACT_S,
    DeadlineJob,
    Interval,
    LeaseDemand,
    LeasePacking,
    LeasePlan,
    contenders,
    leases,
    pack_by_programme,
    pack_greedily,
    who_gets_gpus,
    with_more,
)
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Period, check_choice, check_ranges
from slurmsched.model.policy_info import DEADLINE_NOT_PROMISED, NEEDS_PREEMPTION, ROUNDS_ARE_LEASES
from slurmsched.plain_text import pluralize, pluralize_of
from slurmsched.protocols import Estimator

_PACKINGS = {"milp": pack_by_programme, "greedy": pack_greedily}
_PLAN = "lease_plan"  # in a carry: until when nobody is asked again, and the times of promised jobs
_ASKED = "admitted"  # in a carry, by job: 1 where its deadline is promised, 0 where it is not


@dataclass(frozen=True, slots=True)
class Chronus:
    """Promises a deadline if all promises can be kept together. Best effort fills the rest, in leases.

    Jobs whose planned time is now go first. Then best-effort jobs by remaining service, then promised jobs whose time
    comes later. A job whose deadline cannot be promised is best effort. If run times are exact and GPUs can be taken at
    any time, no promise is broken. Without an expected run time, best effort goes by attained service.
    lease_s: how long a best-effort job keeps GPUs from other best-effort jobs, and time until a deadline that was not
        promised is considered again [s].
    packing: if not all deadlines fit, "milp" promises as many as possible, "greedy" goes by slack and is faster.
    most_jobs: most deadline jobs of one plan, promised ones first, then the earliest deadlines.
    estimator: source of expected run times.
    Raises ConfigError for a parameter out of range.
    Source: Gao et al. (Chronus), SoCC '21, for leases, admission and both packings. Ours: promised jobs take GPUs from
    best effort within its lease; jobs are planned to the second, as early as possible; considering again; most_jobs.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DEADLINE,
        "Gao et al.: Chronus, SoCC 2021",
        packages=("scipy",),
        left_out=(
            "The choice of nodes: whole nodes for large jobs, and exchanging small jobs by profiled slowdown.",
            "The placement chooses nodes.",
        ),
        needs=(PolicyInput.DEADLINE, PolicyInput.DURATION, PolicyInput.SERVICE),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(
            NEEDS_PREEMPTION,
            ROUNDS_ARE_LEASES,
            DEADLINE_NOT_PROMISED,
        ),
        criteria={"in_lease": "in its lease", "remaining_gpu_s": "has {} to go", "deadline_s": "deadline {at}"},
    )

    lease_s: Period = 1_200.0
    packing: str = "milp"
    most_jobs: Count = 60
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("packing", self.packing, tuple(_PACKINGS))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, held_leases = snapshot.jobs, leases(snapshot, self.lease_s)
        remaining_s, due_s = expected_remaining_s(self.estimator, snapshot), deadline_s(jobs)
        plan, until_s, notes = self._planned(snapshot, remaining_s, due_s)
        now = np.zeros(len(jobs), np.bool_)
        now[[row for row, times in plan.times.items() if times[0][0] <= snapshot.now_s + EXACT_S]] = True
        admitted = np.zeros(len(jobs), np.bool_)
        admitted[list(plan.times)] = True
        group = np.where(now, 0, np.where(admitted, 2, 1))
        remaining_gpu_s = service(remaining_s, jobs)
        key = np.where(group == 1, remaining_gpu_s, due_s - np.where(np.isfinite(remaining_s), remaining_s, 0.0))
        order = ordered(jobs, ~now, ~held_leases.in_force, group, key, jobs.attained_gpu_s)
        renewed = held_leases.renewed(
            who_gets_gpus(snapshot, order, held_leases.in_force | contenders(snapshot, held_leases))
        )
        keys = job_keys(jobs)
        times = {keys[row]: plan.times[row] for row in sorted(plan.times)}
        carry = {**remembered(jobs, renewed | {_ASKED: admitted.astype(np.float64)}),
                 _PLAN: {"until_s": until_s, "times": times}}  # fmt: skip
        why = {
            "in_lease": held_leases.in_force,
            "group": group,
            "remaining_gpu_s": remaining_gpu_s,
            "deadline_s": due_s,
        }
        return Ranking(
            order, why=why, carry=carry, notes=(*missing_time_notes(active(snapshot), due_s, remaining_s), *notes)
        )

    def _planned(
        self, snapshot: Snapshot, remaining_s: Floats, due_s: Floats
    ) -> tuple[LeasePlan, float, tuple[str, ...]]:
        """The plan by row, until when nobody is asked again [Unix s], and what is to be said of it.

        Jobs are asked about when a deadline job is new, and at the end of each lease. Between, the plan stands.
        """
        known = np.isfinite(due_s) & np.isfinite(remaining_s) & (remaining_s > EXACT_S)
        until_s, promised = _kept(snapshot.carry)
        keys = job_keys(snapshot.jobs)
        ours = np.array([key in promised for key in keys], np.bool_) & ~snapshot.jobs.finished
        asking = known & active(snapshot)
        rows = np.flatnonzero(asking | (known & ours)).tolist()  # one that is being requeued keeps its promise
        gpus = snapshot.jobs.gpus
        asked = {row: DeadlineJob(int(gpus[row]), float(remaining_s[row]), float(due_s[row])) for row in rows}
        times = {row: promised[keys[row]] for row in rows if keys[row] in promised}
        plan, broken = _standing(snapshot, asked, times)
        notes = (
            [f"{pluralize(broken, 'promised deadline')} cannot be kept any more: run times or GPUs are not as expected"]
            if broken
            else []
        )
        new = asking & np.isnan(recall(snapshot.jobs, snapshot.carry, (_ASKED,))[_ASKED])
        if snapshot.now_s >= until_s or new.any():
            until_s = snapshot.now_s + self.lease_s
            plan, proven = self._more(snapshot, plan, asked)
            notes += [] if proven else ["the search for the best plan was cut short: more deadlines may be possible"]
        out = len(rows) - len(plan.times)
        refused = [f"{pluralize_of(out, len(rows), 'deadline', 'is', 'are')} not promised: best effort"] if out else []
        return plan, until_s, (*refused, *notes)

    def _more(self, snapshot: Snapshot, plan: LeasePlan, asked: dict[int, DeadlineJob]) -> tuple[LeasePlan, bool]:
        """The plan with the jobs that can be promised their deadlines too, and whether a search was cut."""
        due = sorted(asked, key=lambda row: (asked[row].due_s, snapshot.jobs.job_id[row]))
        may = [row for row in due if row not in plan.jobs and _possible(asked[row], snapshot.now_s, plan.gpus)]
        may = may[: max(self.most_jobs - len(plan.jobs), 0)]
        by_deadline = with_more(plan, asked, may)
        if len(by_deadline.jobs) == len(plan.jobs) + len(may):
            return by_deadline, True
        rows = [row for row in due if row in plan.jobs or row in may]
        packing = self._packed(snapshot.now_s, [asked[row] for row in rows], [row in plan.jobs for row in rows],
                               plan.gpus)  # fmt: skip
        named = {row for row, admitted in zip(rows, packing.admitted.tolist(), strict=True) if admitted}
        by_packing = with_more(plan, asked, sorted(may, key=lambda row: row not in named))
        better = len(by_packing.jobs) > len(by_deadline.jobs)
        return by_packing if better else by_deadline, packing.proven

    def _packed(self, now_s: float, jobs: list[DeadlineJob], firm: list[bool], gpus: int) -> LeasePacking:
        """The jobs whose deadlines a plan in whole leases would promise."""
        needed = [math.ceil(job.remaining_s / self.lease_s - 1e-9) for job in jobs]
        within = [math.floor(min(job.due_s - now_s, 1e9) / self.lease_s + 1e-9) for job in jobs]
        size = np.array([job.gpus for job in jobs], np.int64)
        demand = LeaseDemand(size, np.array(needed, np.int64), np.array(within, np.int64), np.array(firm, np.bool_))
        return _PACKINGS[self.packing](demand, gpus)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next lease of those that hold GPUs is over, or the next time of the plan begins or ends [Unix s]."""
        held_leases = leases(snapshot, self.lease_s)
        end_s = held_leases.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)
        until_s, promised = _kept(ranking.carry)
        planned = bool(((ranking.why["deadline_s"] < np.inf) & ~snapshot.jobs.finished).any())
        times = [at_s for times in promised.values() for part in times for at_s in part]
        soon_s = min((at_s for at_s in times if at_s > snapshot.now_s + EXACT_S), default=math.inf)
        return min(end_s, soon_s, until_s if planned else math.inf)


def _possible(job: DeadlineJob, now_s: float, gpus: int) -> bool:
    """Whether the job would be in time if it ran alone."""
    return 0 < job.gpus <= gpus and now_s + job.remaining_s <= job.due_s + EXACT_S


def _standing(
    snapshot: Snapshot, asked: dict[int, DeadlineJob], times: dict[int, list[Interval]]
) -> tuple[LeasePlan, int]:
    """The plan of those promised before, and how many of them can be in time no more.

    All are planned anew by their deadlines if that keeps all, since a job that ended early leaves room. Else each keeps
    its times. A job that lost them (a node is down, a run was longer than expected) is asked as if new.
    """
    gpus = cluster_gpus(snapshot)
    firm = {row: asked[row] for row in sorted(times, key=lambda row: (asked[row].due_s, row))}
    plan = LeasePlan(snapshot.now_s, gpus)
    if plan.earliest_first(firm):
        return plan, 0
    plan = LeasePlan(snapshot.now_s, gpus)
    lost = [row for row, job in firm.items() if not plan.keep(row, job, times[row])]
    return plan, sum(not plan.add(row, firm[row]) for row in lost)


def _kept(carry: Any) -> tuple[float, dict[str, list[Interval]]]:
    """Until when nobody is asked again [Unix s], and the times of promised jobs by their keys, of a carry."""
    plan = carry.get(_PLAN)
    if not isinstance(plan, dict) or not {"until_s", "times"} <= plan.keys():
        return -math.inf, {}
    return float(plan["until_s"]), {str(job): [list(map(float, part)) for part in times]
                                    for job, times in plan["times"].items()}  # fmt: skip
