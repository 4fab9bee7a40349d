"""Whether a running job may be asked to make way for another one, and what its restart counts as."""

from __future__ import annotations

from slurmsched.config import Preemption, Scope
from slurmsched.model.acts import Stage
from slurmsched.model.hints import parse_hints
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.victims import VICTIM_RULES, case_of, cost_s, cost_source, verdicts
from slurmsched.resources.held import holding


def moving(snapshot: Snapshot, row: int, limits: Preemption, scope: Scope) -> str:
    """In words; "" for a job that holds no GPUs, and where preemption is off."""
    if not limits.enabled or not holding(snapshot.jobs)[row]:
        return ""
    case = case_of(snapshot, limits, scope)
    rule = int(verdicts(case)[row])
    may = "it may be asked to make way" if rule < 0 else f"it keeps its GPUs: {VICTIM_RULES[rule].reason}"
    may = _leaving(snapshot, row) or may
    counts = f"a restart counts as {cost_s(case)[row]:.0f} s, by {cost_source(snapshot.jobs, row)}"
    loses_all = limits.without_checkpoint and parse_hints(snapshot.jobs.comment[row]).ckpt is None
    return f"{may}; {counts}" + ", and all it has done, as it has no ckpt hint" * loses_all


def _leaving(snapshot: Snapshot, row: int) -> str:
    """That this run of the job is to leave its GPUs, and for which job; "" if it is not, or not any more."""
    run = int(snapshot.jobs.job_id[row]), int(snapshot.jobs.restarts[row])
    for act in snapshot.acts:
        over = act.stage in (Stage.CLEANING, Stage.REVERSING, Stage.CLOSED)
        if not over and any((victim.job_id, victim.restarts) == run for victim in act.victims):
            return f"it is being asked to make way for job {act.job_id}"
    return ""
