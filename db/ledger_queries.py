"""Queries of the ledger for commands and reports. Read only; the answers are plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from slurmsched.db import database as engines
from slurmsched.db import schema
from slurmsched.db.attained_service import SOURCES

Row = Mapping[str, Any]


def last_cycles(url: str, limit: int) -> list[dict[str, Any]]:
    """The last cycles, newest first, each with the columns of the table. Raises LedgerError."""
    engine = engines.open_engine(url, read_only=True)
    query = sa.select(schema.cycles).order_by(schema.cycles.c.id.desc()).limit(limit)
    return _rows(engine, query)


def last_failures(url: str, limit: int) -> list[dict[str, Any]]:
    """The last actions that Slurm refused or did not answer, newest first. Raises LedgerError."""
    engine = engines.open_engine(url, read_only=True)
    actions, cycles = schema.actions, schema.cycles
    query = (
        sa.select(cycles.c.recorded_s, actions.c.job_id, actions.c.kind, actions.c.new, actions.c.outcome,
                  actions.c.message)
        .join(cycles, cycles.c.id == actions.c.cycle_id)
        .where(actions.c.outcome.in_(("refused", "unknown")))
        .order_by(actions.c.id.desc())
        .limit(limit)
    )  # fmt: skip
    return _rows(engine, query)


def operations_since(url: str, since_s: float) -> list[dict[str, Any]]:
    """One row an operation that was at work since then, oldest first: its begin, its last stage, sums over its rows.

    Raises LedgerError.
    """
    table = schema.operations
    query = sa.select(table).where(table.c.seen_s >= since_s).order_by(table.c.id)
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for row in _rows(engines.open_engine(url, read_only=True), query):
        first = found.setdefault(
            (row["operation"], row["dry_run"]), row | {"begun_s": row["seen_s"], "lost_gpu_s": 0.0}
        )
        lost_gpu_s = first["lost_gpu_s"] + row["lost_gpu_s"]
        first |= {name: row[name] for name in ("seen_s", "stage", "nodes", "idle_gpu_s")}
        first |= {"lost_gpu_s": lost_gpu_s, "note": row["note"] or first["note"]}
    return list(found.values())


def operation_totals(rows: Sequence[Row], dry_run: bool) -> dict[str, Any]:
    """Preemptions, gang reservations, and GPU seconds lost and held idle, over the operations of dry-runs or over the
    others."""
    mine = [row for row in rows if row["dry_run"] == dry_run]
    return {
        "preemptions": sum(row["purpose"] == "preempt" for row in mine),
        "gang_reservations": sum(row["purpose"] == "reserve" for row in mine),
        "lost_gpu_s": sum(row["lost_gpu_s"] for row in mine),
        "idle_gpu_s": sum(row["idle_gpu_s"] for row in mine),
    }


def query_rows(url: str, query: sa.Select[Any]) -> list[dict[str, Any]]:
    """The answer to a query, read only. Raises LedgerError."""
    return _rows(engines.open_engine(url, read_only=True), query)


def placements_since(url: str, since_s: float) -> list[dict[str, Any]]:
    """What jobs that started since then got, newest first, with the columns of the table. Raises LedgerError."""
    table = schema.placements
    return query_rows(url, sa.select(table).where(table.c.start_s >= since_s).order_by(table.c.start_s.desc()))


def placement_quality(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row for each number of GPUs and whether the job was pinned, ascending.

    jobs: count. best_share: share of jobs that got the best GPUs. mean_ratio, worst_ratio: bandwidth over the best.
    """
    groups: dict[tuple[int, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["gpus"], bool(row["pinned"])), []).append(row)
    return [_quality(*key, groups[key]) for key in sorted(groups)]


def _quality(gpus: int, pinned: bool, rows: Sequence[Row]) -> dict[str, Any]:
    ratios = [row["ratio"] for row in rows]
    best = sum(not row["note"] for row in rows)
    return {"gpus": gpus, "pinned": pinned, "jobs": len(rows), "best_share": best / len(rows),
            "mean_ratio": sum(ratios) / len(rows), "worst_ratio": min(ratios)}  # fmt: skip


def _rows(engine: sa.Engine, query: sa.Select[Any]) -> list[dict[str, Any]]:
    try:
        with engines.ledger_errors(engine), engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
    finally:
        engine.dispose()


# Jobs of a period.

Key = tuple[int, float]  # job id, first submit
NAN = float("nan")


def runs_since(url: str, since_s: float) -> list[dict[str, Any]]:
    """One row a GPU job that ran since then, by columns of report_input.ReportedJobs; its user is not known here.

    Raises LedgerError.
    """
    starts, ends, services = schema.run_starts, schema.run_ends, schema.services
    first = query_rows(url, sa.select(starts).where(starts.c.run == 0, starts.c.start_s >= since_s))
    over = query_rows(url, sa.select(ends).where(ends.c.end_s >= since_s).order_by(ends.c.id))
    going = query_rows(url, sa.select(services).where(services.c.run >= 0, services.c.gone_s.is_(None)))
    made: dict[Key, dict[str, Any]] = {}
    for row in first:
        job = _of(made, row)
        job |= {"start_s": row["start_s"], "held_s": row["start_s"], "gpus": row["gpus"]}
    for end in _best(over):
        _add_end(_of(made, end), end)
    for row in going:
        if row["run_start_s"] is not None:
            job = _of(made, row)
            held_s = min(row["run_start_s"], _known(job["held_s"], row["run_start_s"]))
            job |= {"end_s": NAN, "gpus": row["run_gpus"], "held_s": held_s}
    return [job for job in made.values() if job["gpus"] > 0 and job["held_s"] == job["held_s"]]


def first_apply_s(url: str) -> float | None:
    """When the first cycle on record that could write was; None if there is none. Raises LedgerError."""
    cycles = schema.cycles
    query = sa.select(sa.func.min(cycles.c.now_s).label("first")).where(cycles.c.dry_run.is_(False))
    return query_rows(url, query)[0]["first"]


def cycle_sums(url: str, since_s: float) -> dict[str, Any]:
    """Cycles since then: how many, their length, what they wrote. Raises LedgerError."""
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
    return {name: value if name.endswith("_s") else int(value) for name, value in found.items()}


def _of(made: dict[Key, dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    key = row["job_id"], row["first_submit_s"]
    empty = {"job_id": key[0], "submit_s": key[1], "start_s": NAN, "held_s": NAN, "end_s": NAN, "executed_s": 0.0,
             "gpus": 0}  # fmt: skip
    return made.setdefault(key, empty)


def _best(ends: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One end a run: of the strongest source, and of equal ones the last."""
    best: dict[tuple[int, float, int], dict[str, Any]] = {}
    for end in ends:
        key = end["job_id"], end["first_submit_s"], end["run"]
        if key not in best or SOURCES.index(end["source"]) >= SOURCES.index(best[key]["source"]):
            best[key] = end
    return list(best.values())


def _add_end(job: dict[str, Any], end: dict[str, Any]) -> None:
    gpus = round(end["gpu_s"] / end["executed_s"]) if end["executed_s"] > 0 else job["gpus"]
    job["gpus"] = max(job["gpus"], gpus)
    job["executed_s"] += end["executed_s"]
    job["held_s"] = min(end["start_s"], _known(job["held_s"], end["start_s"]))
    job["end_s"] = max(end["end_s"], _known(job["end_s"], end["end_s"]))


def _known(value: float, otherwise: float) -> float:
    return value if value == value else otherwise
