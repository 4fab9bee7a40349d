"""What a replay remembers between cycles, as the daemon's ledger does: operations, levers, carries and ended runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slurmsched import registry
from slurmsched.config import LeverConfig
from slurmsched.db import priority_overrides
from slurmsched.db.priority_overrides import PriorityOverrides
from slurmsched.db.remembered_jobs import HISTORY_JOBS
from slurmsched.model import Labels, Past
from slurmsched.model.columns import Floats, frozen
from slurmsched.model.jobs import NO_PAST
from slurmsched.model.operations import Operation
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.model.trace import Trace
from slurmsched.protocols import Store
from slurmsched.sim.traces.trace_io import load_trace


class OperationMemory:
    """What operation_log.OperationLog is to the daemon. A replay is never cut off: there is nothing to read again."""

    keep_s = 3_600.0

    def begin(self, operations: Sequence[Operation]) -> None:
        """These operations are about to move on."""

    def sent(self, operations: Sequence[Operation]) -> None:
        """These operations have moved on; their recorder (slurm.recorder) keeps them."""

    def stepped(self) -> bool:
        """A replay's clock only goes on."""
        return False

    def known(self) -> tuple[Operation, ...]:
        """None from before the replay."""
        return ()


# The store of a replay: levers, base, history and carry as plain objects; nothing is kept when it ends.
#
# The simulated slurmctld knows what its jobs attained and fills those columns itself.


class MemoryStore:
    """A Store (see protocols) without a database."""

    def __init__(self, lever: LeverConfig | None = None) -> None:
        self._config = lever or LeverConfig()
        self._overrides = PriorityOverrides.build(0, {})
        self._completed: set[int] = set()
        self._latest: deque[float] = deque(maxlen=HISTORY_JOBS)  # attained service [GPU s] in order of completion
        self._history: Floats = frozen([], np.float64)
        self._carry: Mapping[str, Any] = {}

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the lever columns, history and carry."""
        jobs = snapshot.jobs
        self._learn(snapshot)
        checked = priority_overrides.check(self._overrides, jobs, snapshot.now_s, self._config)
        self._overrides = checked.overrides
        return replace(
            snapshot, jobs=jobs.with_columns(**checked.columns), history_gpu_s=self._history, carry=self._carry
        )

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember what was written and what the policy carries."""
        written = priority_overrides.remember(self._overrides, snapshot.jobs, receipt.outcomes, self._config.kind)
        self._overrides = self._overrides.merged(written, priority_overrides.gone(self._overrides, snapshot.jobs))
        if plan.ranking is not None:
            self._carry = plan.ranking.carry

    def _learn(self, snapshot: Snapshot) -> None:
        jobs = snapshot.jobs
        rows = np.flatnonzero(jobs.is_state(JobState.COMPLETED))
        fresh = [row for row in rows if int(jobs.job_id[row]) not in self._completed]
        if not fresh:
            return
        self._completed.update(jobs.job_id[fresh].tolist())
        self._latest.extend(jobs.attained_gpu_s[fresh].tolist())
        self._history = frozen(np.sort(self._latest), np.float64)


# The store of a replay without levers.


class CarryStore:
    """A Store (see protocols) of carry and history.

    history_gpu_s: attained service [GPU s] of jobs that completed before the replay.
    """

    def __init__(self, history_gpu_s: Floats | None = None) -> None:
        self._history = frozen(np.sort(np.asarray([] if history_gpu_s is None else history_gpu_s)), np.float64)
        self._carry: Mapping[str, Any] = {}

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with history and carry."""
        return _with_memory(snapshot, self._history, self._carry)

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember what the policy carries."""
        if plan.ranking is not None:
            self._carry = plan.ranking.carry


# The store of a replay whose policy or estimator learns from jobs that ended.


class EndedRun(Protocol):
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

    def __init__(self, inner: Store, cluster: EndedRun, before: Trace | None = None) -> None:
        self._inner, self._cluster = inner, cluster
        first = NO_PAST if before is None else as_past(before)
        order = np.argsort(first.end_s, kind="stable")
        first = first.take(order[first.executed_s[order] > 0])
        self._table = _GrowingColumns(first, cluster.trace)

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the past up to now."""
        if self._cluster.ended > self._table.noted:
            self._table.note(*self._cluster.endings())
        return replace(self._inner.recall(snapshot), past=self._table.past)

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """As the inner store."""
        self._inner.append(snapshot, plan, receipt)


def learns_from_ended_jobs(store: Store, plugins: Iterable[Any], cluster: EndedRun, past: str) -> Store:
    """The store that also keeps the past, where one of the plug-ins learns from it. past: a trace's file, "" if none.

    Raises InputError.
    """
    if not any(registry.learns(plugin) for plugin in plugins):
        return store
    return LearningStore(store, cluster, load_trace(Path(past)).trace if past else None)


class _GrowingColumns:
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


_NAMES = [spec.name for spec in fields(Snapshot)]
_values = attrgetter(*_NAMES)
_HISTORY, _CARRY = _NAMES.index("history_gpu_s"), _NAMES.index("carry")


def _with_memory(snapshot: Snapshot, history_gpu_s: Floats, carry: Mapping[str, Any]) -> Snapshot:
    """The snapshot with history and carry: as dataclasses.replace, which takes longer in each cycle of a replay."""
    values = list(_values(snapshot))
    values[_HISTORY], values[_CARRY] = history_gpu_s, carry
    return Snapshot(*values)
