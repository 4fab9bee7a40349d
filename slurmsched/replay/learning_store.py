"""The store of a replay whose policy or estimator learns from jobs that ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slurmsched import registry
from slurmsched.model import Labels, Past, Plan, Receipt, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.past import NO_PAST
from slurmsched.protocols import Store
from slurmsched.replay.trace_files import load
from slurmsched.replay.traces import Trace


class Ending(Protocol):
    """What a simulated cluster tells of jobs that ended: by row of its trace."""

    trace: Trace

    @property
    def ended(self) -> int: ...

    def endings(self) -> tuple[Floats, Floats]:
        """End [s], NaN while it has not, and executed time [s] of each job, in the trace's order. (J,), (J,)."""
        ...


class LearningStore:
    """Another store, and the past: jobs of the replay that ended so far behind those of an earlier trace. As in the
    daemon's past, those that ran 0 s are left out: they tell nothing of how long a job runs.

    before: an earlier trace, as recorded; None: nothing is known at the start.
    """

    def __init__(self, inner: Store, cluster: Ending, before: Trace | None = None) -> None:
        self._inner, self._cluster = inner, cluster
        first = NO_PAST if before is None else as_past(before)
        order = np.argsort(first.end_s, kind="stable")
        first = first.take(order[first.executed_s[order] > 0])
        self._table = _Growing(first, cluster.trace)

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the past up to now."""
        if self._cluster.ended > self._table.noted:
            self._table.note(*self._cluster.endings())
        return replace(self._inner.recall(snapshot), past=self._table.past)

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """As the inner store."""
        self._inner.append(snapshot, plan, receipt)


def learning(store: Store, plugins: Iterable[Any], cluster: Ending, past: str) -> Store:
    """The store that also keeps the past, where one of the plug-ins learns from it. past: a trace's file, "" if none.

    Raises InputError.
    """
    if not any(registry.learns(plugin) for plugin in plugins):
        return store
    return LearningStore(store, cluster, load(Path(past)).trace if past else None)


class _Growing:
    """A past that grows behind its last row: what was given out is never written again.

    Columns are kept as arrays of their full length; of text columns the codes.
    """

    def __init__(self, first: Past, trace: Trace) -> None:
        whole = first.followed_by(as_past(trace))
        self._source = {spec.name: _numbers(getattr(whole, spec.name)) for spec in fields(Past)}
        self._names = {spec.name: column.names for spec in fields(Past)
                       if isinstance(column := getattr(whole, spec.name), Labels)}  # fmt: skip
        self._columns = {name: values.copy() for name, values in self._source.items()}
        self._first, self._written = len(first), np.zeros(len(trace), np.bool_)
        self._order_id, self._gpus = trace.job_id, trace.gpus
        self.noted, self.past = 0, first  # noted: who ended, in the past or not

    def note(self, end_s: Floats, executed_s: Floats) -> None:
        """Write down who ended since the last time, in the order of their ends. end_s, executed_s: (J,)."""
        rows = np.flatnonzero(np.isfinite(end_s) & ~self._written)
        self._written[rows] = True
        self.noted += len(rows)
        rows = rows[executed_s[rows] > 0]
        rows = rows[np.lexsort((self._order_id[rows], end_s[rows]))]
        start = len(self.past)
        place = slice(start, start + len(rows))
        attained_gpu_s = executed_s[rows] * self._gpus[rows]
        seen = {"end_s": end_s[rows], "executed_s": executed_s[rows], "attained_gpu_s": attained_gpu_s}
        for name, column in self._columns.items():
            column[place] = seen[name] if name in seen else self._source[name][self._first + rows]
        self.past = Past(**{name: self._view(name, place.stop) for name in self._columns})

    def _view(self, name: str, stop: int) -> Any:
        view = self._columns[name][:stop]
        view.flags.writeable = False
        return Labels(view, self._names[name]) if name in self._names else view


def as_past(trace: Trace) -> Past:
    """The jobs of a trace as if each had run alone from its start, or from its submission where none is recorded."""
    begin_s = np.where(np.isnan(trace.start_s), trace.submit_s, trace.start_s)
    columns: dict[str, Any] = {
        "job_id": trace.job_id, "user": trace.user, "account": trace.account, "name": trace.name, "model": trace.model,
        "gpu_type": trace.gpu_type, "gpus": trace.gpus.astype(np.int32), "submit_s": trace.submit_s,
        "end_s": begin_s + trace.duration_s, "executed_s": trace.duration_s,
        "attained_gpu_s": trace.duration_s * trace.gpus, "completed": trace.state.isin(("", "COMPLETED")),
    }  # fmt: skip
    return Past.build(len(trace), columns)


def _numbers(column: Any) -> Any:
    return column.codes if isinstance(column, Labels) else column
