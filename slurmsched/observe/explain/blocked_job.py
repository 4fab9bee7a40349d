"""One job that is blocked, with what a sentence on its blocker is made from."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.model.job_details import JobDetails
from slurmsched.model.reasons import LimitValue, Reason
from slurmsched.model.snapshot import Snapshot

SentenceAndChanges = tuple[str, tuple[str, ...]]  # because, and what would change it


@dataclass(frozen=True, slots=True)
class BlockedJob:
    """One job. limits: those of the kind that blocks. rivals: rows of jobs that Slurm ranks before it, that may start
    and compete for its nodes."""

    snapshot: Snapshot
    row: int
    reason: Reason
    details: JobDetails
    limits: tuple[LimitValue, ...] = ()
    rivals: tuple[int, ...] = ()

    @property
    def job_id(self) -> int:
        return int(self.snapshot.jobs.job_id[self.row])
