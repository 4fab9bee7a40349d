"""One verdict of `slurmsched doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """verdict: "ok", "warn" (works, but worse) or "fail" (does not work).

    name: what was looked at. detail: what was found. why: one sentence on what it does to scheduling.
    remedy: the line of slurm.conf or the command that changes it; "" where nothing need change.
    """

    name: str
    verdict: str
    detail: str
    why: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"


def operator_line(user: str) -> str:
    """How a user gets the Operator right: `modify` does nothing for one without association, `add` for one with."""
    return (
        f"sacctmgr add user {user} account=root adminlevel=Operator "
        f"(if it has an association: sacctmgr modify user {user} set adminlevel=Operator)"
    )
