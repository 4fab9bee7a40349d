"""The snapshot of an ideal cluster: columns of the jobs there are now, those that policies read in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.estimators.throughput_table import model_and_batch
from slurmsched.kernels.show import job_columns
from slurmsched.model import Allocations, Jobs, JobState, Labels, Nodes, NodeState, Partitions, Site, Snapshot
from slurmsched.model.columns import Floats, Int32s, Int64s, sealed
from slurmsched.model.hints import MARK
from slurmsched.model.quick import quickly
from slurmsched.replay.late import LateAllocations, LateJobs, setters
from slurmsched.replay.traces import Trace

NAN = float("nan")
PARTITION = "gpu"
TIME_LIMIT = 4  # its column in Cast.times
PENDING, RUNNING = int(JobState.PENDING), int(JobState.RUNNING)
_NODE_STATES = np.array([int(NodeState.IDLE), int(NodeState.MIXED), int(NodeState.ALLOCATED)], np.int64)
_TABLES: tuple[type[Any], ...] = (Jobs, Allocations)
_EVERY: dict[str, Any] = {
    "user": "trace",
    "account": "trace",
    "partition": PARTITION,
    "priority": 1,
    "requeueable": True,
}
_SPECS = {kind: {spec.name: spec.metadata for spec in fields(kind)} for kind in _TABLES}
_LATE = {name: row for row, name in enumerate(("nodes", "gpus", "restarts")) if name != "gpus"}  # rows of small
_ALIKE = ("priority", "dependency", "reservation")  # that placements look at
# Two columns of one array are one object: plug-ins may tell by that, that no requeue has moved a submission.
_READY = setters(Jobs, "submit_s", "eligible_s", "first_submit_s", "start_s", "end_s", "time_limit_s", "run_s",
                 "executed_s", "attained_gpu_s", "waiting_s", "job_id", "state", "gpus", *_ALIKE)  # fmt: skip
_HELD = setters(Allocations, "job_id", "node", "gpus")


@lru_cache(maxsize=1_024)
def _same(kind: type[Any], name: str, rows: int) -> Any:
    """A column that holds the same in every row."""
    dtype, value = _SPECS[kind][name]["dtype"], _EVERY.get(name, _SPECS[kind][name]["default"])
    return Labels.constant(value, rows) if dtype is Labels else sealed(np.full(rows, value, dtype))


def _constant(kind: type[Any], name: str, rows: int) -> Any:
    """A column that holds the same in every row, cut from a longer one that many tables share."""
    column: Any = _same(kind, name, 1 << rows.bit_length())  # type: ignore[arg-type]  # types can be hashed
    return Labels(column.codes[:rows], column.names if rows else ()) if isinstance(column, Labels) else column[:rows]


@lru_cache(maxsize=1_024)
def _alike(rows: int) -> tuple[Any, ...]:
    """The columns _ALIKE of this many jobs."""
    return tuple(_constant(Jobs, name, rows) for name in _ALIKE)


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """The jobs of a trace, one row a job, in ascending job id, as flat tables.

    times: (J, 5) start of this run (NaN = waits), run time of earlier runs, when it last ran or came, submission, time
    limit [s]; counts: (J, 4) job id, GPUs, nodes, restarts. The cluster writes the first three and the restarts.
    Nodes are as many as the job needs, and 1 where its GPUs could be shared out equally over these, as nobody asks so.
    duration_s: (J,). gpu_request: (J,). texts: user, account, name and comment, (J,) each.
    """

    times: Floats
    counts: Int64s
    duration_s: Floats
    gpu_request: Labels
    texts: Mapping[str, Labels]

    @classmethod
    def of(cls, trace: Trace, size: int) -> Cast:
        """The cast of a trace on nodes of at most `size` GPUs, of which nobody runs yet."""
        order = np.argsort(trace.job_id, kind="stable")
        jobs, gpus, submit_s = len(order), trace.gpus[order], trace.submit_s[order]
        start_s, ran_s = np.full(jobs, NAN), np.zeros(jobs)
        times = np.stack([start_s, ran_s, submit_s, submit_s, trace.time_limit_s[order]], axis=1)
        size, restarts = max(size, 1), np.zeros(jobs, np.int64)
        nodes = -(-gpus // size)
        nodes = np.where((gpus % np.maximum(nodes, 1) == 0) & (gpus < nodes * size), 1, nodes)
        counts = np.stack([trace.job_id[order], gpus, nodes, restarts], axis=1)
        return cls(times, counts, trace.duration_s[order], _requests(gpus), _texts(trace.take(order)))


def _texts(trace: Trace) -> dict[str, Labels]:
    """Texts of the jobs that the trace tells; a model is told as its user would, by a hint."""
    told = {name: getattr(trace, name) for name in ("user", "account", "name")}
    hints = [_hint(model) for model in trace.model]
    told["comment"] = Labels.of([" ".join(filter(None, pair)) for pair in zip(trace.comment, hints, strict=True)])
    return {name: column for name, column in told.items() if column.names not in ((), ("",))}


def _hint(kind: str) -> str:
    """A job type of a trace as a comment of its user."""
    model, batch = model_and_batch(kind)
    return f"{MARK} model={model}" + (f" batch={batch}" if batch else "") if model else ""


def _requests(gpus: Int64s) -> Labels:
    """What each job asks for in normal form, "gpu:4"."""
    counts, place = np.unique(gpus, return_inverse=True)
    texts = Labels.of([f"gpu:{count}" for count in counts.tolist()])
    return Labels(texts.codes[place], texts.names)


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


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """GPUs held, ascending by job and node. job_id: (A,) int64. node, gpus: (A,) int32 node row and GPUs."""

    job_id: Int64s
    node: Int32s
    gpus: Int32s


def snapshot(
    now_s: float, rows: Int64s, cast: Cast, stage: Stage, used: Sequence[int], shares: Shares | None, seed: int
) -> Snapshot:
    """The cluster at one time; nothing in it changes later.

    rows: (N,) rows of the cast that wait or run, ascending. used: GPUs of each node that are held. shares: None where
    a single node holds all GPUs.
    """
    here = len(rows)
    floats, ints, small = np.empty((8, here)), np.empty((2, here), np.int64), np.empty((3, here), np.int32)
    holder, held = np.empty(here, np.int64), np.empty(here, np.int32)
    flags = (PENDING, RUNNING)
    holders = job_columns(rows, cast.times, cast.counts, now_s, flags, floats, ints, small, holder, held)
    for block in (floats, ints, small, holder, held):
        sealed(block)

    def job_column(name: str) -> Any:
        if name in cast.texts:
            return cast.texts[name].take(rows)
        if name in _LATE:
            return small[_LATE[name]]
        return cast.gpu_request.take(rows) if name == "gpu_request" else _constant(Jobs, name, here)

    submit_s, *times_s = floats
    jobs = LateJobs(here, job_column, _READY, (submit_s, submit_s, submit_s, *times_s, *ints, small[1], *_alike(here)))
    if shares is None:
        allocations = _allocations((holder[:holders], _on_first(holders, stage), held[:holders]))
    else:
        names = stage.nodes.name.names
        allocations = _allocations((sealed(shares.job_id), Labels(sealed(shares.node), names), sealed(shares.gpus)))
    return Snapshot(now_s, jobs, _nodes(tuple(used), stage), stage.partitions, allocations, stage.site, seed)


def _on_first(holders: int, stage: Stage) -> Labels:
    """A column of nodes for so many holders, all on the first."""
    zeros = _same(Allocations, "node", 1 << holders.bit_length()).codes
    return Labels(zeros[:holders], stage.nodes.name.names)


def _allocations(columns: tuple[Int64s, Labels, Int32s]) -> Allocations:
    """Who holds what: job id, node and GPUs."""
    holders = len(columns[0])
    return LateAllocations(holders, lambda name: _constant(Allocations, name, holders), _HELD, columns)


@lru_cache(maxsize=1_024)
def _nodes(used: tuple[int, ...], stage: Stage) -> Nodes:
    """The nodes when so many GPUs of each are held."""
    held = np.array(used, np.int64)
    state = _NODE_STATES[(held > 0).view(np.int8) + (held >= stage.nodes.gpus)]
    return stage.nodes.with_columns(gpus_used=held.astype(np.int32), state=state)
