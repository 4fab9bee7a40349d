"""What a report is made from: the ledger, accounting where it can be asked, and the cluster now."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path
from typing import Any

from slurmsched.config import Config
from slurmsched.daemon import assemble
from slurmsched.db import reports
from slurmsched.db.acts import acts_on_record
from slurmsched.db.lived import cycle_sums, first_apply_s, lived_since
from slurmsched.errors import InputError, LedgerError, SlurmError
from slurmsched.model.snapshot import Snapshot
from slurmsched.replay.pull import Pull
from slurmsched.report.lived import Lived, both, lived, of_history, of_snapshot
from slurmsched.slurm.reader import open_commands

SACCT, LEDGER = "sacct", "ledger"


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Of the span [since_s, until_s). source: of the jobs that ended. snapshot: None where Slurm did not answer.

    switched_s: when slurmsched first could write, NaN if it never did or nobody knows. acts, placements: rows of the
    ledger. cycles: sums of the ledger's. unread: what is missing, and why.
    """

    since_s: float
    until_s: float
    jobs: Lived
    source: str = LEDGER
    snapshot: Snapshot | None = None
    switched_s: float = nan
    acts: Sequence[dict[str, Any]] = ()
    placements: Sequence[dict[str, Any]] = ()
    cycles: dict[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    policy: str = ""

    @property
    def cluster(self) -> str:
        return self.snapshot.site.cluster if self.snapshot else ""

    @property
    def gpus(self) -> int:
        """GPUs of the cluster now, 0 where that is not known."""
        return self.snapshot.nodes.gpu_totals()["all"] if self.snapshot else 0


def gathered(config: Config, since_s: float, until_s: float, *, ask_sacct: bool = True) -> Material:
    """Everything that can be had; what cannot is told in `unread`. Nothing is written.

    Raises SlurmError where neither Slurm nor the ledger can be read: that leaves nothing to report on.
    """
    unread: list[str] = []
    facts = _ledger(config, since_s, unread)
    try:
        snapshot = _now(config, unread)
    except SlurmError as error:
        if not facts:
            raise SlurmError("; ".join((str(error), *unread))) from error
        snapshot = None
        unread.append(f"the cluster now: {error}")
    ended = _history(config, since_s, until_s, unread) if ask_sacct and snapshot is not None else None
    here = of_snapshot(snapshot) if snapshot is not None else lived(())
    past = ended if ended is not None else named(lived(facts.pop("jobs", ())), snapshot)
    facts.pop("jobs", None)
    return Material(
        since_s, until_s, both(past, here), SACCT if ended is not None else LEDGER, snapshot, **facts,
        unread=tuple(unread), policy=config.policy.name,
    )  # fmt: skip


def named(jobs: Lived, snapshot: Snapshot | None) -> Lived:
    """With user and account of those that Slurm still shows."""
    if snapshot is None:
        return jobs
    table = snapshot.jobs
    known = {job: (table.user[row], table.account[row]) for row, job in enumerate(table.job_id.tolist())}
    pairs = [known.get(job, ("", "")) for job in jobs.job_id.tolist()]
    return jobs.with_columns(user=[user for user, _ in pairs], account=[account for _, account in pairs])


def _now(config: Config, unread: list[str]) -> Snapshot:
    with assemble.assembled(config, apply=False, read_only=True) as parts:
        snapshot = parts.store.recall(parts.cluster.read())
    unread += snapshot.warnings
    return snapshot


def _history(config: Config, since_s: float, until_s: float, unread: list[str]) -> Lived | None:
    """Jobs that ended, by sacct, a day a call; None where it cannot be asked."""
    first, last = (datetime.fromtimestamp(at_s, UTC).date() for at_s in (since_s, until_s))
    with tempfile.TemporaryDirectory(prefix="slurmsched-") as folder:
        pull = Pull(open_commands(config.slurm), Path(folder), first, last + timedelta(days=1), pause_s=0.0)
        try:
            for _ in pull.run():
                pass
        except (SlurmError, InputError) as error:
            unread.append(f"accounting: {error}")
            return None
        try:
            return of_history(pull.trace())
        except InputError:
            return lived(())  # no GPU job ended


def _ledger(config: Config, since_s: float, unread: list[str]) -> dict[str, Any]:
    url = config.ledger.address
    try:
        idle_gpu_s = {act.id: act.idle_gpu_s for act in acts_on_record(config)}
        acts = [row | {"idle_gpu_s": max(row["idle_gpu_s"], idle_gpu_s.get(row["act"], 0.0))}
                for row in reports.acts_since(url, since_s)]  # fmt: skip
        switched_s = first_apply_s(url)
        return {
            "jobs": lived_since(url, since_s), "acts": acts, "placements": reports.placements(url, since_s),
            "switched_s": nan if switched_s is None else switched_s, "cycles": cycle_sums(url, since_s),
        }  # fmt: skip
    except LedgerError as error:
        unread.append(f"the ledger: {error}")
        return {}
