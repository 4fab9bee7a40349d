"""Checks of a site for `slurmsched doctor` and `init`: settings, queue, files, choice of GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One result.

    name: what was checked.
    verdict: "ok", "warn" (works, but worse) or "fail" (does not work).
    detail: what was found.
    why: one sentence on what it does to scheduling.
    remedy: the line of slurm.conf or the command that changes it, "" = no change is needed.
    """

    name: str
    verdict: str
    detail: str
    why: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """Whether the verdict is "ok"; "warn" is not."""
        return self.verdict == "ok"
