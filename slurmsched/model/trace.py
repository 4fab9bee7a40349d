"""Traces: tables of jobs with submission, GPUs and run time."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels, Table, column, frozen, text_column

# Limits people type: minutes, half days, whole days.
COMMON_LIMITS_S = np.array(
    [60 * minutes for minutes in (15, 30, 60, 120, 240, 480, 720)] + [86_400 * days for days in (1, 2, 3, 5, 7, 14, 30)]
)
LONGEST_OVERESTIMATE = 4.0
OF_REPLAY = ("counted", "running")  # columns that say how a trace is replayed, and are in no file


@dataclass(frozen=True, slots=True, eq=False)
class Trace(Table):
    """One row a job, in ascending (submit, job id), whatever the order of the source. All columns are (J,).

    eligible_s: when the job could first start (begin time, dependencies, holds), NaN if the source does not tell.
    duration_s: run time alone on its GPUs.
    time_limit_s: what its user asked for; the run time where limit_known is False.
    start_s: first start as recorded, on the clock of submit_s, NaN if the source does not tell.
    gpu_share: part of each GPU asked for.
    requeues: runs after the first.
    account: also a virtual cluster or group.
    nodes, cpus, memory_mib: of the whole job, 0 if the source does not tell.
    partition, qos: "" likewise.
    state: how it ended, in Slurm's words, "" if the source does not tell.
    comment: its user's, with hints.
    array_id: id of the array that it is a task of, 0 = none.
    array_limit: tasks of it that may run at once, 0 = any number.
    cancel_s: when its user cancelled it while it waited, NaN = never.
    constraint: features of nodes that it asked for, as --constraint has them.
    exclusive: 1 if it asked for whole nodes.
    node_list: of its last run, as a hostlist.
    partitions: comma list of those that it asked for, "" = its partition alone.
    dependency: on other jobs, as --dependency has it, "" = none or one that is not known.
    licenses: as --licenses has them, "matlab:2,ansys:1".
    counted: whether the job counts in the figures of a replay.
    running: whether it ran when the window begins.
    """

    job_id: Int64s = column(np.int64, 0)
    gpus: Int64s = column(np.int64, 1)
    submit_s: Floats = column(np.float64, 0.0)
    duration_s: Floats = column(np.float64, 1.0)
    time_limit_s: Floats = column(np.float64, np.nan)
    limit_known: Bools = column(np.bool_, False)
    start_s: Floats = column(np.float64, np.nan)
    gpu_share: Floats = column(np.float64, 1.0)
    requeues: Int64s = column(np.int64, 0)
    nodes: Int64s = column(np.int64, 0)
    cpus: Int64s = column(np.int64, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    user: Labels = text_column()
    account: Labels = text_column()
    partition: Labels = text_column()
    qos: Labels = text_column()
    name: Labels = text_column()
    model: Labels = text_column()
    gpu_type: Labels = text_column()
    state: Labels = text_column()
    comment: Labels = text_column()
    eligible_s: Floats = column(np.float64, np.nan)
    array_id: Int64s = column(np.int64, 0)
    array_limit: Int64s = column(np.int64, 0)
    cancel_s: Floats = column(np.float64, np.nan)
    constraint: Labels = text_column()
    exclusive: Int64s = column(np.int64, 0)
    node_list: Labels = text_column()
    partitions: Labels = text_column()
    dependency: Labels = text_column()
    licenses: Labels = text_column()
    counted: Bools = column(np.bool_, True)
    running: Bools = column(np.bool_, False)

    @classmethod
    def of(
        cls, job_id: Any, gpus: Any, submit_s: Any, duration_s: Any, time_limit_s: Any = None, *, least_gpus: int = 1,
        **more: Any,
    ) -> Trace:  # fmt: skip
        """The trace of these columns and any others by name; time limits not given, or NaN, are the run times.

        Raises InputError for a job of fewer GPUs than least_gpus, a negative time, a limit of 0 or an id used twice.
        """
        given = {"job_id": job_id, "gpus": gpus, "submit_s": submit_s, "duration_s": duration_s}
        columns = {name: frozen(values, np.float64) for name, values in given.items() if name.endswith("_s")}
        columns |= {name: frozen(given[name], np.int64) for name in ("job_id", "gpus")}
        rows = len(columns["job_id"])
        limit_s = np.full(rows, np.nan) if time_limit_s is None else np.asarray(time_limit_s, np.float64)
        columns["limit_known"] = ~np.isnan(limit_s)
        columns["time_limit_s"] = np.where(columns["limit_known"], limit_s, columns["duration_s"])
        trace = cls.build(rows, columns | more)
        trace = trace.take(np.lexsort((trace.job_id, trace.submit_s)))
        trace._check(least_gpus)
        return trace

    def _check(self, least_gpus: int) -> None:
        wrong = (self.gpus < least_gpus) | ~(self.submit_s >= 0) | ~(self.duration_s >= 0)
        wrong |= self.limit_known & ~(self.time_limit_s > 0)
        if wrong.any():
            raise InputError(f"job {self.job_id[wrong][0]}: needs num_gpus >= {least_gpus}, submit_s >= 0, "
                             "duration_s >= 0 and a time limit above 0, if any")  # fmt: skip
        ids, uses = np.unique(self.job_id, return_counts=True)
        if (uses > 1).any():
            raise InputError(f"job id {ids[uses > 1][0]} is used twice; give every job its own")

    @property
    def gpu_s(self) -> Floats:
        """GPU time of each job [GPU s], parts of GPUs counted as parts. (J,)."""
        return self.gpus * self.gpu_share * self.duration_s

    @property
    def wait_s(self) -> Floats:
        """Recorded time from submission to first start, NaN where the source does not tell. (J,)."""
        return self.start_s - self.submit_s

    def columns(self) -> dict[str, Any]:
        """Column name -> values, in their order: what files hold of a trace."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name not in OF_REPLAY}

    def first(self, jobs: int) -> Trace:
        """The trace of the jobs submitted first."""
        return self.take(slice(None, jobs))

    def with_user_limits(self, seed: int = 0) -> Trace:
        """Time limits as users set them, where none is known: the run time times 1 to 4 (uniform), rounded up to a
        common limit; never below the run time. Each job's factor depends on seed and place alone.

        Ours: Philly records no limits; published logs of HPC sites show over-estimates of this size, heaped on round
        values (Tsafrir, Etsion and Feitelson, JSSPP 2005).
        """
        factor = np.random.default_rng(seed).uniform(1.0, LONGEST_OVERESTIMATE, len(self))
        wanted = self.duration_s * factor
        place = np.searchsorted(COMMON_LIMITS_S, wanted)
        common = COMMON_LIMITS_S[np.minimum(place, len(COMMON_LIMITS_S) - 1)]
        made_up = np.maximum(common, self.duration_s)
        return self.with_columns(time_limit_s=np.where(self.limit_known, self.time_limit_s, made_up))


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTrace:
    """A trace and what its file says of it.

    origin_s: Unix time of submit_s = 0, NaN if the file has no calendar.
    utc_offset_s: what to add for the site's wall clock.
    warnings: what was left out.
    assumed: what a replay assumes of the trace, as text.
    beside: jobs of the same cluster that are in no figure, but take a part of it or a place in its queue: without GPUs,
        or cancelled while they waited. Only the slurmctld model replays them. None: the file has none.
    """

    trace: Trace
    kind: str = ""
    origin_s: float = math.nan
    utc_offset_s: float = 0.0
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    beside: Trace | None = None

    @property
    def clock_s(self) -> float | None:
        """Unix time of submit_s = 0, None if the file has no calendar."""
        return None if math.isnan(self.origin_s) else self.origin_s

    @property
    def has_starts(self) -> bool:
        """Whether any start was recorded."""
        return bool((~np.isnan(self.trace.start_s)).any())

    @property
    def is_slurm_history(self) -> bool:
        """Whether it is of a Slurm's accounting: it has recorded starts and partitions."""
        return self.has_starts and self.trace.partition.any_text

    @property
    def suited_model(self) -> Literal["slurm", "ideal"]:
        """The cluster model that is taken where none is asked for: of a Slurm's history that of slurmctld."""
        return "slurm" if self.is_slurm_history else "ideal"


