"""The snapshot of an ideal cluster: columns of the jobs there are now, made when a policy asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from slurmsched.model import Allocations, Jobs, JobState, Labels, Nodes, NodeState, Partitions, Site, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, sealed
from slurmsched.replay.late import LateAllocations, LateJobs, LateNodes
from slurmsched.replay.traces import Trace

PARTITION = "gpu"
_NODE_STATES = np.array([int(NodeState.IDLE), int(NodeState.MIXED), int(NodeState.ALLOCATED)], np.int64)
_STATES = np.array([int(JobState.PENDING), int(JobState.RUNNING)], np.int64)
_TABLES: tuple[type[Any], ...] = (Jobs, Allocations)
_EVERY: dict[str, Any] = {
    "user": "trace",
    "account": "trace",
    "partition": PARTITION,
    "priority": 1,
    "requeueable": True,
}
_SPECS = {kind: {spec.name: spec.metadata for spec in fields(kind)} for kind in _TABLES}


@lru_cache(maxsize=16_384)
def _constant(kind: type[Any], name: str, rows: int) -> Any:
    """A column that holds the same in every row; many tables share it."""
    dtype, value = _SPECS[kind][name]["dtype"], _EVERY.get(name, _SPECS[kind][name]["default"])
    return Labels.constant(value, rows) if dtype is Labels else sealed(np.full(rows, value, dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """What never changes of the jobs of a trace: one row a job, in ascending job id. All columns (J,)."""

    job_id: Int64s
    gpus: Int64s
    gpus32: Int32s
    nodes: Int32s
    submit_s: Floats
    duration_s: Floats
    time_limit_s: Floats
    gpu_request: Labels

    @classmethod
    def of(cls, trace: Trace, size: int) -> Cast:
        """The cast of a trace on nodes of at most `size` GPUs."""
        order = np.argsort(trace.job_id, kind="stable")
        gpus = trace.gpus[order]
        requests = Labels.of([f"gpu:{count}" for count in gpus.tolist()])
        times = (trace.submit_s[order], trace.duration_s[order], trace.time_limit_s[order])
        nodes = (-(-gpus // max(size, 1))).astype(np.int32)
        return cls(trace.job_id[order], gpus, gpus.astype(np.int32), nodes, *times, requests)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Nodes, partition and site: made once, shared by all snapshots."""

    nodes: Nodes
    partitions: Partitions
    site: Site

    @classmethod
    def of(cls, capacity: Int64s) -> Stage:
        width = len(str(len(capacity)))
        nodes = Nodes.build(len(capacity), {
            "name": [f"node{n:0{width}d}" for n in range(1, len(capacity) + 1)],
            "partitions": Labels.constant(PARTITION, len(capacity)),
            "gpu_types": [f"gpu:{gpus}" for gpus in capacity.tolist()],
            "gpus": capacity,
        })  # fmt: skip
        partitions = Partitions.build(1, {"name": [PARTITION], "default": [True], "nodes": [len(capacity)]})
        return cls(nodes, partitions, Site(cluster="ideal", user="slurmsched"))


@dataclass(frozen=True, eq=False)  # no slots: what several columns share is made once
class View:
    """The cluster at one time; nothing in it changes later.

    rows: (N,) rows of the cast that wait or run, ascending. running: (N,) bool. start_s: (N,) of this run, NaN if
    waiting. before_s: (N,) run time of earlier runs. stopped_s: (N,) when it last ran or came. restarts: (N,).
    held_row, held_node, held_gpus: (A,) GPUs held, by row of the cast, node row; ascending. used: (N,) GPUs by node.
    """

    now_s: float
    cast: Cast
    stage: Stage
    rows: Int64s
    running: Bools
    start_s: Floats
    before_s: Floats
    stopped_s: Floats
    restarts: Int64s
    held_row: Int64s
    held_node: Int64s
    held_gpus: Int64s
    used: Int64s

    def snapshot(self, seed: int) -> Snapshot:
        jobs = LateJobs(len(self.rows), self._job_column)
        nodes = LateNodes(len(self.stage.nodes), self._node_column)
        held = LateAllocations(len(self.held_row), self._held_column)
        return Snapshot(self.now_s, jobs, nodes, self.stage.partitions, held, self.stage.site, seed)

    def _job_column(self, name: str) -> Any:
        maker = _JOBS.get(name)
        return _read_only(maker(self)) if maker else _constant(Jobs, name, len(self.rows))

    def _held_column(self, name: str) -> Any:
        maker = _HELD.get(name)
        return _read_only(maker(self)) if maker else _constant(Allocations, name, len(self.held_row))

    def _node_column(self, name: str) -> Any:
        maker = _NODES.get(name)
        return _read_only(maker(self)) if maker else getattr(self.stage.nodes, name)

    @cached_property
    def submit_s(self) -> Floats:
        return self.cast.submit_s[self.rows]

    @cached_property
    def limit_s(self) -> Floats:
        return self.cast.time_limit_s[self.rows]

    @cached_property
    def run_s(self) -> Floats:
        return np.where(self.running, self.now_s - self.start_s, 0.0)

    @cached_property
    def executed_s(self) -> Floats:
        return self.before_s + self.run_s


def _read_only(column: Any) -> Any:
    return column if isinstance(column, Labels) else sealed(column)


def _node_state(view: View) -> Int64s:
    used = view.used
    return _NODE_STATES[(used > 0).view(np.int8) + (used >= view.stage.nodes.gpus)]


Makers = dict[str, Callable[[View], Any]]
_JOBS: Makers = {
    "job_id": lambda v: v.cast.job_id[v.rows],
    "state": lambda v: _STATES[v.running.view(np.int8)],
    "submit_s": lambda v: v.submit_s,
    "eligible_s": lambda v: v.submit_s,
    "start_s": lambda v: v.start_s,
    "end_s": lambda v: v.start_s + v.limit_s,
    "time_limit_s": lambda v: v.limit_s,
    "run_s": lambda v: v.run_s,
    "nodes": lambda v: v.cast.nodes[v.rows],
    "gpus": lambda v: v.cast.gpus32[v.rows],
    "gpu_request": lambda v: v.cast.gpu_request.take(v.rows),
    "restarts": lambda v: v.restarts.astype(np.int32),
    "first_submit_s": lambda v: v.submit_s,
    "executed_s": lambda v: v.executed_s,
    "attained_gpu_s": lambda v: v.executed_s * v.cast.gpus[v.rows],
    "waiting_s": lambda v: np.where(v.running, 0.0, v.now_s - v.stopped_s),
}
_HELD: Makers = {
    "job_id": lambda v: v.cast.job_id[v.held_row],
    "node": lambda v: Labels(v.held_node.astype(np.int32), v.stage.nodes.name.names),
    "gpus": lambda v: v.held_gpus.astype(np.int32),
}
_NODES: Makers = {"gpus_used": lambda v: v.used.astype(np.int32), "state": _node_state}
