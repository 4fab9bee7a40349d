"""Writes and reads the rows of the ledger's tables, and deletes old ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from math import isnan, nan
from typing import Any, TypeVar

import numpy as np
import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from slurmsched.db import schema
from slurmsched.db.attained_service import Completion, Fact, RunEnded, RunMarked, RunStarted
from slurmsched.db.move_costs import MoveCosts, decode_moves, encode_moves
from slurmsched.db.priority_overrides import OutsideChange, PriorityOverride, PriorityOverrides
from slurmsched.db.remembered_jobs import HISTORY_JOBS, JobRows
from slurmsched.db.services import Services
from slurmsched.errors import LedgerError
from slurmsched.model.columns import Floats
from slurmsched.model.durations import DAY_S
from slurmsched.model.gpu_selection import PlacedJob
from slurmsched.model.plan import Outcome, SetPriority

T = TypeVar("T", bound=JobRows)
CARRIES_KEPT = 2
MOVES = "moves"  # among the shared lines
_CHUNK = 500  # ids in one IN (...), well below every database's limit
_NUMBERS = ("old", "new", "base")  # of nice and site factor
_PAIRS = "__pairs__"  # JSON has no mapping with keys other than texts

_TABLE_OF: dict[type, sa.Table] = {
    RunStarted: schema.run_starts,
    RunMarked: schema.run_marks,
    RunEnded: schema.run_ends,
    Completion: schema.completions,
    OutsideChange: schema.outside_changes,
    PlacedJob: schema.placements,
}


def load_services(connection: Connection) -> Services:
    """One row for each remembered job, by job id."""
    return _load(connection, Services, schema.services)


def load_priority_overrides(connection: Connection, field: str) -> PriorityOverrides:
    """Overrides of this field ("nice" or "site_factor"), by job id."""
    table = schema.priority_overrides
    return _load(connection, PriorityOverrides, table, table.c.field == field)


def _load(connection: Connection, memory: type[T], table: sa.Table, *conditions: sa.ColumnElement[bool]) -> T:
    names = [spec.name for spec in fields(memory)]  # type: ignore[arg-type]
    query = sa.select(*(table.c[name] for name in names)).where(*conditions).order_by(table.c.job_id)
    result = connection.execute(query)
    rows = result.cursor.fetchall()  # as the driver gives them: SQLAlchemy's row objects would take most of the time
    result.close()
    return memory.build(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {})


def save_services(connection: Connection, rows: Sequence[Any], gone: Sequence[int]) -> None:
    """Put the memory of these jobs in place of what was there, and drop that of the jobs in gone."""
    _replace(connection, schema.services, [_columns(row) for row in rows], gone)


def save_priority_overrides(connection: Connection, rows: Sequence[PriorityOverride], gone: Sequence[int]) -> None:
    """Put these in place of what was there, and drop those of the jobs in gone."""
    names = schema.priority_overrides.c.keys()
    made = [{name: getattr(row, name) for name in names} for row in rows]
    _replace(connection, schema.priority_overrides, made, gone)


def _replace(connection: Connection, table: sa.Table, rows: list[dict[str, Any]], gone: Sequence[int]) -> None:
    ids = [row["job_id"] for row in rows] + list(gone)
    for chunk in _chunks(ids):
        connection.execute(sa.delete(table).where(table.c.job_id.in_(chunk)))
    _insert(connection, table, rows)


def add_facts(connection: Connection, facts: Iterable[Fact | OutsideChange | PlacedJob]) -> None:
    """Append each fact to the table of its type."""
    by_table: dict[sa.Table, list[dict[str, Any]]] = {}
    for fact in facts:
        by_table.setdefault(_TABLE_OF[type(fact)], []).append(_columns(fact))
    for table, rows in by_table.items():
        _insert(connection, table, rows)


def add_cycle(connection: Connection, row: Mapping[str, Any]) -> int:
    """Append the cycle; its id."""
    made = connection.execute(sa.insert(schema.cycles), _clean(schema.cycles, row))
    return int(made.inserted_primary_key[0])  # type: ignore[index]


def add_actions(
    connection: Connection, cycle_id: int, outcomes: Iterable[Outcome], first_submit_s: Mapping[int, float]
) -> None:
    """Append one row for each outcome. first_submit_s: by job id; else the action's own submit time."""
    rows = []
    for outcome in outcomes:
        action = outcome.action
        numbers = {name: getattr(action, name) if isinstance(action, SetPriority) else None for name in _NUMBERS}
        row = {"cycle_id": cycle_id, "job_id": action.job_id, "kind": action.kind, "reason": action.reason, **numbers}
        row["first_submit_s"] = first_submit_s.get(action.job_id, action.submit_s)
        rows.append(row | {"outcome": outcome.status, "message": outcome.message})
    _insert(connection, schema.actions, rows)


