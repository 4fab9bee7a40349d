"""What a sentence on a blocker is made from."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.explain.facts import Facts
from slurmsched.model.limits import LimitValue
from slurmsched.model.reasons import Reason
from slurmsched.model.snapshot import Snapshot

Said = tuple[str, tuple[str, ...]]  # because, and what would change it
SMALLER = "a smaller request may start now: slurmsched fit"


@dataclass(frozen=True, slots=True)
class Case:
    """One job. limits: those of the kind that blocks."""

    snapshot: Snapshot
    row: int
    reason: Reason
    facts: Facts
    limits: tuple[LimitValue, ...] = ()

    @property
    def job_id(self) -> int:
        return int(self.snapshot.jobs.job_id[self.row])
