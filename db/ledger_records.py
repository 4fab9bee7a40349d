"""Writes and reads the rows of the ledger's tables, and deletes old ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from math import isnan, nan
from typing import Any, TypeVar

import numpy as np
import orjson

from slurmsched.db.attained_service import Completion, Fact, RunEnded, RunMarked, RunStarted
from slurmsched.db.ledger_columns import longest_text
from slurmsched.db.ledger_database import LedgerConnection, LedgerDatabase
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
_OF_MOVES = f"file = '{MOVES}'"
_CHUNK = 500  # ids in one IN (...), well below every database's limit
_NUMBERS = ("old", "new", "base")  # of nice and site factor
_PAIRS = "__pairs__"  # JSON has no mapping with keys other than texts

_TABLE_OF: dict[type, str] = {
    RunStarted: "run_starts",
    RunMarked: "run_marks",
    RunEnded: "run_ends",
    Completion: "completions",
    OutsideChange: "outside_changes",
    PlacedJob: "placements",
}


def load_services(connection: LedgerConnection) -> Services:
    """One row for each remembered job, by job id."""
    return _load(connection, Services, "services")


def load_priority_overrides(connection: LedgerConnection, field: str) -> PriorityOverrides:
    """Overrides of this field ("nice" or "site_factor"), by job id."""
    return _load(connection, PriorityOverrides, "priority_overrides", "WHERE field = :field", field=field)


def _load(connection: LedgerConnection, memory: type[T], table: str, where: str = "", **values: Any) -> T:
    names = [spec.name for spec in fields(memory)]  # type: ignore[arg-type]
    rows = connection.query(f"SELECT {', '.join(names)} FROM {table} {where} ORDER BY job_id", **values)
    return memory.build(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {})


def save_services(connection: LedgerConnection, rows: Sequence[Any], gone: Sequence[int]) -> None:
    """Put the memory of these jobs in place of what was there, and drop that of the jobs in gone."""
    _replace(connection, "services", [_columns(row) for row in rows], gone)


def save_priority_overrides(
    connection: LedgerConnection, rows: Sequence[PriorityOverride], gone: Sequence[int]
) -> None:
    """Put these in place of what was there, and drop those of the jobs in gone."""
    _replace(connection, "priority_overrides", [_override_row(row) for row in rows], gone)


def _override_row(row: PriorityOverride) -> dict[str, Any]:
    names = ("field", *(spec.name for spec in fields(PriorityOverrides)))
    return {name: getattr(row, name) for name in names}


def _replace(connection: LedgerConnection, table: str, rows: list[dict[str, Any]], gone: Sequence[int]) -> None:
    for listed in _listed([*(row["job_id"] for row in rows), *gone]):
        connection.execute(f"DELETE FROM {table} WHERE job_id IN ({listed})")
    _insert(connection, table, rows)


def add_facts(connection: LedgerConnection, facts: Iterable[Fact | OutsideChange | PlacedJob]) -> None:
    """Append each fact to the table of its type."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for fact in facts:
        by_table.setdefault(_TABLE_OF[type(fact)], []).append(_columns(fact))
    for table, rows in by_table.items():
        _insert(connection, table, rows)


def add_cycle(connection: LedgerConnection, row: Mapping[str, Any]) -> int:
    """Append the cycle; its id."""
    return connection.insert_counted("cycles", _clean("cycles", row))


def add_actions(
    connection: LedgerConnection, cycle_id: int, outcomes: Iterable[Outcome], first_submit_s: Mapping[int, float]
) -> None:
    """Append one row for each outcome. first_submit_s: by job id; else the action's own submit time."""
    rows = []
    for outcome in outcomes:
        action = outcome.action
        numbers = {name: getattr(action, name) if isinstance(action, SetPriority) else None for name in _NUMBERS}
        row = {"cycle_id": cycle_id, "job_id": action.job_id, "kind": action.kind, "reason": action.reason, **numbers}
        row["first_submit_s"] = first_submit_s.get(action.job_id, action.submit_s)
        rows.append(row | {"outcome": outcome.status, "message": outcome.message})
    _insert(connection, "actions", rows)


