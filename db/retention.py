"""Old facts go, once a day, in small batches, so that no cycle waits for it."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from slurmsched.db import schema

DAY_S = 86_400.0
BATCH_ROWS = 1_000
BATCHES = 50  # a run; what is left waits for the next
CHORE = "retention"


def last_done(connection: Connection) -> float:
    """When old facts were dropped last [s]; NaN if never."""
    chores = schema.chores
    done_s = connection.scalar(sa.select(chores.c.done_s).where(chores.c.name == CHORE))
    return nan if done_s is None else done_s


def due(now_s: float, done_s: float) -> bool:
    """Whether a day has passed since the last time (or the clock was set back, or there was none)."""
    return not 0 <= now_s - done_s < DAY_S


def drop_old(engine: Engine, now_s: float, keep_days: int, *, kind: str, batches: int = BATCHES) -> int:
    """Drop facts older than keep_days of jobs that are not in the queue; how many rows. Each batch commits by itself.

    A fact's age is that of its cycle or its own time; open jobs are those with a row in services or levers. kind: of
    the lever in use; what is remembered of the other one goes by the same age.
    """
    before_s = now_s - keep_days * DAY_S
    dropped = 0
    for delete in _batches():
        while batches > 0:
            batches -= 1
            with engine.begin() as connection:
                rows = delete(connection, before_s)
            dropped += rows
            if rows < BATCH_ROWS:
                break
    with engine.begin() as connection:
        levers = schema.levers
        connection.execute(sa.delete(levers).where(levers.c.kind != kind, levers.c.submit_s < before_s))
        connection.execute(sa.delete(schema.chores).where(schema.chores.c.name == CHORE))
        connection.execute(sa.insert(schema.chores), {"name": CHORE, "done_s": now_s})
    return dropped


def _batches() -> list[Callable[[Connection, float], int]]:
    times = {
        schema.run_starts: schema.run_starts.c.start_s,
        schema.run_marks: schema.run_marks.c.seen_s,
        schema.run_ends: schema.run_ends.c.end_s,
        schema.completions: schema.completions.c.end_s,
        schema.lever_changes: schema.lever_changes.c.seen_s,
    }
    facts = [_of_table(table, time) for table, time in times.items()]
    return [_old_actions, *facts, _of_cycles]


def _of_table(table: sa.Table, time: sa.Column) -> Callable[[Connection, float], int]:
    def delete(connection: Connection, before_s: float) -> int:
        return _delete(connection, table, time < before_s, _closed(table))

    return delete


def _old_actions(connection: Connection, before_s: float) -> int:
    actions = schema.actions
    return _delete(connection, actions, actions.c.cycle_id < _first_kept(connection, before_s), _closed(actions))


def _of_cycles(connection: Connection, before_s: float) -> int:
    """Cycles without actions left; never the last one."""
    cycles, actions = schema.cycles, schema.actions
    used = sa.select(actions.c.id).where(actions.c.cycle_id == cycles.c.id).exists()
    return _delete(connection, cycles, cycles.c.id < _first_kept(connection, before_s), ~used)


def _first_kept(connection: Connection, before_s: float) -> int:
    cycles = schema.cycles
    first = connection.scalar(sa.select(sa.func.min(cycles.c.id)).where(cycles.c.now_s >= before_s))
    return first if first is not None else connection.scalar(sa.select(sa.func.max(cycles.c.id))) or 0


def _closed(table: sa.Table) -> sa.ColumnElement[bool]:
    services = sa.select(schema.services.c.job_id).where(schema.services.c.job_id == table.c.job_id)
    levers = sa.select(schema.levers.c.job_id).where(schema.levers.c.job_id == table.c.job_id)
    return ~(services.exists() | levers.exists())


def _delete(connection: Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    ids = connection.scalars(sa.select(table.c.id).where(*conditions).order_by(table.c.id).limit(BATCH_ROWS)).all()
    if ids:
        connection.execute(sa.delete(table).where(table.c.id.in_(ids)))
    return len(ids)
