"""When a job may start: a range with its source, or none with the reason. Source: ours.

By the plan, a job starts when each job before it has taken its turn and every job runs to its time limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.job_details import JobDetails
from slurmsched.model.operations import Operation
from slurmsched.model.reasons import Blocker
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.explain.node_obstacles import NodeCheck
from slurmsched.plain_text import pluralize
from slurmsched.resources.by_type import one_type
from slurmsched.resources.eligibility import Exclusion, alike_rows, eligibility
from slurmsched.resources.job_request import request_of
from slurmsched.resources.partition_limits import limit_classes
from slurmsched.resources.timeline import GpuTimeline, TimelineJob

MOST_JOBS_BEFORE = 2_000  # jobs before it, tasks of arrays counted one by one


def starts_by_plan(snapshot: Snapshot, before: Sequence[int], row: int, details: JobDetails) -> tuple[float, float]:
    """The job's start [Unix s] if it were next, and after all of `before` (rows in their order); NaN if not known.

    Only GPUs are counted. Backfill and jobs that end early make it earlier, jobs that are new before it later.
    """
    jobs = snapshot.jobs
    tasks = np.maximum(jobs.array_tasks[list(before)], 1)
    if not jobs.gpus[row] or tasks.sum() > MOST_JOBS_BEFORE:
        return nan, nan
    nodes, request = EligibleNodes.of(snapshot, details), request_of(snapshot, row, details.record)
    own = _timeline_job(snapshot, row, nodes.own(row), request.whole, request.spread)
    shares = {one: nodes.share(one) for one in dict.fromkeys(before)}
    queue = [shares[one] for one in np.repeat(list(before), tasks).astype(int).tolist()]
    gpu_type = one_type(snapshot, row)
    starts_s = [
        _turn(GpuTimeline.of(snapshot, details.reservations, gpu_type), jobs_before, own)
        for jobs_before in ((), _competitors(queue, own))
    ]
    return starts_s[0], starts_s[1]


def _competitors(before: Sequence[TimelineJob], own: TimelineJob) -> list[TimelineJob]:
    """Those that may have a node that it may have, or one of another rival after them: others it passes by backfill."""
    found, contested = list[TimelineJob](), own.may
    for one in reversed(before):
        if (one.may & contested).any():
            found.append(one)
            contested = contested | one.may
    return found[::-1]


def _timeline_job(snapshot: Snapshot, row: int, may: Bools, alone: bool, spread: bool) -> TimelineJob:
    jobs, many = snapshot.jobs, max(1, int(snapshot.jobs.nodes[row]))
    gpus = int(jobs.gpus[row])
    own, limit_s = request_of(snapshot, row), float(jobs.time_limit_s[row])
    names = frozenset((*own.reservations, *own.own))
    return TimelineJob(may, gpus, -(-gpus // many), many, alone, spread, limit_s, names)


def _turn(floor: GpuTimeline, before: Sequence[TimelineJob], own: TimelineJob) -> float:
    for one in before:
        if not one.each or not floor.fits(one, one.may, floor.size):
            continue  # it holds no GPUs, or cannot start now: Slurm passes it by
        if not floor.wait(one):
            return nan
        floor.take(one)
    return floor.now_s if floor.wait(own) else nan


@dataclass(frozen=True, slots=True)
class EligibleNodes:
    """Which nodes jobs may have, whoever is there now.

    seen: the snapshot with the reservations of the facts.
    classes: see limit_classes.
    known: nodes large enough or not, by what jobs say of nodes: a queue has few kinds of these.
    """

    snapshot: Snapshot
    details: JobDetails
    seen: Snapshot
    classes: list[Int64s]
    known: dict[tuple[object, ...], Bools] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, details: JobDetails) -> EligibleNodes:
        return cls(snapshot, details, replace(snapshot, reservations=details.reservations), limit_classes(snapshot))

    def own(self, row: int) -> Bools:
        """Those that only GPUs keep the job off that asks, if anything. (N,) bool."""
        check = NodeCheck.of(self.snapshot, row, replace(self.details, reservations=JobDetails().reservations))
        not_empty = check.excluded_by(Exclusion.USER, Exclusion.NOT_EMPTY) & (self.snapshot.nodes.gpus_used > 0)
        return check.excluded_by(Exclusion.NONE, Exclusion.GPUS) | not_empty

    def ever(self, row: int) -> Bools:
        """Those that could serve the job that asks, whatever their state and whoever is there now. (N,) bool."""
        return NodeCheck.of(self.snapshot, row, self.details).found.ever

    def could(self, row: int) -> Bools:
        """As `ever`, of another job, whose record is not at hand. (N,) bool.

        One that is too large for any node may be on several: `-n` and `--gpus` alone show one.
        """
        nodes, request, may = self.snapshot.nodes, request_of(self.seen, row), self._any_size(row)
        large = (nodes.gpus >= request.gpus) & (nodes.cpus >= request.cpus) & (nodes.memory_mib >= request.memory_mib)
        return may & large if (may & large).any() else may

    def kinds(self, rows: Int64s) -> tuple[list[int], Int64s]:
        """Of these rows the first of each kind for which `could` is the same, and the kind of each row. (K,) int64."""
        jobs = self.snapshot.jobs
        texts = (jobs.partition, jobs.gpu_request, jobs.features_asked, jobs.nodes_asked, jobs.nodes_excluded,
                 jobs.reservation, jobs.gpus_by)  # fmt: skip
        numbers: list[NDArray[Any]] = [jobs.nodes, jobs.gpus, jobs.cpus, jobs.memory_mib, jobs.exclusive, *self.classes]
        codes = [np.unique(column[rows], return_inverse=True)[1].astype(np.int64) for column in numbers]
        codes += [column.codes[rows].astype(np.int64) for column in texts]
        first, kind = alike_rows(np.zeros(len(rows), np.int64), codes)
        return rows[first].tolist(), kind

    def _any_size(self, row: int) -> Bools:
        jobs = self.snapshot.jobs
        key = (jobs.partition[row], jobs.gpu_request[row], jobs.features_asked[row], jobs.nodes_asked[row],
               jobs.nodes_excluded[row], jobs.reservation[row], int(jobs.nodes[row]),
               *(int(one[row]) for one in self.classes))  # fmt: skip
        if key not in self.known:
            self.known[key] = eligibility(self.seen, request_of(self.seen, row), sized=False).ever
        return self.known[key]

    def share(self, row: int) -> TimelineJob:
        """The share that a job before it takes."""
        jobs, could, request = self.snapshot.jobs, self.could(row), request_of(self.snapshot, row)
        wide = request.spread or (
            jobs.nodes[row] <= 1 and not (could & (self.snapshot.nodes.gpus >= jobs.gpus[row])).any()
        )
        return _timeline_job(self.snapshot, row, could, request.whole, bool(wide))


LEAST_WAITS = 10  # fewest past waits for an estimate
SHARES = (0.1, 0.9)
BY_TURNS = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NOT_TRIED)  # waits for GPUs that others hold or get first
NOT_BY_WAITING = {
    Blocker.DEPENDENCY: "it depends on other jobs",
    Blocker.DEPENDENCY_NEVER: "it can never start",
    Blocker.HELD_BY_USER: "it is held", Blocker.HELD_BY_ADMIN: "it is held",
    Blocker.HELD_AFTER_FAILURE: "it is held", Blocker.RESERVATION_GONE: "it is held",
    Blocker.NOT_ALLOWED: "Slurm does not let it start", Blocker.CONSTRAINTS: "Slurm does not let it start",
    Blocker.PARTITION_LIMIT: "its request is outside the limits of its partition",
    Blocker.PARTITION_CLOSED: "its partition is closed",
    Blocker.LIMIT: "it waits for a limit, not for nodes", Blocker.LICENSES: "it waits for licences, not for nodes",
    Blocker.NODES: "nodes it needs are not there", Blocker.RESERVATION: "it waits for a reservation",
    Blocker.MAINTENANCE: "a maintenance is in its way", Blocker.ARRAY_LIMIT: "its array waits for its own tasks",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting job is expected to start.

    earliest_s, latest_s: [Unix s], NaN where there is none.
    source: "reservation", "history", "plan" or "none".
    slurm_s: Slurm's own expectation, NaN where it has none.
    """

    source: str
    why: str
    earliest_s: float = nan
    latest_s: float = nan
    slurm_s: float = nan


