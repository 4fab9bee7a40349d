"""Deferrals: earliest starts that we gave pending jobs because the policy wants them later."""

from __future__ import annotations

from dataclasses import dataclass

SAME_S = 1.5  # Slurm keeps whole seconds


@dataclass(frozen=True, slots=True)
class Deferral:
    """An earliest start that we gave a job. Lives beside the journal.

    until_s: the start it has by us [Unix s]; 0 once it may start again. Only jobs that may start by themselves get one,
    so that there is none of their user's to keep. over: somebody else changed it: from then on this run is left alone.
    note: why, for people. values: other starts meant for it that may be in force, as not every one that is on record
    was sent. base_s: what it had before the first of them [Unix s], 0 = not known.
    """

    job_id: int
    submit_s: float
    until_s: float
    over: bool = False
    note: str = ""
    values: tuple[float, ...] = ()
    base_s: float = 0.0

    @property
    def open(self) -> bool:
        """Whether the job may have a start of ours."""
        return self.until_s > 0

    @property
    def last_s(self) -> float:
        """The latest start that it may have by us [Unix s]."""
        return max(self.until_s, *self.values, 0.0)

    def meant(self, start_s: float) -> bool:
        """Whether this start may be one of ours."""
        return any(abs(start_s - ours_s) <= SAME_S for ours_s in (self.until_s, *self.values))
