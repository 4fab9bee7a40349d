"""What a sentence on a blocker is made from."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.explain.facts import Facts
from slurmsched.model.limits import LimitValue
from slurmsched.model.reasons import Reason
from slurmsched.model.snapshot import Snapshot

Said = tuple[str, tuple[str, ...]]  # because, and what would change it


@dataclass(frozen=True, slots=True)
class Case:
    """One job. limits: those of the kind that blocks. rivals: rows of jobs that Slurm ranks before it, that may start
    and compete for its nodes."""

    snapshot: Snapshot
    row: int
    reason: Reason
    facts: Facts
    limits: tuple[LimitValue, ...] = ()
    rivals: tuple[int, ...] = ()

    @property
    def job_id(self) -> int:
        return int(self.snapshot.jobs.job_id[self.row])
