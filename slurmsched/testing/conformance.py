"""Rules that every policy and estimator keeps, as one call in a plug-in's own tests."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.errors import SlurmschedError
from slurmsched.model import Assignments, Estimates, JobChanges, Labels, Ranking, Snapshot
from slurmsched.model.overrides import request_of_types, types_of
from slurmsched.protocols import ChangingPolicy, Estimator, Policy
from slurmsched.resources.allocated import holding
from slurmsched.testing.builders import mixed_snapshot, shifted, snapshot

SHIFTS_S = (1_764_000_123.0, -2_000_001.0)  # that times are shifted by; neither is a whole number of minutes
LOOK_S = 600.0  # from one look of a series to the next

R = TypeVar("R", Ranking, Estimates, Assignments, NDArray[Any])


class NonconformingError(SlurmschedError, AssertionError):
    """A plug-in breaks a rule of its kind. `rule` names it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


def examples() -> tuple[Snapshot, ...]:
    """The snapshots that plug-ins are tried on: nothing at all, no job, no node (one job), many, few.

    Many before few: lots drawn for three jobs agree one time in six and would be reported as some other fault.
    """
    alone = [{"job_id": 7, "state": "RUNNING", "start_s": 10.0, "executed_s": 90.0}]
    empty = (snapshot((), "0x0"), snapshot((), "4x8"), snapshot(alone, "0x0", now_s=100.0))
    return (*empty, mixed_snapshot(200, seed=3), mixed_snapshot(40, seed=2), mixed_snapshot(3, seed=1))


def check_policy(policy: Policy, snapshots: Sequence[Snapshot] = ()) -> None:
    """Raise NonconformingError unless the policy keeps every rule on the given snapshots and on `examples`.

    frozen: a frozen dataclass. pure: no clock, no chance, nothing written, nothing kept. repeatable: the same snapshot
    gives the same bytes. total order: every row once. finite: `why` has a number by row and no NaN.
    row order: the same jobs in other rows give the same order. changes: a value by row; GPUs by type in sum as many as
    the job is to hold. carry: plain values, taken back at the next quantum. clock: all times shifted by a constant
    change nothing, at the second look neither.
    """
    frozen_or_raise(policy)
    if not isinstance(getattr(policy, "preemptive", False), bool):
        raise NonconformingError("preemptive", "must be True or False")
    for given in (*snapshots, *examples()):
        ranking = checked_run(policy.rank, given, Ranking)
        _check_ranking(ranking, given)
        _check_row_order(policy, given, ranking)
        _check_carry(policy, given, ranking)
        check_clock(policy, given)


def check_estimator(estimator: Estimator, snapshots: Sequence[Snapshot] = ()) -> None:
    """Raise NonconformingError unless the estimator keeps every rule on the given snapshots and on `examples`.

    frozen, pure, repeatable and row order as check_policy has them. finite: each estimate is a finite time of at least
    0 or NaN (none). source: an index into sources by row.
    """
    frozen_or_raise(estimator)
    for given in (*snapshots, *examples()):
        estimates = checked_run(estimator.estimate, given, Estimates)
        _check_estimates(estimates, len(given.jobs))
        other_way = turned(given)
        other = estimator.estimate(other_way).total_s[np.argsort(other_way.jobs.job_id)]
        if not np.array_equal(estimates.total_s, other, equal_nan=True):
            raise NonconformingError("row order", "the estimate of a job depends on its row")


def frozen_or_raise(plugin: object) -> None:
    parameters = getattr(plugin, "__dataclass_params__", None)
    if not is_dataclass(plugin) or not parameters.frozen:  # type: ignore[union-attr]
        raise NonconformingError("frozen", f"{type(plugin).__name__} must be a frozen dataclass")


