"""Rows in and out of the tables: Core statements, no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from math import isnan
from typing import Any, TypeVar

import numpy as np
import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from slurmsched.db import schema
from slurmsched.db.facts import Completion, Fact, RunEnd, RunMark, RunStart
from slurmsched.db.levers import Lever, LeverChange, Levers
from slurmsched.db.memory import HISTORY_JOBS, Memory
from slurmsched.db.moves import Moves, decoded, encoded
from slurmsched.db.services import Services
from slurmsched.errors import LedgerError
from slurmsched.model.columns import Floats
from slurmsched.model.pins import Placed
from slurmsched.model.plan import Outcome, SetLever

T = TypeVar("T", bound=Memory)
CARRIES_KEPT = 2
MOVES = "moves"  # among the shared lines
_CHUNK = 500  # ids in one IN (...), well below every database's limit
_NUMBERS = ("old", "new", "base")  # of levers
_PAIRS = "__pairs__"  # JSON has no mapping with keys other than texts

_TABLE_OF: dict[type, sa.Table] = {
    RunStart: schema.run_starts,
    RunMark: schema.run_marks,
    RunEnd: schema.run_ends,
    Completion: schema.completions,
    LeverChange: schema.lever_changes,
    Placed: schema.placements,
}


def load_services(connection: Connection) -> Services:
    return _load(connection, Services, schema.services)


def load_levers(connection: Connection, kind: str) -> Levers:
    return _load(connection, Levers, schema.levers, schema.levers.c.kind == kind)


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


def save_levers(connection: Connection, rows: Sequence[Lever], gone: Sequence[int], kind: str) -> None:
    _replace(connection, schema.levers, [_columns(row) | {"kind": kind} for row in rows], gone)


def _replace(connection: Connection, table: sa.Table, rows: list[dict[str, Any]], gone: Sequence[int]) -> None:
    ids = [row["job_id"] for row in rows] + list(gone)
    for chunk in _chunks(ids):
        connection.execute(sa.delete(table).where(table.c.job_id.in_(chunk)))
    _insert(connection, table, rows)


def add_facts(connection: Connection, facts: Iterable[Fact | LeverChange | Placed]) -> None:
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
    rows = []
    for outcome in outcomes:
        action = outcome.action
        numbers = {name: getattr(action, name) if isinstance(action, SetLever) else None for name in _NUMBERS}
        row = {"cycle_id": cycle_id, "job_id": action.job_id, "kind": action.kind, "reason": action.reason, **numbers}
        row["first_submit_s"] = first_submit_s.get(action.job_id, action.submit_s)
        rows.append(row | {"outcome": outcome.status, "message": outcome.message})
    _insert(connection, schema.actions, rows)


def add_acts(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    _insert(connection, schema.acts, rows)


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


def load_moves(connection: Connection) -> Moves:
    table = schema.shared_lines
    text = connection.scalar(sa.select(table.c.text).where(table.c.file == MOVES).order_by(table.c.id.desc()).limit(1))
    return decoded(text or "")


def save_moves(connection: Connection, moves: Moves, term: int, now_s: float) -> None:
    """Put these in place of what was there. term: of the leader, 0 without one."""
    table = schema.shared_lines
    connection.execute(sa.delete(table).where(table.c.file == MOVES))
    row = {"file": MOVES, "term": term, "time_s": now_s, "text": encoded(moves)}
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


def ends_of(connection: Connection, job_ids: Sequence[int]) -> dict[int, list[RunEnd]]:
    """Our facts on closed runs of the latest job under each id, in the order of their making."""
    table = schema.run_ends
    ends: dict[int, list[RunEnd]] = {}
    for chunk in _chunks(job_ids):
        query = sa.select(*(table.c[spec.name] for spec in fields(RunEnd)))
        for row in connection.execute(query.where(table.c.job_id.in_(chunk)).order_by(table.c.id)):
            ends.setdefault(row.job_id, []).append(RunEnd(*row))
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
