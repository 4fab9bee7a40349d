"""The input of a report: jobs, waits and GPUs held, from the ledger, accounting and the current snapshot."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, nan
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.config import Config
from slurmsched.db.ledger_queries import (
    CycleSums,
    OperationFacts,
    PlacementFacts,
    RunFacts,
    cycle_sums,
    first_apply_s,
    placements_since,
    runs_since,
)
from slurmsched.db.operation_log import operation_facts
from slurmsched.errors import InputError, LedgerError, SlurmError, SlurmschedError
from slurmsched.model.columns import NAN, Bools, Floats, Int64s, Labels, Table, column, text_column
from slurmsched.model.gpu_use import GpuJob, MeasuredUse
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import HOLDS_NODES
from slurmsched.model.trace import RecordedTrace
from slurmsched.observe.gpu_use_sources import read_gpu_use
from slurmsched.slurm.accounting_archive import AccountingArchive
from slurmsched.slurm.gpu_accounting import ended_gpu_jobs, running_gpu_jobs
from slurmsched.slurm.reader import open_commands


@dataclass(frozen=True, slots=True, eq=False)
class ReportedJobs(Table):
    """One row a GPU job that ran. All columns are (J,), times in Unix seconds.

    submit_s: first.
    start_s: of the first run, NaN where that is not on record.
    held_s: since when GPUs were held, as far as known.
    end_s: NaN while it runs.
    executed_s: over all runs so far.
    gpu_share: part of each of its GPUs that it holds.
    """

    job_id: Int64s = column(np.int64, 0)
    user: Labels = text_column()
    account: Labels = text_column()
    gpus: Int64s = column(np.int64, 1)
    submit_s: Floats = column(np.float64, NAN)
    start_s: Floats = column(np.float64, NAN)
    held_s: Floats = column(np.float64, NAN)
    end_s: Floats = column(np.float64, NAN)
    executed_s: Floats = column(np.float64, 0.0)
    gpu_share: Floats = column(np.float64, 1.0)

    @property
    def held_gpus(self) -> Floats:
        """GPUs held, parts as fractions. (J,)."""
        return self.gpus * self.gpu_share

    @property
    def wait_s(self) -> Floats:
        """From the first submission to the first start; NaN where that is not on record."""
        return np.maximum(self.start_s - self.submit_s, 0.0)

    @property
    def ended(self) -> Bools:
        return ~np.isnan(self.end_s)

    def started_in(self, from_s: float, to_s: float) -> Bools:
        """Whether the first start is in the span."""
        return (self.start_s >= from_s) & (self.start_s < to_s)

    def gpu_s_in(self, from_s: float, to_s: float) -> Floats:
        """GPU time held within the span; a job counts from its first start to its end, pauses included."""
        end_s = np.where(self.ended, self.end_s, to_s)
        return self.held_gpus * np.maximum(np.minimum(end_s, to_s) - np.maximum(self.held_s, from_s), 0.0)


def reported_jobs(rows: Iterable[Mapping[str, Any]]) -> ReportedJobs:
    """A table of rows by column."""
    listed = list(rows)
    names = {name for row in listed for name in row}
    return ReportedJobs.build(len(listed), {name: [row[name] for row in listed] for name in names})


def reported_of_history(recorded: RecordedTrace) -> ReportedJobs:
    """Jobs that ended, by accounting. The runs of a requeued job are one, from its first start on."""
    trace = recorded.trace
    start_s, end_s = trace.start_s + recorded.origin_s, trace.start_s + trace.duration_s + recorded.origin_s
    return ReportedJobs.build(len(trace), {
        "job_id": trace.job_id, "user": trace.user, "account": trace.account, "gpus": trace.gpus,
        "submit_s": trace.submit_s + recorded.origin_s, "start_s": start_s, "held_s": start_s, "end_s": end_s,
        "executed_s": trace.duration_s, "gpu_share": trace.gpu_share,
    })  # fmt: skip


def reported_of_snapshot(snapshot: Snapshot) -> ReportedJobs:
    """Jobs that hold GPUs now. The first start of a requeued job is not known."""
    jobs = snapshot.jobs
    here = jobs.take(np.flatnonzero(jobs.is_state(HOLDS_NODES) & (jobs.held_gpus > 0) & ~np.isnan(jobs.start_s)))
    gpus = np.ceil(here.held_gpus).astype(np.int64)
    first_s = np.where(np.isnan(here.first_submit_s), here.submit_s, here.first_submit_s)
    return ReportedJobs.build(len(here), {
        "job_id": here.job_id, "user": here.user, "account": here.account, "gpus": gpus,
        "submit_s": first_s, "start_s": np.where(here.restarts == 0, here.start_s, np.nan), "held_s": here.start_s,
        "executed_s": here.run_s, "gpu_share": here.held_gpus / gpus,
    })  # fmt: skip


def reported_of_ledger(runs: Iterable[RunFacts]) -> ReportedJobs:
    """Jobs by the facts on record."""
    return reported_jobs(
        asdict(run) | {"gpus": ceil(run.gpus), "gpu_share": run.gpus / ceil(run.gpus)} for run in runs
    )  # fmt: skip


def combined_jobs(first: ReportedJobs, then: ReportedJobs) -> ReportedJobs:
    """The rows of both tables; a job id that the first has is left out of the second."""
    new = then.take(np.flatnonzero(~np.isin(then.job_id, first.job_id)))
    return ReportedJobs.build(len(first) + len(new), {
        name: np.concatenate([getattr(first, name), getattr(new, name)])
        if not isinstance(getattr(first, name), Labels) else [*getattr(first, name), *getattr(new, name)]
        for name in ReportedJobs.__slots__
    })  # fmt: skip


# Reading the input

SACCT, LEDGER = "sacct", "ledger"


@dataclass(frozen=True, slots=True, eq=False)
class ReportInput:
    """Of the span [since_s, until_s).

    source: of the jobs that ended.
    snapshot: None where Slurm did not answer.
    switched_s: when slurmsched first could write, NaN if it never did or nobody knows.
    operations, placements, cycles: of the ledger; cycles is None where it cannot be read.
    unread: what is missing, and why.
    gpu_jobs, gpu_use: jobs of the span and what they made of their GPUs, None where that is not measured.
    """

    since_s: float
    until_s: float
    jobs: ReportedJobs
    source: str = LEDGER
    snapshot: Snapshot | None = None
    switched_s: float = nan
    operations: Sequence[OperationFacts] = ()
    placements: Sequence[PlacementFacts] = ()
    cycles: CycleSums | None = None
    unread: tuple[str, ...] = ()
    policy: str = ""
    gpu_jobs: Sequence[GpuJob] = ()
    gpu_use: MeasuredUse | None = None

    @property
    def cluster(self) -> str:
        return self.snapshot.site.cluster if self.snapshot else ""

    @property
    def gpus(self) -> int:
        """GPUs of the cluster now, 0 where that is not known."""
        return self.snapshot.nodes.gpu_totals()["all"] if self.snapshot else 0


def read_report_input(
    config: Config, read: Callable[[], Snapshot], since_s: float, until_s: float, *, ask_sacct: bool = True
) -> ReportInput:
    """Everything that can be read; `unread` names what could not. Nothing is written.

    read: gives the cluster now, with what the ledger remembers of its jobs.
    Raises SlurmError where neither Slurm nor the ledger can be read: that leaves nothing to report on.
    """
    unread: list[str] = []
    facts = _ledger(config, since_s, unread)
    try:
        snapshot = read()
        unread += snapshot.warnings
    except SlurmError as error:
        if not facts:
            raise SlurmError("; ".join((str(error), *unread))) from error
        snapshot = None
        unread.append(f"the cluster now: {error}")
    ended = _history(config, since_s, until_s, unread) if ask_sacct and snapshot is not None else None
    here = reported_of_snapshot(snapshot) if snapshot is not None else reported_jobs(())
    measured = _measured_jobs(config, snapshot, until_s - since_s, unread) if snapshot is not None else ((), None)
    past = ended if ended is not None else with_user_names(reported_of_ledger(facts.pop("jobs", ())), snapshot)
    facts.pop("jobs", None)
    return ReportInput(
        since_s, until_s, combined_jobs(past, here), SACCT if ended is not None else LEDGER, snapshot, **facts,
        unread=tuple(unread), policy=config.policy.name, gpu_jobs=measured[0], gpu_use=measured[1],
    )  # fmt: skip


def _measured_jobs(
    config: Config, snapshot: Snapshot, span_s: float, unread: list[str]
) -> tuple[Sequence[GpuJob], MeasuredUse | None]:
    """Jobs that run or ended in the span, and what they made of their GPUs; nothing where there is no source."""
    if config.measured_use.source == "none":
        return (), None
    try:
        commands, running = open_commands(config.slurm), running_gpu_jobs(snapshot)
        jobs = [*running, *ended_gpu_jobs(commands, span_s)]
        gpus = {one.job_id: one.gpus for one in jobs}
        return jobs, read_gpu_use(config.measured_use, commands, gpus, [one.job_id for one in running])
    except SlurmschedError as error:
        unread.append(f"the use of GPUs: {error}")
        return (), None


def with_user_names(jobs: ReportedJobs, snapshot: Snapshot | None) -> ReportedJobs:
    """With user and account of those that Slurm still shows."""
    if snapshot is None:
        return jobs
    table = snapshot.jobs
    known = {job: (table.user[row], table.account[row]) for row, job in enumerate(table.job_id.tolist())}
    pairs = [known.get(job, ("", "")) for job in jobs.job_id.tolist()]
    return jobs.with_columns(user=[user for user, _ in pairs], account=[account for _, account in pairs])


def _history(config: Config, since_s: float, until_s: float, unread: list[str]) -> ReportedJobs | None:
    """Jobs that ended, by sacct, a day a call; None where it cannot be asked."""
    first, last = (datetime.fromtimestamp(at_s, UTC).date() for at_s in (since_s, until_s))
    with tempfile.TemporaryDirectory(prefix="slurmsched-") as folder:
        pull = AccountingArchive(
            open_commands(config.slurm), Path(folder), first, last + timedelta(days=1), pause_s=0.0
        )
        try:
            for _ in pull.run():
                pass
        except (SlurmError, InputError) as error:
            unread.append(f"accounting: {error}")
            return None
        try:
            return reported_of_history(pull.trace())
        except InputError:
            return reported_jobs(())  # no GPU job ended


def _ledger(config: Config, since_s: float, unread: list[str]) -> dict[str, Any]:
    url = config.ledger.address
    try:
        switched_s = first_apply_s(url)
        return {
            "jobs": runs_since(url, since_s), "operations": operation_facts(config, since_s),
            "placements": placements_since(url, since_s),
            "switched_s": nan if switched_s is None else switched_s, "cycles": cycle_sums(url, since_s),
        }  # fmt: skip
    except LedgerError as error:
        unread.append(f"the ledger: {error}")
        return {}
