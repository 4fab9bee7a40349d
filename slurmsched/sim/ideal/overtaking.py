"""When a waiting job overtakes a running one: known of a few policies, so that a replay of theirs needs fewer cycles.

The simulator asks every other policy at each event. Both give the same schedule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from slurmsched.estimators.requested_time import Hint, TimeLimit
from slurmsched.kernels.service_queues import next_overtaking
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.placements.baselines import BestFit, Spread
from slurmsched.placements.cells import CellPlacement
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.linked import Linked
from slurmsched.policies.discretized_las import DiscretizedLas, paces
from slurmsched.policies.edf import Edf
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.las import Las
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Placement, Policy

_CONSTANT_ESTIMATORS = (Hint, TimeLimit)
_BY_PARTS = (BestFit, Consolidated, Linked, Spread)


class Overtaking(Protocol):
    """When jobs that wait overtake jobs that run.

    keeps_gpu_s: attained service up to which no waiting job overtakes a job that came and started at once [GPU s].
    None: not known.
    """

    @property
    def keeps_gpu_s(self) -> float | None: ...

    def next_s(self, snapshot: Snapshot, running: Bools) -> float:
        """The earliest time at which a waiting job may overtake a running one, if no job comes [Unix s].

        snapshot: All its jobs wait or run. running: (N,) who runs from now on. Any other job may start meanwhile.
        """
        ...


def overtaking_of(policy: Policy) -> Overtaking | None:
    """What is known of the policy; None if it has to be asked at each event."""
    estimator = getattr(policy, "estimator", None)
    if estimator is not None and type(estimator) not in _CONSTANT_ESTIMATORS:
        return None
    known = _KNOWN.get(type(policy))
    return None if known is None else known(policy)


def arrivals_go_last(policy: Policy) -> bool:
    """Whether a job that comes goes behind all that wait, whose order never changes."""
    return type(policy) is Fifo


def waits_for_room(placement: Placement) -> bool:
    """Whether a job waits just while its parts find no room on nodes that jobs before it in the ranking leave. Also, a
    running job must never move by itself."""
    return type(placement) in _BY_PARTS or (type(placement) is CellPlacement and not placement.virtual_clusters)


@dataclass(frozen=True, slots=True)
class _Never:
    """The key of a waiting job never changes, and that of a running one never gets worse."""

    keeps_gpu_s: float | None = math.inf

    def next_s(self, snapshot: Snapshot, running: Bools) -> float:
        return math.inf


@dataclass(frozen=True, slots=True, eq=False)
class _AtThreshold:
    """A job that drops to a lower queue falls behind those that wait there or above. thresholds, dimension: its own."""

    thresholds: Floats
    dimension: str

    @property
    def keeps_gpu_s(self) -> float | None:
        """Up to the first threshold, if that counts GPU seconds."""
        return None if self.dimension == "1d" else float(self.thresholds.min(initial=math.inf))

    def next_s(self, snapshot: Snapshot, running: Bools) -> float:
        service, rate = paces(snapshot.jobs, self.dimension)
        return snapshot.now_s + float(next_overtaking(service, rate, running, self.thresholds))


@dataclass(frozen=True, slots=True)
class _AtQuantum:
    """A job whose service reaches a multiple of the quantum falls behind those that wait with less."""

    keeps_gpu_s: ClassVar[float | None] = None

    policy: Las

    def next_s(self, snapshot: Snapshot, running: Bools) -> float:
        jobs, quantum = snapshot.jobs, self.policy.quantum_gpu_s
        service, pace = paces(jobs, self.policy.dimension)
        counted, here = np.floor(service / quantum) * quantum, ~jobs.finished
        least = float(counted.min(where=here & ~running, initial=math.inf))
        until = np.maximum(counted + quantum, least) - service
        return snapshot.now_s + float(np.min(until / np.maximum(pace, 1), where=here, initial=math.inf))


def _discretized_las(policy: DiscretizedLas) -> Overtaking | None:
    if math.isfinite(policy.promote_knob):
        return None
    return _AtThreshold(np.array(policy.thresholds_gpu_s, np.float64), policy.dimension)


def _las(policy: Las) -> Overtaking | None:
    return _AtQuantum(policy) if policy.quantum_gpu_s else None


_KNOWN: dict[type[Any], Any] = {
    Srtf: lambda policy: _Never(),
    Srsf: lambda policy: _Never(),
    Smallest: lambda policy: _Never(),
    Edf: lambda policy: _Never(keeps_gpu_s=None),
    DiscretizedLas: _discretized_las,
    Las: _las,
}
