"""An ideal cluster with what single simulators do besides: each quirk a setting of IdealModel, off by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Plan, Receipt
from slurmsched.replay.adapting import AdaptingCluster
from slurmsched.replay.ideal import End, IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_pile import PileCluster
from slurmsched.replay.ideal_view import TIME_LIMIT
from slurmsched.replay.rooms import Rooms
from slurmsched.replay.traces import Trace


def ideal_cluster(
    trace: Trace, nodes: Sequence[int], model: IdealModel, *, seed: int = 0, compiled: bool = False
) -> IdealCluster:
    """The cluster that these settings ask for. compiled: kernels run compiled, so that one made of them is faster.

    Raises as IdealCluster, and ConfigError where jobs are to tell their progress, useless without physics.
    """
    if model.tells_progress:
        raise ConfigError("needs --physics: without it a job is as fast anywhere", key="model.tells_progress")
    if model.adapts:
        return AdaptingCluster(trace, nodes, model, seed=seed)
    made: type[IdealCluster] = QuirkyCluster if model.quirky else IdealCluster
    if compiled and PileCluster.suits(nodes, model):
        made = PileCluster
    return made(slowed(trace, model), nodes, model, seed=seed)


def slowed(trace: Trace, model: IdealModel) -> Trace:
    """The trace with the run times that IdealModel.slowdown makes of its own."""
    if model.slowdown == 1.0:
        return trace
    slower_s = trace.duration_s * model.slowdown
    limit_s = np.where(trace.limit_known, trace.time_limit_s, slower_s)
    return trace.with_columns(duration_s=slower_s, time_limit_s=limit_s)


class QuirkyCluster(IdealCluster):
    """The ideal cluster with the costs and refusals that IdealModel lists as quirks."""

    def __init__(self, trace: Trace, nodes: Sequence[int], model: IdealModel, *, seed: int = 0) -> None:
        super().__init__(trace, nodes, model, seed=seed)
        order = np.argsort(trace.job_id, kind="stable")  # rows of the cast
        self._sizes, jobs = trace.gpus[order], len(trace)
        self._restart_s = model.restart_costs(self._sizes)
        self._event_s = model.event_costs(trace.model.take(order), self._sizes)
        self._due_s, self._lost_s = np.full(jobs, np.nan), np.zeros(jobs)  # end of this run; lost to events in it
        self._needed_s = self.cast.duration_s + model.start_cost_s  # run time of each job in all, as known so far
        self._charged_s = 0.0  # the last event
        self._rooms = Rooms(int(self.capacity.sum()), model.node_gpus, model.node_choice)
        self._asked: set[int] | None = None  # rows to start, while a plan is applied
        self._tell(slice(None), model.start_cost_s)
        self._check_nodes()

    def _check_nodes(self) -> None:
        """Whole nodes make up the pile: then there is room for any gang once the cluster is empty."""
        size, gpus = self.model.node_gpus, int(self.capacity.sum())
        if size and (not self._pile or gpus % size):
            raise ConfigError(f"needs a plan that only counts GPUs (--placement count), and nodes of {size} GPUs that "
                              f"make up the {gpus}", key="model.node_gpus")  # fmt: skip

    def advance(self, until_s: float) -> int:
        """As the ideal cluster, with what each event costs."""
        if not self.model.event_cost_s:
            return super().advance(until_s)
        happened = 0
        while (time_s := self.next_event_s) <= until_s:
            happened += super().advance(time_s)
            self._charge()
        return happened + super().advance(until_s)

    def apply(self, plan: Plan) -> Receipt:
        """As the ideal cluster; with node_gpus the starts find their places in the order of the target, or fail."""
        if not self.model.node_gpus:
            return super().apply(plan)
        self._asked = set()
        receipt = super().apply(plan)
        asked, self._asked, self._queue = self._asked, None, None
        self._open = False  # who comes has to find a place too
        assert plan.target is not None
        for row in self._seen[plan.target.rows].tolist():
            if row not in asked:
                continue
            if self._rooms.take(row, int(self._sizes[row])):
                self._start(row)
                continue
            self._bound = 0  # whatever GPUs come back may make the place
            if self.model.refusal_blocks:
                break
        self._history.note(self._now_s, self._history.gpus - self.free, self.waiting)
        return receipt

    def _start(self, row: int) -> None:
        if self._asked is not None:
            self._asked.add(row)
            return
        self._lost_s[row] = 0.0
        super()._start(row)

    def _stop(self, row: int) -> None:
        super()._stop(row)
        left_s = self._cost_s(row, False) + (self.cast.duration_s[row] - self.progress_s[row])
        self._need(row, self.executed_s[row] + left_s)

    def _leave(self, row: int) -> float:
        self._rooms.give(row)
        return super()._leave(row)

    def _cost_s(self, row: int, first: bool) -> float:
        cost_s = self.model.start_cost_s if first else self._restart_s[row]
        return float(cost_s + self._lost_s[row])

    def _until(self, row: int, end_s: float) -> None:
        self._due_s[row] = end_s
        super()._until(row, end_s)

    def _void(self, event: End) -> bool:
        return super()._void(event) or event.time_s != self._due_s[event.row]

    def _charge(self) -> None:
        """Take from every running job what an event costs, at most what it made since the one before."""
        for row in self._active[: self._present].tolist():
            since_s = max(self.start_s[row], self._charged_s)  # NaN for a job that waits
            lost_s = float(min(self._event_s[row], self._now_s - since_s)) if since_s < self._now_s else 0.0
            if lost_s > 0:
                self._lost_s[row] += lost_s
                self._until(row, float(self._due_s[row]) + lost_s)
                self._need(row, self._needed_s[row] + lost_s)
        self._charged_s = self._now_s

    def _need(self, row: int, needed_s: float) -> None:
        self._tell(row, needed_s - self._needed_s[row])
        self._needed_s[row] = needed_s

    def _tell(self, rows: Any, more_s: float) -> None:
        """Let policies know that a job takes so much longer."""
        if self.model.costs_known:
            self.cast.times[rows, TIME_LIMIT] += more_s
