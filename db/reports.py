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


def _rows(engine: sa.Engine, query: sa.Select[Any]) -> list[dict[str, Any]]:
    try:
        with engines.translated(engine), engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
    finally:
        engine.dispose()
