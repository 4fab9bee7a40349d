"""The snapshot of an ideal cluster: columns of the jobs there are now, those that policies read in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.estimators.throughput_table import model_and_batch
from slurmsched.kernels.job_scan import job_columns
from slurmsched.model import Allocations, Jobs, JobState, Labels, Nodes, NodeState, Partitions, Site, Snapshot
from slurmsched.model.columns import NAN, Floats, Int32s, Int64s, made_read_only
from slurmsched.model.hints import MARK
from slurmsched.model.trace import Trace

PARTITION = "gpu"
TIME_LIMIT = 4  # its column in JobArrays.times
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
_TIMES = ("first_submit_s", "eligible_s", "submit_s", "start_s", "end_s", "time_limit_s", "run_s", "executed_s",
          "attained_gpu_s", "waiting_s")  # fmt: skip
_NUMBERS = ("job_id", "state", "nodes", "gpus", "restarts")
_SPECS = {kind: {spec.name: spec.metadata for spec in fields(kind)} for kind in _TABLES}


@lru_cache(maxsize=1_024)
def _constant_column(kind: type[Any], name: str, rows: int) -> Any:
    """A column that holds the same in every row."""
    dtype, value = _SPECS[kind][name]["dtype"], _EVERY.get(name, _SPECS[kind][name]["default"])
    return Labels.constant(value, rows) if dtype is Labels else made_read_only(np.full(rows, value, dtype))


def _constant(kind: type[Any], name: str, rows: int) -> Any:
    """A column that holds the same in every row, cut from a longer one that many tables share."""
    column: Any = _constant_column(kind, name, 1 << rows.bit_length())  # type: ignore[arg-type]  # types can be hashed
    return Labels(column.codes[:rows], column.names if rows else ()) if isinstance(column, Labels) else column[:rows]


@lru_cache(maxsize=1_024)
def _defaults(kind: type[Any], rows: int) -> dict[str, Any]:
    """Every column of a table of this many rows as it is where nothing is known of a row."""
    return {name: _constant(kind, name, rows) for name in _SPECS[kind]}


@dataclass(frozen=True, slots=True, eq=False)
class JobArrays:
    """The jobs of a trace, one row a job, in ascending job id, as flat tables.

    times: (J, 5) start of this run (NaN = waits), run time of earlier runs, when it last ran or came, submission, time
        limit [s].
    counts: (J, 4) job id, GPUs, nodes, restarts. The cluster writes the first three and the restarts. Nodes are as many
        as the job needs, and 1 where its GPUs could be shared out equally over these, as nobody asks so.
    duration_s: (J,).
    gpu_request: (J,).
    texts: user, account, qos, name and comment, (J,) each.
    """

    times: Floats
    counts: Int64s
    duration_s: Floats
    gpu_request: Labels
    texts: Mapping[str, Labels]

    @classmethod
    def of(cls, trace: Trace, size: int) -> JobArrays:
        """The jobs of a trace on nodes of at most `size` GPUs, none of which runs yet."""
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
    """Texts of the jobs. A model becomes a hint in the comment, as its user would write it."""
    texts = {name: getattr(trace, name) for name in ("user", "account", "qos", "name")}
    hints = [_hint(model) for model in trace.model]
    texts["comment"] = Labels.of([" ".join(filter(None, pair)) for pair in zip(trace.comment, hints, strict=True)])
    return {name: column for name, column in texts.items() if column.names not in ((), ("",))}


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
class NodeArrays:
    """Nodes, partition and site: made once, shared by all snapshots."""

    nodes: Nodes
    partitions: Partitions
    site: Site

    @classmethod
    def of(cls, capacity: Int64s) -> NodeArrays:
        width = len(str(len(capacity)))
        nodes = Nodes.build(len(capacity), {
            "name": [f"node{n:0{width}d}" for n in range(1, len(capacity) + 1)],
            "partitions": Labels.constant(PARTITION, len(capacity)),
            "gpu_types": [f"gpu:{gpus}" for gpus in capacity.tolist()],
            "gpus": capacity,
        })  # fmt: skip
        partitions = Partitions.build(1, {"name": [PARTITION], "default": [True], "nodes": [len(capacity)]})
        return cls(nodes, partitions, Site(cluster="ideal", user="slurmsched"))


@dataclass(frozen=True, slots=True, eq=False)
class HeldGpus:
    """GPUs held, ascending by job and node.

    job_id: (A,) int64.
    node, gpus: (A,) int32 node row and GPUs.
    """

    job_id: Int64s
    node: Int32s
    gpus: Int32s


def snapshot(
    now_s: float,
    rows: Int64s,
    job_arrays: JobArrays,
    stage: NodeArrays,
    used: Sequence[int],
    shares: HeldGpus | None,
    seed: int,
) -> Snapshot:
    """The cluster at one time; nothing in it changes later.

    rows: (N,) rows of JobArrays that wait or run, ascending. used: GPUs of each node that are held.
    shares: None where a single node holds all GPUs.
    """
    here = len(rows)
    floats, ints, small = np.empty((8, here)), np.empty((2, here), np.int64), np.empty((3, here), np.int32)
    holder, held = np.empty(here, np.int64), np.empty(here, np.int32)
    flags = (PENDING, RUNNING)
    holders = job_columns(rows, job_arrays.times, job_arrays.counts, now_s, flags, floats, ints, small, holder, held)
    for block in (floats, ints, small, holder, held):
        made_read_only(block)

    submit_s = floats[0]  # one array for three columns: plug-ins may see by that, that no requeue has moved any
    columns: dict[str, Any] = {name: column.take(rows) for name, column in job_arrays.texts.items()}
    columns.update(zip(_TIMES, (submit_s, submit_s, *floats), strict=True))
    columns.update(zip(_NUMBERS, (*ints, *small), strict=True))
    columns["gpu_request"] = Labels(made_read_only(job_arrays.gpu_request.codes[rows]), job_arrays.gpu_request.names)
    jobs = Jobs(**{**_defaults(Jobs, here), **columns})
    held_by = _allocations(holder[:holders], held[:holders], shares, stage)
    return Snapshot(now_s, jobs, _nodes(tuple(used), stage), stage.partitions, held_by, stage.site, seed)


def _allocations(holder: Int64s, held: Int32s, shares: HeldGpus | None, stage: NodeArrays) -> Allocations:
    """Who holds GPUs where: as `shares` say, else each holder on the first node."""
    if shares is None:
        job_id, node, gpus = holder, _on_first(len(holder), stage), held
    else:
        job_id, gpus = made_read_only(shares.job_id), made_read_only(shares.gpus)
        node = Labels(made_read_only(shares.node), stage.nodes.name.names)
    return Allocations(**_defaults(Allocations, len(job_id)) | {"job_id": job_id, "node": node, "gpus": gpus})


def _on_first(holders: int, stage: NodeArrays) -> Labels:
    """A column of nodes for that many holders, all on the first."""
    zeros = _constant_column(Allocations, "node", 1 << holders.bit_length()).codes
    return Labels(zeros[:holders], stage.nodes.name.names)


@lru_cache(maxsize=1_024)
def _nodes(used: tuple[int, ...], stage: NodeArrays) -> Nodes:
    """The nodes when that many GPUs of each are held."""
    held = np.array(used, np.int64)
    state = _NODE_STATES[(held > 0).view(np.int8) + (held >= stage.nodes.gpus)]
    return replace(stage.nodes, gpus_used=made_read_only(held.astype(np.int32)), state=made_read_only(state))
