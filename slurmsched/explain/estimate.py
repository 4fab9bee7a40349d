"""When a job may start: a range with its source, or none with the reason. Source: ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan

import numpy as np

from slurmsched.model.acts import Act
from slurmsched.model.reasons import Blocker
from slurmsched.model.snapshot import Snapshot
from slurmsched.words import some

LEAST = 10  # waits, below which the past tells nothing
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
class Estimate:
    """earliest_s, latest_s: [Unix s], NaN where there is none. source: "promise", "history", "plan" or "none".
    slurm_s: Slurm's own expectation, NaN where it has none."""

    source: str
    why: str
    earliest_s: float = nan
    latest_s: float = nan
    slurm_s: float = nan


def estimate(
    snapshot: Snapshot, row: int, blocker: Blocker, acts: Sequence[Act], waits_s: Sequence[float], slurm_s: float
) -> Estimate:
    """For a job that waits. acts: open ones. waits_s: of first starts of jobs of about its size."""
    job_id, now_s = int(snapshot.jobs.job_id[row]), snapshot.now_s
    promised = [act.promised_s for act in acts if act.job_id == job_id and act.promised_s > 0]
    if promised:
        return Estimate("promise", "nodes are kept for it", now_s, max(promised[0], now_s), slurm_s)
    if blocker in NOT_BY_WAITING:
        return Estimate("none", NOT_BY_WAITING[blocker], slurm_s=slurm_s)
    return _by_waits(snapshot, row, waits_s, slurm_s)


def by_turns(none: Estimate, planned_s: tuple[float, float], before: int) -> Estimate:
    """From the plan, where the past tells nothing of a blocker of BY_TURNS. planned_s: of by_plan. before: how many."""
    if not all(map(isfinite, planned_s)):
        return none
    jobs = some(before, "job")
    turn = (
        f"from its start if it were next, to that after the {jobs} before it that may start" if before else "it is next"
    )
    counted = (
        "GPUs of nodes that lack nothing else count, every job runs to its time limit, and no new one comes before it"
    )
    told = f"{turn}; {counted} ({none.why})"
    return replace(none, source="plan", why=told, earliest_s=planned_s[0], latest_s=planned_s[1])


def _by_waits(snapshot: Snapshot, row: int, waits_s: Sequence[float], slurm_s: float) -> Estimate:
    """What is left of the waits that were longer than its own so far."""
    since_s = float(snapshot.jobs.submit_s[row])
    waited_s = snapshot.now_s - since_s if isfinite(since_s) else inf
    longer = np.array([wait_s - waited_s for wait_s in waits_s if wait_s > waited_s])
    if len(longer) < LEAST:
        told = f"{some(len(longer), 'job')} of its size on record waited longer than it has, {LEAST} are needed"
        told = told if len(waits_s) else "no past waits are known"
        return Estimate("none", told, slurm_s=slurm_s)
    low, high = np.quantile(longer, SHARES)
    told = f"8 of 10 of the {len(longer)} jobs of its size that waited longer than it has"
    begin_s = float(snapshot.jobs.eligible_s[row])
    soon_s, late_s = snapshot.now_s + float(low), snapshot.now_s + float(high)
    if begin_s > soon_s:
        return Estimate("history", f"{told}, not before its begin time", begin_s, max(late_s, begin_s), slurm_s)
    return Estimate("history", told, soon_s, late_s, slurm_s)
