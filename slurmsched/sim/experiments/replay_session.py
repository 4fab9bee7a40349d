"""One replay: prepared from a request, and run."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from slurmsched.kernels import _jit
from slurmsched.model.trace import Trace, trace_digest
from slurmsched.sim.cluster_description import ClusterDescription
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.event_loop import replay, replay_events, replay_following
from slurmsched.sim.experiments.published_settings import PublishedSettings
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_result import SLURM_INTERVAL_S, PreparedReplay, ReplayResult
from slurmsched.sim.ideal.ideal_cluster import IdealCluster


@dataclass(slots=True, eq=False)
class ReplaySession:
    """A replay made ready: `run` plays it; after an interruption `replayed` holds what is there so far."""

    trace: Trace
    request: ReplayRequest
    described: ClusterDescription = field(init=False)
    _made: PreparedReplay = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigError or InputError for words that name nothing, and for a job that can never start."""
        self.trace, self.described = on_its_cluster(self.trace, self.request)
        self._made = self._set_up()
        self.replayed.trace_digest = trace_digest(self.trace)

    @property
    def replayed(self) -> ReplayResult:
        """What came of it so far."""
        return self._made.replayed

    def run(self, on_progress: Callable[[int], None] | None = None) -> ReplayResult:
        """Replay to the end. KeyboardInterrupt goes through.

        on_progress: called now and then with the number of jobs that ended.
        """
        replayed = self.replayed
        if self._made.compiled:
            _jit.load()
        began = time.perf_counter()
        staged = int(replayed.stage.done.sum()) if replayed.stage else 0
        tell = None if on_progress is None else _every_so_often(lambda ended: on_progress(staged + ended))
        try:
            replayed.cycles = _play_events(self._made, tell)
            replayed.complete = True
        finally:
            replayed.wall_s = time.perf_counter() - began
        return replayed

    def _set_up(self) -> PreparedReplay:
        if self.request.model == "ideal":
            from slurmsched.sim.experiments.ideal_setup import ideal_setup

            return ideal_setup(self.trace, self.described, self.request)
        from slurmsched.sim.experiments.slurmctld_setup import (
            slurm_setup,  # late, with pydantic: the ideal cluster does without
        )

        return slurm_setup(self.trace, self.described, self.request)


def on_its_cluster(trace: Trace, request: ReplayRequest) -> tuple[Trace, ClusterDescription]:
    """The jobs that the cluster of a request may hold, and the cluster; its warnings say what is left out of both.

    Raises ConfigError or InputError for words that name no cluster.
    """
    described = cluster_of(request.cluster, trace)
    if request.model != "slurm":
        return trace, described
    from slurmsched.sim.slurmctld.trace_fitting import fitted_trace

    described = described.in_time_of(math.nan if request.origin_s is None else request.origin_s)
    trace, warnings = fitted_trace(trace, described)
    return trace, replace(described, warnings=(*described.warnings, *warnings))


def _play_events(made: PreparedReplay, tell: Callable[[Any], None] | None) -> int:
    """Cycles that it took."""
    cluster, planner, store = made.replayed.cluster, made.planner, made.store
    if not isinstance(cluster, IdealCluster):
        times: dict[str, Any] = {"interval_s": SLURM_INTERVAL_S, "stands_until": made.stands_until}
        return replay(cluster, planner, store, **times, on_progress=tell)
    assert planner is not None
    model = cluster.model
    if isinstance(model, PublishedSettings) and model.rounds_follow:
        times = {"round_s": model.round_s, "hold_s": model.hold_s}
        return replay_following(cluster, planner, store, **times, on_progress=tell)
    if model.round_s:
        return replay(cluster, planner, store, interval_s=model.round_s, on_progress=tell)
    return replay_events(cluster, planner, store, on_progress=tell)


def _every_so_often(on_progress: Callable[[int], None], events: int = 256) -> Callable[[Any], None]:
    """Tells at every so many events only: a progress bar costs more than a cycle."""
    count = itertools.count()

    def tell(cluster: Any) -> None:
        if next(count) % events == 0 or cluster.finished:
            on_progress(cluster.ended)

    return tell
