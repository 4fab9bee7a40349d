"""Old facts go every hour, in small batches and for a bounded time, so that no cycle waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import nan

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from slurmsched.db import schema

DAY_S = 86_400.0
PERIOD_S = 3_600.0
BATCH_ROWS = 1_000
BUDGET_S = 1.0  # of one cycle; what is left goes in the next one
CHORE = "retention"

Delete = Callable[[Connection, float], int]


def last_done(connection: Connection) -> float:
    """When old facts were dropped last [s]; NaN if never."""
    chores = schema.chores
    done_s = connection.scalar(sa.select(chores.c.done_s).where(chores.c.name == CHORE))
    return nan if done_s is None else done_s


def due(now_s: float, done_s: float) -> bool:
    """Whether an hour has passed since all was done (or the clock was set back, or it never was)."""
    return not 0 <= now_s - done_s < PERIOD_S


def drop_old(engine: Engine, now_s: float, keep_days: float, *, kind: str, budget_s: float = BUDGET_S) -> bool:
    """Drop facts older than keep_days of jobs that are not in the queue; whether none is left. Each batch commits by
    itself; none begins after budget_s, but there is always one.

    A fact's age is that of its cycle or its own time; open jobs are those with a row in services or levers. kind: of
    the lever in use; what is remembered of the other one goes by the same age.
    """
    before_s, until_s = now_s - keep_days * DAY_S, time.monotonic() + budget_s
    for _ in _dropped(engine, before_s):
        if time.monotonic() > until_s:
            return False
    with engine.begin() as connection:
        levers = schema.levers
        connection.execute(sa.delete(levers).where(levers.c.kind != kind, levers.c.submit_s < before_s))
        connection.execute(sa.delete(schema.chores).where(schema.chores.c.name == CHORE))
        connection.execute(sa.insert(schema.chores), {"name": CHORE, "done_s": now_s})
    return True


def _dropped(engine: Engine, before_s: float) -> Iterator[int]:
    """Drops batch after batch, table after table; the rows of each full one."""
    for delete in _deletes():
        rows = BATCH_ROWS
        while rows == BATCH_ROWS:
            with engine.begin() as connection:
                rows = delete(connection, before_s)
            if rows == BATCH_ROWS:
                yield rows


def _deletes() -> list[Delete]:
    ages = {
        schema.run_starts: schema.run_starts.c.start_s,
        schema.run_marks: schema.run_marks.c.seen_s,
        schema.run_ends: schema.run_ends.c.end_s,
        schema.completions: schema.completions.c.end_s,
        schema.lever_changes: schema.lever_changes.c.seen_s,
        schema.acts: schema.acts.c.seen_s,
        schema.placements: schema.placements.c.start_s,
    }
    facts = [_of_table(table, age) for table, age in ages.items()]
    return [_old_actions, *facts, _old_cycles]


def _of_table(table: sa.Table, age: sa.Column) -> Delete:
    def delete(connection: Connection, before_s: float) -> int:
        return _delete(connection, table, age, age < before_s, _closed(table))

    return delete


def _old_actions(connection: Connection, before_s: float) -> int:
    actions = schema.actions
    age = actions.c.cycle_id
    return _delete(connection, actions, age, age < _first_kept(connection, before_s), _closed(actions))


def _old_cycles(connection: Connection, before_s: float) -> int:
    """Cycles without actions left; never the last one."""
    cycles, actions = schema.cycles, schema.actions
    used = sa.select(actions.c.id).where(actions.c.cycle_id == cycles.c.id).exists()
    return _delete(connection, cycles, cycles.c.id, cycles.c.id < _first_kept(connection, before_s), ~used)


def _first_kept(connection: Connection, before_s: float) -> int:
    cycles = schema.cycles
    first = connection.scalar(sa.select(sa.func.min(cycles.c.id)).where(cycles.c.now_s >= before_s))
    return first if first is not None else connection.scalar(sa.select(sa.func.max(cycles.c.id))) or 0


def _closed(table: sa.Table) -> sa.ColumnElement[bool]:
    services = sa.select(schema.services.c.job_id).where(schema.services.c.job_id == table.c.job_id)
    levers = sa.select(schema.levers.c.job_id).where(schema.levers.c.job_id == table.c.job_id)
    return ~(services.exists() | levers.exists())


def _delete(connection: Connection, table: sa.Table, age: sa.Column, *conditions: sa.ColumnElement[bool]) -> int:
    """Delete one batch, by the index on age: where nothing is old the length of the table must not matter."""
    ids = connection.scalars(sa.select(table.c.id).where(*conditions).order_by(age).limit(BATCH_ROWS)).all()
    if ids:
        connection.execute(sa.delete(table).where(table.c.id.in_(ids)))
    return len(ids)