def start_estimate(
    snapshot: Snapshot,
    row: int,
    blocker: Blocker,
    operations: Sequence[Operation],
    waits_s: Sequence[float],
    slurm_s: float,
) -> StartEstimate:
    """For a job that waits. operations: open ones. waits_s: of first starts of jobs of about its size."""
    job_id, now_s = int(snapshot.jobs.job_id[row]), snapshot.now_s
    promised = [
        operation.promised_s for operation in operations if operation.job_id == job_id and operation.promised_s > 0
    ]
    if promised:
        return StartEstimate("reservation", "nodes are kept for it", now_s, max(promised[0], now_s), slurm_s)
    if blocker in NOT_BY_WAITING:
        return StartEstimate("none", NOT_BY_WAITING[blocker], slurm_s=slurm_s)
    return _by_waits(snapshot, row, waits_s, slurm_s)


def estimate_by_plan(none: StartEstimate, planned_s: tuple[float, float], before: int) -> StartEstimate:
    """From the plan, where the past tells nothing of a blocker of BY_TURNS. planned_s: of by_plan. before: how many."""
    if not all(map(isfinite, planned_s)):
        return none
    jobs = pluralize(before, "job")
    turn = (
        f"from its start if it were next, to that after the {jobs} before it that may start" if before else "it is next"
    )
    counted = (
        "GPUs of nodes that lack nothing else count, every job runs to its time limit, and no new one comes before it"
    )
    why = f"{turn}; {counted} ({none.why})"
    return replace(none, source="plan", why=why, earliest_s=planned_s[0], latest_s=planned_s[1])


def _by_waits(snapshot: Snapshot, row: int, waits_s: Sequence[float], slurm_s: float) -> StartEstimate:
    """The estimate from past waits that were longer than its own so far: how much longer they lasted."""
    since_s = float(snapshot.jobs.submit_s[row])
    waited_s = snapshot.now_s - since_s if isfinite(since_s) else inf
    longer = np.array([wait_s - waited_s for wait_s in waits_s if wait_s > waited_s])
    if len(longer) < LEAST_WAITS:
        why = (
            f"{pluralize(len(longer), 'job')} of its size on record waited longer than it has, {LEAST_WAITS} are needed"
        )
        why = why if len(waits_s) else "no past waits are known"
        return StartEstimate("none", why, slurm_s=slurm_s)
    low, high = np.quantile(longer, SHARES)
    why = f"8 of 10 of the {len(longer)} jobs of its size that waited longer than it has"
    begin_s = float(snapshot.jobs.eligible_s[row])
    soon_s, late_s = snapshot.now_s + float(low), snapshot.now_s + float(high)
    if begin_s > soon_s:
        return StartEstimate("history", f"{why}, not before its begin time", begin_s, max(late_s, begin_s), slurm_s)
    return StartEstimate("history", why, soon_s, late_s, slurm_s)