def add_operations(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the rows; see operation_rows."""
    _insert(connection, schema.operations, rows)


def add_carry(connection: Connection, cycle_id: int, policy: str, carry: Mapping[str, Any]) -> None:
    """Append the policy's carry; the last two are kept."""
    table = schema.carries
    try:
        row = {"cycle_id": cycle_id, "policy": policy, "carry": encode_carry(carry)}
    except TypeError as error:
        raise LedgerError(f"policy {policy} carries what cannot be kept: {error}; see Ranking.carry") from error
    connection.execute(sa.insert(table), _clean(table, row))
    kept = sa.select(table.c.cycle_id).order_by(table.c.cycle_id.desc()).limit(CARRIES_KEPT)
    oldest = connection.scalars(kept).all()[-1]
    connection.execute(sa.delete(table).where(table.c.cycle_id < oldest))


def last_carry(connection: Connection, policy: str) -> Mapping[str, Any]:
    """What this policy carried last; empty if another policy was at work since."""
    table = schema.carries
    row = connection.execute(sa.select(table).order_by(table.c.cycle_id.desc()).limit(1)).first()
    return decode_carry(row.carry) if row is not None and row.policy == policy else {}


def load_moves(connection: Connection) -> MoveCosts:
    """The measured costs of moves; empty if none are stored."""
    table = schema.shared_lines
    text = connection.scalar(sa.select(table.c.text).where(table.c.file == MOVES).order_by(table.c.id.desc()).limit(1))
    return decode_moves(text or "")


def save_moves(connection: Connection, moves: MoveCosts, term: int, now_s: float) -> None:
    """Put these in place of what was there. term: of the leader, 0 without one."""
    table = schema.shared_lines
    connection.execute(sa.delete(table).where(table.c.file == MOVES))
    row = {"file": MOVES, "term": term, "time_s": now_s, "text": encode_moves(moves)}
    connection.execute(sa.insert(table), _clean(table, row))


def last_cycle(connection: Connection) -> tuple[int, float, float]:
    """Id, clock of the snapshot [s] and time of recording [s] of the last cycle; 0 and NaNs if there is none."""
    cycles = schema.cycles
    query = sa.select(cycles.c.id, cycles.c.now_s, cycles.c.recorded_s).order_by(cycles.c.id.desc()).limit(1)
    row = connection.execute(query).first()
    return (row.id, row.now_s, row.recorded_s) if row is not None else (0, np.nan, np.nan)


def history(connection: Connection) -> Floats:
    """Attained service [GPU s] of the jobs that completed last, oldest first. (H,) float64."""
    table = schema.completions
    query = sa.select(table.c.gpu_s).order_by(table.c.id.desc()).limit(HISTORY_JOBS)
    return np.array(connection.scalars(query).all()[::-1], np.float64)


def ends_of(connection: Connection, job_ids: Sequence[int]) -> dict[int, list[RunEnded]]:
    """Our facts on closed runs of the latest job under each id, in the order of their making."""
    table = schema.run_ends
    ends: dict[int, list[RunEnded]] = {}
    for chunk in _chunks(job_ids):
        query = sa.select(*(table.c[spec.name] for spec in fields(RunEnded)))
        for row in connection.execute(query.where(table.c.job_id.in_(chunk)).order_by(table.c.id)):
            ends.setdefault(row.job_id, []).append(RunEnded(*row))
    latest = {job_id: max(end.first_submit_s for end in of_job) for job_id, of_job in ends.items()}
    return {job_id: [e for e in of_job if e.first_submit_s == latest[job_id]] for job_id, of_job in ends.items()}


def encode_carry(carry: Mapping[str, Any]) -> str:
    """The carry as JSON, with mappings of any keys. Raises TypeError for what is not plain."""
    return orjson.dumps(_plain(carry), option=orjson.OPT_SERIALIZE_NUMPY).decode()


def decode_carry(text: str) -> Mapping[str, Any]:
    """The carry again; sequences come back as lists."""
    return _mapped(orjson.loads(text))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and _PAIRS not in value:
            return {key: _plain(item) for key, item in value.items()}
        return {_PAIRS: [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _mapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_mapped(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {_PAIRS}:
        pairs = [(_mapped(key), _mapped(item)) for key, item in value[_PAIRS]]
        return {tuple(key) if isinstance(key, list) else key: item for key, item in pairs}
    return {key: _mapped(item) for key, item in value.items()}


def _columns(row: Any) -> dict[str, Any]:
    """A flat dataclass as a row (asdict would copy every value)."""
    return {name: getattr(row, name) for name in row.__slots__}


def _insert(connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(sa.insert(table), [_clean(table, row) for row in rows])


def _clean(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as every database takes it: NaN is NULL, texts fit, no NUL and no half characters in them."""
    return {name: _value(table.c[name], value) for name, value in row.items()}


def _value(column: sa.Column, value: Any) -> Any:
    if isinstance(value, float) and isnan(value):
        return None
    if isinstance(value, str):
        value = value.replace("\0", "").encode("utf-8", "replace").decode()
        length = getattr(column.type, "length", None)
        return value[:length] if length else value
    return value


def _chunks(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[i : i + _CHUNK] for i in range(0, len(ids), _CHUNK))


# Retention of old facts.

PERIOD_S = 3_600.0
BATCH_ROWS = 1_000
BUDGET_S = 1.0  # of one cycle; the next one drops the rest
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


def drop_old(engine: Engine, now_s: float, keep_days: float, *, field: str, budget_s: float = BUDGET_S) -> bool:
    """Drop facts older than keep_days of jobs that are not in the queue; whether none is left. Each batch commits by
    itself; none begins after budget_s, but there is always one.

    A fact's age is that of its cycle or its own time; open jobs are those with a row in services or priority_overrides.
    field: "nice" or "site_factor", as in use; overrides of the other one go by the same age.
    """
    before_s, until_s = now_s - keep_days * DAY_S, time.monotonic() + budget_s
    for _ in _dropped(engine, before_s):
        if time.monotonic() > until_s:
            return False
    with engine.begin() as connection:
        overrides = schema.priority_overrides
        connection.execute(sa.delete(overrides).where(overrides.c.field != field, overrides.c.submit_s < before_s))
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
        schema.outside_changes: schema.outside_changes.c.seen_s,
        schema.operations: schema.operations.c.seen_s,
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
    overrides = sa.select(schema.priority_overrides.c.job_id).where(
        schema.priority_overrides.c.job_id == table.c.job_id
    )
    return ~(services.exists() | overrides.exists())


def _delete(connection: Connection, table: sa.Table, age: sa.Column, *conditions: sa.ColumnElement[bool]) -> int:
    """Delete one batch, by the index on age: where nothing is old the length of the table must not matter."""
    ids = connection.scalars(sa.select(table.c.id).where(*conditions).order_by(age).limit(BATCH_ROWS)).all()
    if ids:
        connection.execute(sa.delete(table).where(table.c.id.in_(ids)))
    return len(ids)