def checked_run(function: Callable[[Snapshot], R], given: Snapshot, kind: type[R]) -> R:
    """The result, after three runs (one of another snapshot between) that must agree and leave no trace."""
    before = _bytes(given)
    try:
        first = function(given)
        function(mixed_snapshot(5, seed=9))
        with _watched() as calls:
            second = function(given)
    except Exception as error:
        raise NonconformingError("accepts", f"{len(given.jobs)} jobs, {len(given.nodes)} nodes: {error!r}") from error
    if not isinstance(second, kind):
        raise NonconformingError("result", f"must be {kind.__name__}, not {type(second).__name__}")
    if calls:
        raise NonconformingError("pure", f"calls {calls[0]}; take time and chance from the snapshot (now_s, seed)")
    if _bytes(first) != _bytes(second):
        raise NonconformingError("repeatable", "the same snapshot gave two results")
    if _bytes(given) != before:
        raise NonconformingError("pure", "the snapshot was changed")
    return second


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Collects calls of clocks and of the system's chance made in the body. C functions only are seen."""
    calls: list[str] = []
    outer, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # lest a callback of somebody else's, run at a collection, be taken for the plug-in's call

    def note(_frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and (name := _impure(function)):
            calls.append(name)

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(outer)
        if collects:
            gc.enable()


def _impure(function: Any) -> str:
    """The name of a C function that reads a clock or chance, "" of any other."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if module == "time" or (module in ("posix", "nt") and name == "urandom"):
        return f"{module}.{name}"
    clocks = ("datetime.now", "datetime.utcnow", "date.today", "datetime.today")
    return name if name in clocks or name.startswith("Random.") else ""


def _check_ranking(ranking: Ranking, given: Snapshot) -> None:
    rows = len(given.jobs)
    if not np.array_equal(np.sort(ranking.order), np.arange(rows)):
        raise NonconformingError("total order", f"order must hold each of {rows} rows once")
    for name, column in ranking.why.items():
        if np.shape(column) != (rows,):
            raise NonconformingError("finite", f"why[{name!r}] has shape {np.shape(column)}, not ({rows},)")
        if np.asarray(column).dtype.kind == "f" and np.isnan(column).any():
            raise NonconformingError("finite", f"why[{name!r}] has NaN; say infinity for a job that comes last")
    for name, values in ({} if ranking.changes is None else ranking.changes.columns).items():
        if len(values) != rows:
            raise NonconformingError("changes", f"changes.{name} has {len(values)} rows, not {rows}")
    if ranking.changes is not None and ranking.changes.gpus_by_type is not None:
        _check_types(ranking.changes, ranking.changes.gpus_by_type, given)


def _check_types(changes: JobChanges, gpus_by_type: Labels, given: Snapshot) -> None:
    """That whoever is to be on several types is to hold its GPUs of them, some of each."""
    asked = given.jobs.gpus if changes.gpus is None else np.where(changes.gpus > 0, changes.gpus, given.jobs.gpus)
    for text, gpus in zip(gpus_by_type, asked.tolist(), strict=True):
        of = types_of(text)
        if text and (text != request_of_types(of) or len(of) < 2 or min(of.values()) < 1 or sum(of.values()) != gpus):
            raise NonconformingError("changes", f"changes.gpus_by_type has {text!r} for {gpus} GPUs: say how many "
                                     'of each of several types, as "gpu:k80:2,gpu:v100:4"')  # fmt: skip


def _check_row_order(policy: Policy, given: Snapshot, ranking: Ranking) -> None:
    other_way = turned(given)
    ids, others = given.jobs.job_id[ranking.order], other_way.jobs.job_id[policy.rank(other_way).order]
    if not np.array_equal(ids, others):
        raise NonconformingError("row order", "ties are broken by row; end the keys with submission and job id")


def _check_carry(policy: Policy, given: Snapshot, ranking: Ranking) -> None:
    try:
        plain = json.loads(json.dumps(dict(ranking.carry)))
    except (TypeError, ValueError) as error:
        raise NonconformingError("carry", f"must be numbers, texts, lists and mappings: {error}") from error
    if plain != ranking.carry:
        raise NonconformingError("carry", "changes when written as JSON; use lists for tuples and texts for keys")
    for later in (replace(given, carry=plain), replace(given, carry={"left by": ["another policy"]})):
        _check_ranking(checked_run(policy.rank, later, Ranking), later)


def check_clock(policy: Policy, given: Snapshot, shifts_s: Sequence[float] = SHIFTS_S) -> None:
    """Raise NonconformingError if a ranking depends on what the clock counts from: at the first look, and at the next
    with its own carry. shifts_s: what all times are shifted by [s]."""
    for by_s in shifts_s:
        here, there = replace(given, carry={}), shifted(replace(given, carry={}), by_s)
        for _ in range(2):
            ours, theirs = policy.rank(here), policy.rank(there)
            if what := _differs(ours, theirs, by_s) or _changes_elsewhere(policy, (here, ours), (there, theirs), by_s):
                raise NonconformingError("clock", f"all times {by_s:g} s later, and {what}; measure times from a job's "
                                         "own submission, or from a time in the carry")  # fmt: skip
            here, there = (
                replace(each, now_s=each.now_s + LOOK_S, carry=ranked.carry)
                for each, ranked in ((here, ours), (there, theirs))
            )


def _differs(ours: Ranking, theirs: Ranking, by_s: float) -> str:
    """What of the ranking of a shifted snapshot is not what it was, "" if all is."""
    if not np.array_equal(ours.order, theirs.order):
        return "the order is another"
    for name, column in ours.why.items():
        here, there = np.asarray(column, np.float64), np.asarray(theirs.why[name], np.float64)
        if not (np.isclose(here, there, 1e-6, 1e-3) | np.isclose(here + by_s, there, 0.0, 1e-3)).all():
            return f"why[{name!r}] is another"
    columns = {} if ours.changes is None else ours.changes.columns
    others = {} if theirs.changes is None else theirs.changes.columns
    for name in columns | others:
        if name not in columns or name not in others:
            return f"changes.{name} is not there in both"
        if isinstance(columns[name], Labels):
            same = list(columns[name]) == list(others[name])
        else:
            here, there = np.asarray(columns[name]), np.asarray(others[name])
            same = np.allclose(here + (by_s if name == "start_s" else 0), there, 1e-6, 1e-3)
        if not same:
            return f"changes.{name} is another"
    return ""


def _changes_elsewhere(
    policy: Policy, ours: tuple[Snapshot, Ranking], theirs: tuple[Snapshot, Ranking], by_s: float
) -> str:
    """What is said when the order is to change at another time, "" if it is not or the policy does not tell."""
    if not isinstance(policy, ChangingPolicy):
        return ""
    here, there = (policy.next_change_s(given, ranking, holding(given.jobs)) for given, ranking in (ours, theirs))
    return "" if here == there or abs(here + by_s - there) < 1e-3 else f"next_change_s moves from {here} to {there}"


def _check_estimates(estimates: Estimates, rows: int) -> None:
    total_s, source = np.asarray(estimates.total_s), np.asarray(estimates.source)
    if total_s.shape != (rows,) or total_s.dtype != np.float64:
        raise NonconformingError("finite", f"total_s must be ({rows},) float64, not {total_s.shape} {total_s.dtype}")
    if not (np.isnan(total_s) | (np.isfinite(total_s) & (total_s >= 0))).all():
        raise NonconformingError("finite", "total_s must be at least 0, or NaN where there is no estimate")
    if source.shape != (rows,) or not np.isin(source, np.arange(len(estimates.sources))).all():
        raise NonconformingError("source", "must be an index into sources by row")


def turned(given: Snapshot) -> Snapshot:
    """The same snapshot with the rows of its jobs the other way round."""
    return replace(given, jobs=given.jobs.take(np.arange(len(given.jobs))[::-1]))


def _bytes(value: Any) -> Any:
    """A value that equals another's just when all they hold is equal to the last bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return {key: _bytes(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, {name: _bytes(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, list | tuple):
        return [_bytes(item) for item in value]
    return repr(value)
