"""First come, first served, at the size that a job makes good use of within a node: MARBLE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, without_curve
from slurmsched.allocation.job_times import active
from slurmsched.allocation.size_rounds import elastic_jobs, gpus_now
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, check_ranges
from slurmsched.protocols import SpeedEstimator
from slurmsched.resources.eligibility import node_pools


@dataclass(frozen=True, slots=True)
class Marble:
    """A job starts on the GPUs of one node that it makes good use of, in the order of submission, and keeps them.

    It takes one GPU more as long as that brings enough. A job with hints min_gpus and max_gpus may have any size
    between them that a node holds; any other job has what it asks for.
    least_gain: what one GPU more must bring, over the speed on the least size for each of its GPUs.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    Raises ConfigError for a parameter out of range.
    Source: Han et al. (MARBLE), CCGRID '20. Ours: the bound `least_gain`.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Han et al.: MARBLE, CCGRID 2020",
        left_out=(
            "The measurement of each job's scaling before it starts: scaling is by `speeds`.",
            "Running jobs that grow into idle GPUs.",
        ),
        needs=(PolicyInput.SIZES, PolicyInput.SPEED),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE),
        criteria={"given_gpus": "given {} GPUs"},
    )

    least_gain: Part = 0.5
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, elastic = snapshot.jobs, elastic_jobs(snapshot)
        rows = np.flatnonzero(elastic & jobs.pending)
        given = np.where(elastic & ~jobs.pending, gpus_now(snapshot), jobs.gpus).astype(np.int32)
        sizes = sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, _most_of_a_node(snapshot, rows))
        given[rows] = [useful_size(each, self.least_gain) for each in sizes]
        notes = without_curve(snapshot, active(snapshot), self.speeds)
        wanted = JobChanges(gpus=given) if elastic.any() else None
        return Ranking(ordered(jobs), why={"given_gpus": given}, notes=notes, changes=wanted)


def _most_of_a_node(snapshot: Snapshot, rows: Int64s) -> Int64s:
    """Most GPUs of one open node that each of these jobs may use, at least 1. (J,)."""
    pool, usable = node_pools(snapshot, rows)
    most = (usable * np.where(snapshot.nodes.closed, 0, snapshot.nodes.gpus)).max(axis=1, initial=1)
    return np.asarray(most[pool], np.int64)


def useful_size(sizes: JobSizes, least_gain: float) -> int:
    """The largest size up to which every GPU more brings at least this part of what one of the least size does."""
    gain = np.diff(sizes.speed) / np.diff(sizes.gpus) / (sizes.speed[0] / sizes.gpus[0])
    poor = np.flatnonzero(gain < least_gain - 1e-9)
    return int(sizes.gpus[poor[0] if len(poor) else -1])