def trace_digest(trace: Trace) -> str:
    """16 hex digits that differ when any job differs in any column.

    A column without a word of its source is left out, so that a trace keeps its digest when columns are added here.
    """
    hasher = hashlib.blake2b(digest_size=8)
    for name in _DIGESTED:
        hasher.update(np.ascontiguousarray(getattr(trace, name)).tobytes())
    if trace.comment.names not in ((), ("",)):
        hasher.update("\n".join(trace.comment).encode("utf-8", "surrogatepass"))
    for spec in fields(trace):
        values = getattr(trace, spec.name)
        if spec.name not in (*_DIGESTED, "comment") and _not_default(values, spec.metadata["default"]):
            hasher.update(f"\0{spec.name}\0".encode() + _column_bytes(values))
    return hasher.hexdigest()


_DIGESTED = ("job_id", "gpus", "submit_s", "duration_s", "time_limit_s")  # of every trace


def _not_default(values: Any, default: Any) -> bool:
    """Whether a column holds anything but its default."""
    if isinstance(values, Labels):
        return values.names not in ((), (default,))
    return not np.array_equal(values, np.full_like(values, default), equal_nan=values.dtype.kind == "f")


def _column_bytes(values: Any) -> bytes:
    if isinstance(values, Labels):
        return "\0".join(values.names).encode("utf-8", "surrogatepass") + b"\0" + values.codes.tobytes()
    return np.ascontiguousarray(values).tobytes()
