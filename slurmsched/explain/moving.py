"""Whether a running job may be asked to make way for another one, and what its restart counts as."""

from __future__ import annotations

from slurmsched.config import Preemption, Scope
from slurmsched.model.snapshot import Snapshot
from slurmsched.placements.candidates import holding
from slurmsched.planning.victims import VICTIM_RULES, case_of, cost_s, cost_source, verdicts


def moving(snapshot: Snapshot, row: int, limits: Preemption, scope: Scope) -> str:
    """In words; "" for a job that holds no GPUs, and where preemption is off."""
    if not limits.enabled or not holding(snapshot.jobs)[row]:
        return ""
    case = case_of(snapshot, limits, scope)
    rule = int(verdicts(case)[row])
    may = "it may be asked to make way" if rule < 0 else f"it keeps its GPUs: {VICTIM_RULES[rule].reason}"
    return f"{may}; a restart counts as {cost_s(case)[row]:.0f} s, by {cost_source(snapshot.jobs, row)}"
