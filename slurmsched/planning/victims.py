"""Which running jobs may give their GPUs to others, and the one reason why not for each other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import Preemption, Scope
from slurmsched.model import Jobs, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.planning import managed
from slurmsched.resources.held import Held, holding


@dataclass(frozen=True, slots=True)
class Case:
    """What the rules look at. hints: of each distinct comment, by its code."""

    snapshot: Snapshot
    limits: Preemption
    scope: Scope
    hints: tuple[Hints, ...]

    @property
    def jobs(self) -> Jobs:
        return self.snapshot.jobs

    def hinted(self, value: Callable[[Hints], float]) -> Floats:
        """value of each job's hints. (N,) float64."""
        table = np.array([value(hints) for hints in self.hints] or [0.0], np.float64)
        return table[self.jobs.comment.codes]


@dataclass(frozen=True, slots=True)
class VictimRule:
    """One reason to leave a running job its GPUs. hard: it counts after the job was chosen, too."""

    name: str
    reason: str
    catches: Callable[[Case], Bools]
    hard: bool = False


def cost_s(case: Case) -> Floats:
    """Time that moving each job costs, run time without progress [s]: its hint, else what moves of its user's jobs of
    its name have cost, else the site's default. (N,)."""
    hinted, jobs = case.hinted(lambda hints: np.nan if hints.restart_s is None else hints.restart_s), case.jobs
    otherwise = np.where(np.isnan(jobs.moved_cost_s), case.limits.restart_cost_s, jobs.moved_cost_s)
    return np.where(np.isnan(hinted), otherwise, hinted)


def cost_source(jobs: Jobs, row: int) -> str:
    """By what the cost of moving one job is known, in words."""
    if parse_hints(jobs.comment[row]).restart_s is not None:
        return "its hint"
    if np.isnan(jobs.moved_cost_s[row]):
        return "preemption.restart_cost_s"
    return f"the median of {int(jobs.moves_seen[row])} moves of its user's jobs of its name"


def realloc_factor(case: Case) -> Floats:
    """Share of a job's age that was progress if it is moved once more: (T - R d) / (T + d), at least 0. (N,) float64.

    T: age since first submitted [s]. R: moves so far. d: cost of one [s].
    Source: Qiao et al. (Pollux), OSDI '21, section 4.2.1.
    """
    jobs, cost = case.jobs, cost_s(case)
    first_s = np.where(np.isfinite(jobs.first_submit_s), jobs.first_submit_s, jobs.submit_s)
    age_s = np.maximum(np.nan_to_num(case.snapshot.now_s - first_s), 0.0)
    return np.maximum((age_s - jobs.restarts * cost) / np.maximum(age_s + cost, 1e-9), 0.0)


def _willing(case: Case) -> Bools:
    """By its own hint, or by partition, account or QOS where the job does not say no. (N,) bool."""
    jobs, limits = case.jobs, case.limits
    said = case.hinted(lambda hints: {True: 1.0, False: -1.0}.get(hints.preempt, 0.0))  # type: ignore[arg-type]
    named = jobs.qos.isin(limits.qos) | jobs.account.isin(limits.accounts)
    named |= jobs.partition.map(lambda listed: not set(listed.split(",")).isdisjoint(limits.partitions), np.bool_)
    return (said > 0) | (named & (said == 0))


def _would_lose_all(case: Case) -> Bools:
    asks = case.hinted(lambda hints: 0.0 if hints.ckpt is None else 1.0) > 0
    return ~asks & (not case.limits.without_checkpoint)


def _left_s(case: Case) -> Floats:
    """How long each job runs on: up to its limit, or its dur hint while it has not outlived that [s]. (N,)."""
    limit_s = np.nan_to_num(case.jobs.end_s - case.snapshot.now_s, nan=np.inf)
    hinted_s = case.hinted(lambda hints: np.inf if hints.dur_s is None else hints.dur_s) - case.jobs.executed_s
    return np.where(hinted_s > 0, np.minimum(limit_s, hinted_s), limit_s)


def _ends_soon(case: Case) -> Bools:
    grace_s = case.hinted(lambda hints: 0.0 if hints.ckpt is None else hints.ckpt.lead_s)
    return _left_s(case) <= cost_s(case) + np.minimum(grace_s, case.limits.grace_s)


def _in_act(case: Case) -> Bools:
    busy = {victim.job_id for act in case.snapshot.acts for victim in act.victims}
    busy |= {act.job_id for act in case.snapshot.acts}
    return np.isin(case.jobs.job_id, sorted(busy))


# The first rule that catches a job is its reason.
VICTIM_RULES = (
    VictimRule("not-running", "it does not run", lambda case: ~holding(case.jobs)),
    VictimRule("scope", "it is not in scope", lambda case: ~managed.scoped(case.jobs, case.scope), hard=True),
    VictimRule("no-gpu", "it holds no GPU that Slurm tells of", lambda case: Held.of(case.snapshot).count == 0),
    VictimRule("batch", "only batch jobs can be requeued", lambda case: ~case.jobs.batch, hard=True),
    VictimRule("cron", "a scrontab job is not requeued", lambda case: case.jobs.cron, hard=True),
    VictimRule("het", "a het job goes as a whole or not at all", lambda case: case.jobs.het_job_id > 0, hard=True),
    VictimRule("no-requeue", "it was submitted with --no-requeue", lambda case: ~case.jobs.requeueable, hard=True),
    VictimRule("act", "another preemption with it is under way", _in_act),
    VictimRule("unwilling", "neither its hint (preempt=yes) nor the site lets it be preempted", lambda c: ~_willing(c),
               hard=True),
    VictimRule("checkpoint", "it has no ckpt hint, and the site requeues none without", _would_lose_all),
    VictimRule("quantum", "it has not had its quantum yet", lambda case: case.jobs.run_s < case.limits.quantum_s),
    VictimRule("times", "it was moved often enough", lambda case: case.jobs.restarts >= case.limits.most_per_job),
    VictimRule("ends", "it ends before moving it would pay", _ends_soon),
    VictimRule("factor", "moving it costs too much of its age", lambda c: realloc_factor(c) < c.limits.least_factor),
)  # fmt: skip


def case_of(snapshot: Snapshot, limits: Preemption, scope: Scope) -> Case:
    return Case(snapshot, limits, scope, tuple(parse_hints(name) for name in snapshot.jobs.comment.names))


def never(case: Case) -> str:
    """The hard reason to leave the case's first job its GPUs, in words; "" if there is none."""
    return next((rule.reason for rule in VICTIM_RULES if rule.hard and rule.catches(case)[0]), "")


def leased(snapshot: Snapshot, job_id: int, lease_s: float) -> frozenset[int]:
    """Jobs that got GPUs of this job so lately that it must not take theirs."""
    since_s = snapshot.now_s - lease_s
    acts = (act for act in (*snapshot.past_acts, *snapshot.acts) if act.begun_s > since_s)
    return frozenset(act.job_id for act in acts if any(victim.job_id == job_id for victim in act.victims))


def verdicts(case: Case) -> NDArray[np.int8]:
    """The rule that leaves each job its GPUs: index into VICTIM_RULES, -1 for a job that may lose them. (N,) int8."""
    verdict = np.full(len(case.jobs), -1, np.int8)
    for index, rule in enumerate(VICTIM_RULES):
        verdict[(verdict < 0) & rule.catches(case)] = index
    return verdict
