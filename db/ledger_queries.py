"""Queries of the ledger for commands and reports. Read only; the answers are plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.attained_service import strongest
from slurmsched.model.columns import NAN


@dataclass(frozen=True, slots=True)
class CycleFacts:
    """One cycle, by the columns of the table `cycles`."""

    id: int
    now_s: float
    recorded_s: float
    duration_s: float
    digest: str
    policy: str
    jobs: int
    planned: int
    written: int
    refused: int
    deferred: int
    dry_run: bool
    stopped: str


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """An action that Slurm refused or did not answer. new: the value. recorded_s: of its cycle [Unix s]."""

    recorded_s: float
    job_id: int
    kind: str
    new: str
    outcome: str
    message: str


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """One operation, by the columns of the table `operations`: the first row's, but for what follows.

    seen_s, stage, nodes, idle_gpu_s: of its last row.
    note: the last that is not empty.
    lost_gpu_s: the sum of all rows.
    begun_s: when the first row was written [Unix s].
    """

    id: int
    seen_s: float
    operation: str
    purpose: str
    job_id: int
    first_submit_s: float
    user: str
    gpus: int
    nodes: str
    stage: str
    note: str
    victims: int
    lost_gpu_s: float
    idle_gpu_s: float
    dry_run: bool
    begun_s: float

    @property
    def title(self) -> str:
        """What it is and its id: "preempt 7-1"."""
        return f"{self.purpose} {self.operation}"

    @property
    def stage_shown(self) -> str:
        """The stage, or that nothing was done."""
        return "dry-run" if self.dry_run else self.stage

    def followed_by(self, row: OperationFacts) -> OperationFacts:
        """With the next row of the same operation."""
        lost_gpu_s, note = self.lost_gpu_s + row.lost_gpu_s, row.note or self.note
        return replace(self, seen_s=row.seen_s, stage=row.stage, nodes=row.nodes, idle_gpu_s=row.idle_gpu_s,
                       lost_gpu_s=lost_gpu_s, note=note)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OperationTotals:
    """Numbers of preemptions and gang reservations, and the GPU seconds that they lost and held idle."""

    preemptions: int
    gang_reservations: int
    lost_gpu_s: float
    idle_gpu_s: float


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """What a job of several GPUs got at its start, by the columns of the table `placements`.

    got_gb_per_s, best_gb_per_s: bandwidth, None if unknown.
    ratio: of the two.
    note: what it missed, "" = nothing.
    """

    id: int
    job_id: int
    first_submit_s: float
    start_s: float
    nodes: str
    gpus: int
    got_gb_per_s: float | None
    best_gb_per_s: float | None
    ratio: float
    pinned: bool
    note: str


@dataclass(frozen=True, slots=True)
class PlacementQuality:
    """Placements of jobs of one number of GPUs.

    jobs: count.
    best_share: share of jobs that got the best GPUs.
    mean_ratio, worst_ratio: bandwidth over the best.
    """

    gpus: int
    pinned: bool
    jobs: int
    best_share: float
    mean_ratio: float
    worst_ratio: float


def last_cycles(url: str, limit: int) -> list[CycleFacts]:
    """The last cycles, newest first. Raises LedgerError."""
    query = sa.select(schema.cycles).order_by(schema.cycles.c.id.desc()).limit(limit)
    return [CycleFacts(**row) for row in query_rows(url, query)]


def last_failures(url: str, limit: int) -> list[FailedWrite]:
    """The last actions that Slurm refused or did not answer, newest first. Raises LedgerError."""
    actions, cycles = schema.actions, schema.cycles
    query = (
        sa.select(cycles.c.recorded_s, actions.c.job_id, actions.c.kind, actions.c.new, actions.c.outcome,
                  actions.c.message)
        .join(cycles, cycles.c.id == actions.c.cycle_id)
        .where(actions.c.outcome.in_(("refused", "unknown")))
        .order_by(actions.c.id.desc())
        .limit(limit)
    )  # fmt: skip
    return [FailedWrite(**row) for row in query_rows(url, query)]


def operations_since(url: str, since_s: float) -> list[OperationFacts]:
    """The operations that were at work since then, oldest first. Raises LedgerError."""
    table = schema.operations
    query = sa.select(table).where(table.c.seen_s >= since_s).order_by(table.c.id)
    found: dict[tuple[str, bool], OperationFacts] = {}
    for each in query_rows(url, query):
        row = OperationFacts(**each, begun_s=each["seen_s"])
        key = row.operation, row.dry_run
        found[key] = found[key].followed_by(row) if key in found else row
    return list(found.values())


def operation_totals(operations: Sequence[OperationFacts], dry_run: bool) -> OperationTotals:
    """The totals over the operations of dry-runs, or over the others."""
    mine = [each for each in operations if each.dry_run == dry_run]
    return OperationTotals(
        preemptions=sum(each.purpose == "preempt" for each in mine),
        gang_reservations=sum(each.purpose == "reserve" for each in mine),
        lost_gpu_s=sum((each.lost_gpu_s for each in mine), 0.0),
        idle_gpu_s=sum((each.idle_gpu_s for each in mine), 0.0),
    )


def query_rows(url: str, query: sa.Select[Any]) -> list[dict[str, Any]]:
    """The answer to a query, read only. Raises LedgerError."""
    engine = engines.open_engine(url, read_only=True)
    try:
        with engines.ledger_errors(engine), engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
    finally:
        engine.dispose()


def placements_since(url: str, since_s: float) -> list[PlacementFacts]:
    """What jobs that started since then got, newest first. Raises LedgerError."""
    table = schema.placements
    query = sa.select(table).where(table.c.start_s >= since_s).order_by(table.c.start_s.desc())
    return [PlacementFacts(**row) for row in query_rows(url, query)]


def placement_quality(placements: Sequence[PlacementFacts]) -> list[PlacementQuality]:
    """One for each number of GPUs and whether the job was pinned, ascending."""
    groups: dict[tuple[int, bool], list[PlacementFacts]] = {}
    for each in placements:
        groups.setdefault((each.gpus, each.pinned), []).append(each)
    return [_quality(*key, groups[key]) for key in sorted(groups)]


def _quality(gpus: int, pinned: bool, placements: Sequence[PlacementFacts]) -> PlacementQuality:
    ratios, best = [each.ratio for each in placements], sum(not each.note for each in placements)
    jobs = len(placements)
    return PlacementQuality(gpus, pinned, jobs, best / jobs, sum(ratios) / jobs, min(ratios))


# Jobs of a period.

Key = tuple[int, float]  # job id, first submit


@dataclass(slots=True)
class RunFacts:
    """A GPU job of a period, by columns of report_input.ReportedJobs.

    start_s: its first start in the period, NaN if it began before.
    held_s: since when it held GPUs.
    end_s: NaN while it runs.
    executed_s: sum over the runs that ended.
    gpus: the most in one of its runs; a part of a GPU is a fraction.
    """

    job_id: int
    submit_s: float
    start_s: float = NAN
    held_s: float = NAN
    end_s: float = NAN
    executed_s: float = 0.0
    gpus: float = 0.0

    def add_end(self, end: dict[str, Any]) -> None:
        """Count a run that ended."""
        gpus = end["gpu_s"] / end["executed_s"] if end["executed_s"] > 0 else self.gpus
        gpus = round(gpus, 0 if gpus > 1 else 3)
        self.gpus = max(self.gpus, gpus)
        self.executed_s += end["executed_s"]
        self.held_s = min(end["start_s"], _known_or(self.held_s, end["start_s"]))
        self.end_s = max(end["end_s"], _known_or(self.end_s, end["end_s"]))


@dataclass(frozen=True, slots=True)
class CycleSums:
    """Sums over the cycles of a period. mean_s, longest_s: their length [s], None without a cycle."""

    cycles: int = 0
    mean_s: float | None = None
    longest_s: float | None = None
    written: int = 0
    refused: int = 0
    dry_run: int = 0
    ended_early: int = 0


def runs_since(url: str, since_s: float) -> list[RunFacts]:
    """The GPU jobs that ran since then; their users are not known here. Raises LedgerError."""
    starts, ends, services = schema.run_starts, schema.run_ends, schema.services
    first = query_rows(url, sa.select(starts).where(starts.c.run == 0, starts.c.start_s >= since_s))
    over = query_rows(url, sa.select(ends).where(ends.c.end_s >= since_s).order_by(ends.c.id))
    going = query_rows(url, sa.select(services).where(services.c.run >= 0, services.c.gone_s.is_(None)))
    made: dict[Key, RunFacts] = {}
    for row in first:
        job = _of(made, row)
        job.start_s, job.held_s, job.gpus = row["start_s"], row["start_s"], row["gpus"]
    run_of, source_of = itemgetter("job_id", "first_submit_s", "run"), itemgetter("source")
    for end in strongest(over, run_of, source_of):
        _of(made, end).add_end(end)
    for row in going:
        if row["run_start_s"] is not None:
            job = _of(made, row)
            job.held_s = min(row["run_start_s"], _known_or(job.held_s, row["run_start_s"]))
            job.end_s, job.gpus = NAN, row["run_gpus"]
    return [job for job in made.values() if job.gpus > 0 and job.held_s == job.held_s]


def first_apply_s(url: str) -> float | None:
    """When the first cycle on record that could write was; None if there is none. Raises LedgerError."""
    cycles = schema.cycles
    query = sa.select(sa.func.min(cycles.c.now_s).label("first")).where(cycles.c.dry_run.is_(False))
    return query_rows(url, query)[0]["first"]


def cycle_sums(url: str, since_s: float) -> CycleSums:
    """The sums over the cycles since then. Raises LedgerError."""
    cycles = schema.cycles
    query = sa.select(
        sa.func.count().label("cycles"),
        sa.func.avg(cycles.c.duration_s).label("mean_s"),
        sa.func.max(cycles.c.duration_s).label("longest_s"),
        *(sa.func.coalesce(sa.func.sum(cycles.c[name]), 0).label(name) for name in ("written", "refused")),
        sa.func.coalesce(sa.func.sum(sa.case((cycles.c.dry_run, 1), else_=0)), 0).label("dry_run"),
        sa.func.coalesce(sa.func.sum(sa.case((cycles.c.stopped != "", 1), else_=0)), 0).label("ended_early"),
    ).where(cycles.c.now_s >= since_s)
    found = query_rows(url, query)[0]
    return CycleSums(**{name: value if name.endswith("_s") else int(value) for name, value in found.items()})


def _of(made: dict[Key, RunFacts], row: dict[str, Any]) -> RunFacts:
    key = row["job_id"], row["first_submit_s"]
    return made.setdefault(key, RunFacts(*key))


def _known_or(value: float, otherwise: float) -> float:
    return value if value == value else otherwise
