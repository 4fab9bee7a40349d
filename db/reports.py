"""What commands tell of the ledger: read only, as plain values."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from slurmsched.db import engine as engines
from slurmsched.db import schema


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


def acts_since(url: str, since_s: float) -> list[dict[str, Any]]:
    """One row an act that was at work since then, oldest first: its begin, its last stage, sums over its rows.

    Raises LedgerError.
    """
    table = schema.acts
    query = sa.select(table).where(table.c.seen_s >= since_s).order_by(table.c.id)
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for row in _rows(engines.open_engine(url, read_only=True), query):
        first = found.setdefault((row["act"], row["dry_run"]), row | {"begun_s": row["seen_s"], "lost_gpu_s": 0.0})
        lost_gpu_s = first["lost_gpu_s"] + row["lost_gpu_s"]
        first |= {name: row[name] for name in ("seen_s", "stage", "nodes", "idle_gpu_s")}
        first |= {"lost_gpu_s": lost_gpu_s, "note": row["note"] or first["note"]}
    return list(found.values())


def query_rows(url: str, query: sa.Select[Any]) -> list[dict[str, Any]]:
    """The answer to a query, read only. Raises LedgerError."""
    return _rows(engines.open_engine(url, read_only=True), query)


def placements(url: str, since_s: float) -> list[dict[str, Any]]:
    """What jobs that started since then got, newest first, with the columns of the table. Raises LedgerError."""
    table = schema.placements
    return query_rows(url, sa.select(table).where(table.c.start_s >= since_s).order_by(table.c.start_s.desc()))


def _rows(engine: sa.Engine, query: sa.Select[Any]) -> list[dict[str, Any]]:
    try:
        with engines.translated(engine), engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
    finally:
        engine.dispose()
