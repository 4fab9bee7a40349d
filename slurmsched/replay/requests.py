"""What jobs of a trace ask for beyond GPUs and time, for the slurmctld model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.table import Table, column, text
from slurmsched.replay.layout import DEFAULT_PARTITION, Layout
from slurmsched.replay.traces import Trace

INF = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Requests(Table):
    """One row a job of a trace, in its order. All columns are (J,). Zero or empty = not told.

    nodes: 0 = as few as hold the GPUs. cpus, memory_mib: of the whole job; 0 CPUs = as many parts of a node's CPUs as
    of its GPUs. array_id: job id of the array that a task belongs to, 0 for other jobs; tasks of one array are one
    record until they start. dependency: Slurm's text, "afterok:12:13,afterany:14" or "singleton". pin: comma list of
    nodes the job must run on. fixed_priority: set by an operator, 0 = by factors. begin_s: not before. cancel_s: ended
    by its user then. fails: ends with an error, so that afterok is not satisfied. epilog_s: from its end to the return
    of its nodes, NaN = as the model says. epilog_spread_s: so much before the last one the others come back, below 0:
    the last one is the first by order. comment: hints (docs/hints.md) are read from it.
    """

    nodes: Int64s = column(np.int64, 0)
    cpus: Int64s = column(np.int64, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    partition: Labels = text()
    user: Labels = text("trace")
    account: Labels = text("trace")
    qos: Labels = text("normal")
    name: Labels = text()
    comment: Labels = text()
    gpu_type: Labels = text()  # "" = any
    nice: Int64s = column(np.int64, 0)
    fixed_priority: Int64s = column(np.int64, 0)
    array_id: Int64s = column(np.int64, 0)
    dependency: Labels = text()
    pin: Labels = text()
    begin_s: Floats = column(np.float64, 0.0)
    cancel_s: Floats = column(np.float64, INF)
    fails: Bools = column(np.bool_, False)
    epilog_s: Floats = column(np.float64, float("nan"))
    epilog_spread_s: Floats = column(np.float64, 0.0)

    @classmethod
    def plain(cls, rows: int) -> Requests:
        """Jobs that ask for GPUs and time only."""
        return cls.build(rows, {})

    @classmethod
    def of_trace(cls, trace: Trace, layout: Layout, *, cpus_known: bool = False) -> Requests:
        """What the trace itself tells. Its partitions count only where the cluster has some of its own, its nodes and
        CPUs where cpus_known says that the CPUs of the cluster are real; without a user or QOS a job is of one for
        all."""
        known = ("memory_mib", "name", "comment", *(("nodes", "cpus") if cpus_known else ()))
        columns: dict[str, Any] = {name: getattr(trace, name) for name in known}
        if layout.partitions[0].name != DEFAULT_PARTITION or len(layout.partitions) > 1:
            columns["partition"] = trace.partition
        types = {kind for node in layout.nodes for kind in node.types}
        columns["gpu_type"] = Labels.of([kind if kind in types else "" for kind in trace.gpu_type])
        for name, otherwise in (("user", "trace"), ("account", "trace"), ("qos", "normal")):
            columns[name] = Labels.of([told or otherwise for told in getattr(trace, name)])
        return cls.build(len(trace), columns)

    @classmethod
    def of(cls, trace: Trace, job_id: Sequence[int], columns: dict[str, Any]) -> Requests:
        """Columns given in the order of job_id, as rows of the trace. Raises InputError where the ids differ."""
        place = {int(job): row for row, job in enumerate(job_id)}
        missing = [job for job in trace.job_id.tolist() if job not in place]
        if missing or len(place) != len(trace):
            which = missing[0] if missing else next(iter(set(place) - set(trace.job_id.tolist())))
            raise InputError(f"job {which} is not in both the trace and its requests; give each job in both")
        order = np.array([place[job] for job in trace.job_id.tolist()], np.int64)
        return cls.build(len(trace), columns).take(order)
