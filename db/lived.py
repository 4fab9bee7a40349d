"""Jobs of a span of time as the ledger has them: first starts, ends of runs, runs under way. Read only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from slurmsched.db import schema
from slurmsched.db.facts import SOURCES
from slurmsched.db.reports import query_rows

Key = tuple[int, float]  # job id, first submit
NAN = float("nan")


def lived_since(url: str, since_s: float) -> list[dict[str, Any]]:
    """One row a GPU job that ran since then, by columns of report.lived.Lived; its user is not known here.

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
