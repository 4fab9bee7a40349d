"""GPU types, who may run on them, and how fast: what allocations over types are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.placements.candidates import eligible, pools
from slurmsched.protocols import SpeedEstimator
from slurmsched.resources.held import holding


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """One column a GPU type, in ascending name ("" = nodes that tell none).

    capacity: (T,) GPUs of each type on open nodes. gpus: (N,) of each job. speed: (N, T), 0 where a job cannot run.
    active: (N,) bool, jobs that hold GPUs or could start, and can run on some type.
    """

    types: tuple[str, ...]
    capacity: Floats
    gpus: Floats
    speed: Floats
    active: Bools


def market(snapshot: Snapshot, speeds: SpeedEstimator) -> Market:
    """The market of a snapshot. A job may use types that its partitions and its request give it enough GPUs of."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    type_of = [gpu_type(text) for text in nodes.gpu_types]
    types = tuple(sorted(set(type_of))) or ("",)
    column = np.array([types.index(each) for each in type_of], np.int64)
    open_gpus = np.where(nodes.closed, 0, nodes.gpus)
    pool, table = pools(snapshot)
    room = np.array([np.bincount(column, row * open_gpus, len(types)) for row in table]).reshape(-1, len(types))
    speed = speeds.speeds(snapshot, types) * (room[pool] >= np.maximum(jobs.gpus, 1)[:, None])
    active = (holding(jobs) | eligible(snapshot)) & (jobs.gpus > 0) & (speed > 0).any(axis=1)
    capacity = np.bincount(column, open_gpus, len(types)).astype(np.float64)
    return Market(types, capacity, jobs.gpus.astype(np.float64), speed, active)


def gpu_type(gpu_types: str) -> str:
    """The type of a node in normal form, the first where it has several, "" where it tells none."""
    first = gpu_types.partition(",")[0]
    return first.split(":")[1] if first.count(":") == 2 else ""
