"""Gittins index over the service that completed jobs needed: Tiresias's 1D and 2D-Gittins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Multiple, Range, check_ascending, check_choice, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.plain_text import pluralize
from slurmsched.policies.discretized_las import DiscretizedLas, next_drop_s, paces, queue_of


def gittins_index(history_gpu_s: Floats, attained_gpu_s: Floats, delta_gpu_s: float) -> Floats:
    """P(ends within delta) / E(service within delta) of each job, given what it attained. (N,) [1 / GPU s].

    history_gpu_s: (H,) ascending service of completed jobs; in 1D all service is run time [s]. Of the samples S above
    the attained service a: the share with S <= a + delta, over the mean of min(S - a, delta). 0 from the last one on.
    Source: Gu et al. (Tiresias), NSDI '19, section 3.2.2, with delta fixed as in its released simulator.
    """
    summed = np.concatenate(([0.0], np.cumsum(history_gpu_s)))
    above = np.searchsorted(history_gpu_s, attained_gpu_s, side="right")
    beyond = np.searchsorted(history_gpu_s, attained_gpu_s + delta_gpu_s, side="right")
    ending = beyond - above
    served = summed[beyond] - summed[above] - attained_gpu_s * ending + delta_gpu_s * (len(history_gpu_s) - beyond)
    return np.divide(ending, served, out=np.zeros(len(attained_gpu_s)), where=ending > 0)


@dataclass(frozen=True, slots=True)
class Gittins:
    """Highest Gittins index first, inside discretized queues: likeliest to end for the service it takes.

    thresholds_gpu_s: ascending attained service [GPU s] at which a job drops one queue; () = one queue, by index alone.
    delta_gpu_s: service that the index looks ahead [GPU s].
    least_samples: completed jobs that must be known. With fewer the index is 0, and the order is that of
        discretized-las by submission.
    promote_knob: a job that has waited this many times as long as it ran since its last promotion returns to queue 0.
        Its service counts from 0 again. inf: never.
    dimension: "2d" counts GPU seconds, "1d" seconds of run time; thresholds and delta are in that unit.
    Raises ConfigError for a parameter out of range.
    Source: Gu et al. (Tiresias), NSDI '19, sections 3.2.2 and 3.2.3, for 2D; 1D is the index of Gittins on run time
    alone. Defaults of its released simulator; least_samples is ours.
    """

    preemptive: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Gu et al.: Tiresias, NSDI 2019",
        left_out=(
            "Keeping models with skewed tensors on few nodes: the placement does this, by the hint `topo`.",
            "The best look-ahead for each job: it is fixed, as in the released simulator.",
        ),
        needs=(PolicyInput.SERVICE, PolicyInput.PAST),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(NEEDS_PREEMPTION,),
        criteria={"service_gpu_s": "used {}", "service_s": "ran {}"},
    )

    thresholds_gpu_s: tuple[float, ...] = (3_250.0, 7_200.0)
    delta_gpu_s: Annotated[float, Range(1e-3, 1e12)] = 3_250.0
    least_samples: Count = 100
    promote_knob: Multiple = math.inf
    dimension: str = "2d"

    def __post_init__(self) -> None:
        check_ranges(self)
        check_ascending("thresholds_gpu_s", self.thresholds_gpu_s)
        check_choice("dimension", self.dimension, ("1d", "2d"))

    @property
    def learns(self) -> bool:
        """Run times of jobs that ended are in the past; the ledger's history has their GPU seconds alone."""
        return self.dimension == "1d"

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, history = snapshot.jobs, self._history(snapshot)
        known, queued = len(history), self._queued(snapshot)
        queue, service = queued.why["queue"], queued.why[self._service]
        index = np.zeros(len(jobs))
        notes: tuple[str, ...] = ()
        if known >= self.least_samples:
            index = self._index(history, service)
        else:
            notes = (
                f"{pluralize(known, 'completed job')} known, {self.least_samples} needed: ordered as discretized-las",
            )
        why = {"queue": queue, "index_per_gpu_s" if self.dimension == "2d" else "index_per_s": index}
        return Ranking(ordered(jobs, queue, -index), why=why, carry=queued.carry, notes=notes)

    def _index(self, history: Floats, service: Floats) -> Floats:
        """history: (H,) as _history. service: (N,) attained. (N,)."""
        return gittins_index(history, service, self.delta_gpu_s)

    @property
    def _service(self) -> str:
        """The name of attained service among the criteria."""
        return "service_gpu_s" if self.dimension == "2d" else "service_s"

    def _history(self, snapshot: Snapshot) -> Floats:
        """Service of completed jobs, ascending: [GPU s] in 2d, [s] in 1d. (H,)."""
        if self.dimension == "2d":
            return snapshot.history_gpu_s
        return np.sort(snapshot.past.executed_s[snapshot.past.completed])

    def _queued(self, snapshot: Snapshot) -> Ranking:
        """Queue and service of each job; what is remembered where jobs are promoted."""
        if math.isfinite(self.promote_knob):
            return self._las.rank(snapshot)
        service = paces(snapshot.jobs, self.dimension)[0]
        queue = queue_of(service, self.thresholds_gpu_s)
        return Ranking(np.arange(len(queue)), why={"queue": queue, self._service: service})

    @property
    def _las(self) -> DiscretizedLas:
        """The queues, with promotion."""
        return DiscretizedLas(self.thresholds_gpu_s, self.promote_knob, "submit", self.dimension)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The next threshold that a running job reaches, or the next promotion of a waiting one [Unix s].

        The index itself moves all the time; as in the released simulator it is looked at again when jobs come, end or
        change queues.
        """
        if math.isfinite(self.promote_knob):
            return self._las.next_change_s(snapshot, self._las.rank(snapshot), running)
        service = paces(snapshot.jobs, self.dimension)[0]
        return next_drop_s(snapshot, service, running, self.thresholds_gpu_s, dimension=self.dimension)