def add_operations(connection: LedgerConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the rows; see operation_rows."""
    _insert(connection, "operations", rows)


def add_carry(connection: LedgerConnection, cycle_id: int, policy: str, carry: Mapping[str, Any]) -> None:
    """Append the policy's carry; the last two are kept."""
    try:
        row = {"cycle_id": cycle_id, "policy": policy, "carry": encode_carry(carry)}
    except TypeError as error:
        raise LedgerError(f"policy {policy} carries what cannot be kept: {error}; see Ranking.carry") from error
    _insert(connection, "carries", [row])
    kept = connection.query(f"SELECT cycle_id FROM carries ORDER BY cycle_id DESC LIMIT {CARRIES_KEPT}")
    connection.execute("DELETE FROM carries WHERE cycle_id < :oldest", oldest=kept[-1][0])


def last_carry(connection: LedgerConnection, policy: str) -> Mapping[str, Any]:
    """What this policy carried last; empty if another policy was at work since."""
    last = connection.query("SELECT policy, carry FROM carries ORDER BY cycle_id DESC LIMIT 1")
    return decode_carry(last[0][1]) if last and last[0][0] == policy else {}


def load_moves(connection: LedgerConnection) -> MoveCosts:
    """The measured costs of moves; empty if none are stored."""
    last = connection.query(f"SELECT text FROM shared_lines WHERE {_OF_MOVES} ORDER BY id DESC LIMIT 1")
    return decode_moves(last[0][0] if last else "")


def save_moves(connection: LedgerConnection, moves: MoveCosts, term: int, now_s: float) -> None:
    """Put these in place of what was there. term: of the leader, 0 without one."""
    connection.execute(f"DELETE FROM shared_lines WHERE {_OF_MOVES}")
    row = {"file": MOVES, "term": term, "time_s": now_s, "text": encode_moves(moves)}
    _insert(connection, "shared_lines", [row])


def last_cycle(connection: LedgerConnection) -> tuple[int, float, float]:
    """Id, clock of the snapshot [s] and time of recording [s] of the last cycle; 0 and NaNs if there is none."""
    last = connection.query("SELECT id, now_s, recorded_s FROM cycles ORDER BY id DESC LIMIT 1")
    return last[0] if last else (0, np.nan, np.nan)  # type: ignore[return-value]


def history(connection: LedgerConnection) -> Floats:
    """Attained service [GPU s] of the jobs that completed last, oldest first. (H,) float64."""
    rows = connection.query(f"SELECT gpu_s FROM completions ORDER BY id DESC LIMIT {HISTORY_JOBS}")
    return np.array([gpu_s for (gpu_s,) in rows[::-1]], np.float64)


def ends_of(connection: LedgerConnection, job_ids: Sequence[int]) -> dict[int, list[RunEnded]]:
    """Our facts on closed runs of the latest job under each id, in the order of their making."""
    names, ends = ", ".join(spec.name for spec in fields(RunEnded)), dict[int, list[RunEnded]]()
    for listed in _listed(job_ids):
        for row in connection.query(f"SELECT {names} FROM run_ends WHERE job_id IN ({listed}) ORDER BY id"):
            end = RunEnded(*row)
            ends.setdefault(end.job_id, []).append(end)
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


def _insert(connection: LedgerConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    connection.insert(table, [_clean(table, row) for row in rows])


def _clean(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as every database takes it: NaN is NULL, texts fit, no NUL and no half characters in them."""
    return {name: _value(table, name, value) for name, value in row.items()}


def _value(table: str, name: str, value: Any) -> Any:
    if isinstance(value, float) and isnan(value):
        return None
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()[: longest_text(table, name)]
    return value


def _listed(ids: Sequence[int]) -> Iterator[str]:
    """The ids as comma lists for IN (...)."""
    return (", ".join(str(int(each)) for each in ids[i : i + _CHUNK]) for i in range(0, len(ids), _CHUNK))


# Retention of old facts.

PERIOD_S = 3_600.0
BATCH_ROWS = 1_000
BUDGET_S = 1.0  # of one cycle; the next one drops the rest
CHORE = "retention"

# What is dropped, in this order, and the column that has the age of a row. That of a cycle and its actions is its id.
_OLD = {
    "actions": "cycle_id",
    "run_starts": "start_s",
    "run_marks": "seen_s",
    "run_ends": "end_s",
    "completions": "end_s",
    "outside_changes": "seen_s",
    "operations": "seen_s",
    "placements": "start_s",
    "cycles": "id",
}
_NOT_IN = "NOT EXISTS (SELECT 1 FROM {0} WHERE {0}.{1} = {2})"


def last_done(connection: LedgerConnection) -> float:
    """When old facts were dropped last [s]; NaN if never."""
    done = connection.query(f"SELECT done_s FROM chores WHERE name = '{CHORE}'")
    return done[0][0] if done else nan


def due(now_s: float, done_s: float) -> bool:
    """Whether an hour has passed since all was done (or the clock was set back, or it never was)."""
    return not 0 <= now_s - done_s < PERIOD_S


def drop_old(
    database: LedgerDatabase, now_s: float, keep_days: float, *, field: str, budget_s: float = BUDGET_S
) -> bool:
    """Drop facts older than keep_days of jobs that are not in the queue; whether none is left. Each batch commits by
    itself; none begins after budget_s, but there is always one.

    A fact's age is that of its cycle or its own time; open jobs are those with a row in services or priority_overrides.
    field: "nice" or "site_factor", as in use; overrides of the other one go by the same age.
    """
    before_s, until_s = now_s - keep_days * DAY_S, time.monotonic() + budget_s
    for _ in _dropped(database, before_s):
        if time.monotonic() > until_s:
            return False
    with database.begin() as connection:
        other = "DELETE FROM priority_overrides WHERE field <> :field AND submit_s < :before_s"
        connection.execute(other, field=field, before_s=before_s)
        connection.execute(f"DELETE FROM chores WHERE name = '{CHORE}'")
        connection.insert("chores", [{"name": CHORE, "done_s": now_s}])
    return True


def _dropped(database: LedgerDatabase, before_s: float) -> Iterator[int]:
    """Drops batch after batch, table after table; the rows of each full one."""
    for table, key in _OLD.items():
        rows = BATCH_ROWS
        while rows == BATCH_ROWS:
            with database.begin() as connection:
                oldest = _first_kept(connection, before_s) if key in ("id", "cycle_id") else before_s
                rows = _drop_batch(connection, table, key, oldest)
            if rows == BATCH_ROWS:
                yield rows


def _drop_batch(connection: LedgerConnection, table: str, key: str, oldest: float) -> int:
    """Delete one batch, by the index on its key: where nothing is old the length of the table must not matter.

    Only jobs without memory, and cycles without actions left.
    """
    users = {"actions": ("cycle_id", "cycles.id")} if table == "cycles" else dict.fromkeys(
        ("services", "priority_overrides"), ("job_id", f"{table}.job_id"))  # fmt: skip
    unused = " AND ".join(_NOT_IN.format(user, *columns) for user, columns in users.items())
    found = connection.query(
        f"SELECT id FROM {table} WHERE {key} < :oldest AND {unused} ORDER BY {key} LIMIT {BATCH_ROWS}", oldest=oldest
    )
    for listed in _listed([each for (each,) in found]):
        connection.execute(f"DELETE FROM {table} WHERE id IN ({listed})")
    return len(found)


def _first_kept(connection: LedgerConnection, before_s: float) -> int:
    """The first cycle that is not old, else the last one; 0 if there is none."""
    first = connection.query("SELECT min(id) FROM cycles WHERE now_s >= :before_s", before_s=before_s)[0][0]
    return int(first if first is not None else connection.query("SELECT max(id) FROM cycles")[0][0] or 0)
