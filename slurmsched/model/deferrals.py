"""Deferrals: earliest starts that we gave pending jobs because the policy wants them later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deferral:
    """An earliest start that we gave a job. Lives beside the journal.

    until_s: the start it has by us [Unix s]; 0 once it may start again. Only jobs that may start by themselves get one,
    so that there is none of their user's to keep. over: somebody else changed it: from then on the job is left alone.
    note: why, for people.
    """

    job_id: int
    submit_s: float
    until_s: float
    over: bool = False
    note: str = ""

    @property
    def open(self) -> bool:
        """Whether the job may have a start of ours."""
        return self.until_s > 0
