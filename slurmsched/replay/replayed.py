"""A replay: what it is set up with, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched import __version__
from slurmsched.protocols import Planner, Store
from slurmsched.replay.adapting import UNFAIR, AdaptingCluster
from slurmsched.replay.deadlines import met
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_physics import PhysicsCluster
from slurmsched.replay.metrics import Outcomes, Ran
from slurmsched.replay.profiling import Profiled
from slurmsched.replay.traces import Trace

SLURM_INTERVAL_S = 60.0
COMPILE_FROM_JOBS = 1_000  # below, loading the compiler takes longer than it saves


@dataclass(slots=True, eq=False)
class Replayed:
    """A replay, whole or cut short. stage: what jobs did before they came to the cluster, None if nothing. figures: the
    JSON of the command."""

    cluster: IdealCluster | EmbeddedCluster
    config: dict[str, Any]
    stage: Profiled | None = None
    wall_s: float = 0.0
    cycles: int = 0
    complete: bool = False
    trace_digest: str = ""

    @property
    def trace(self) -> Trace:
        """Whose jobs it replays."""
        return self.stage.trace if self.stage else self.cluster.trace

    @property
    def outcomes(self) -> Outcomes:
        """Of the jobs that ended."""
        if not isinstance(self.cluster, IdealCluster):
            return Outcomes.of_ended(self.cluster)
        return self.stage.outcomes(self.cluster.outcomes()) if self.stage else self.cluster.outcomes()

    @property
    def runs(self) -> Ran:
        """Every run that ended."""
        if isinstance(self.cluster, IdealCluster):
            of_cluster = self.cluster.runs.of(self.cluster.job_id, self.cluster.gpus)
            return self.stage.runs(of_cluster) if self.stage else of_cluster
        return self.cluster.job.runs.of(self.cluster.trace.job_id, self.cluster.trace.gpus)

    @property
    def refused(self) -> dict[str, int]:
        """Jobs that slurmctld's model did not let in, by the limit that they exceed; they count in no figure."""
        return {} if isinstance(self.cluster, IdealCluster) else self.cluster.refused

    @property
    def figures(self) -> dict[str, Any]:
        done = self.outcomes
        spread = np.percentile(done.jct_s, (50, 95, 99)) if len(done.job_id) else np.full(3, math.nan)
        mean = (float(values.mean()) if len(values) else math.nan for values in (done.jct_s, done.delay_s))
        names = ("p50_jct_s", "p95_jct_s", "p99_jct_s")
        made = {"jobs": len(done.job_id), "avg_jct_s": next(mean)} | dict(zip(names, spread.tolist(), strict=True))
        made |= {"avg_wait_s": next(mean), "makespan_s": done.makespan_s, "preemptions": int(done.preemptions.sum())}
        made |= {"lost_gpu_h": done.lost_gpu_s / 3_600, "gpu_utilisation": done.utilisation}
        made |= {"wall_s": self.wall_s, "version": __version__}
        if isinstance(self.cluster, PhysicsCluster):
            made["mean_slowdown"] = float(done.slowdown.mean()) if len(done.job_id) else math.nan
        made |= met(done, self.trace) | (self.stage.figures if self.stage else {})
        if isinstance(self.cluster, AdaptingCluster):
            rho = self.cluster.rho()
            made |= {"worst_rho": float(rho.max(initial=0.0)), "unfair_pct": 100 * float((rho > UNFAIR).mean())}
        made |= {"refused": sum(self.refused.values())} if self.refused else {}
        made |= {"trace_digest": self.trace_digest, "seed": self.cluster.seed, "config": self.config}
        return made if self.complete else made | {"complete": False, "jobs_of_trace": len(self.trace)}


@dataclass(frozen=True, slots=True, eq=False)
class SetUp:
    """A replay that has not begun. planner: None if Slurm alone decides. compiled: loading the compiler pays."""

    replayed: Replayed
    planner: Planner | None
    store: Store
    compiled: bool
