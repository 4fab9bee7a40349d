"""One replay from words: made ready, played, and what came of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slurmsched.kernels import _jit
from slurmsched.replay.clusters import Described, cluster_of
from slurmsched.replay.engine import replay, replay_events, replay_following
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.replayed import SLURM_INTERVAL_S, Replayed, SetUp
from slurmsched.replay.request import Request
from slurmsched.replay.traces import Trace, trace_digest


@dataclass(slots=True, eq=False)
class Session:
    """A replay made ready: `run` plays it; after an interruption `replayed` holds what is there so far."""

    trace: Trace
    request: Request
    described: Described = field(init=False)
    _made: SetUp = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigError or InputError for words that name nothing, and for a job that can never start."""
        self.described = cluster_of(self.request.cluster, self.trace)
        self._made = self._set_up()
        self.replayed.trace_digest = trace_digest(self.trace)

    @property
    def replayed(self) -> Replayed:
        """What came of it so far."""
        return self._made.replayed

    def run(self, on_progress: Callable[[int], None] | None = None) -> Replayed:
        """Play to the end. on_progress: told now and then how many jobs ended. KeyboardInterrupt goes through."""
        replayed = self.replayed
        if self._made.compiled:
            _jit.load()
        began = time.perf_counter()
        staged = int(replayed.stage.done.sum()) if replayed.stage else 0
        tell = None if on_progress is None else _now_and_then(lambda ended: on_progress(staged + ended))
        try:
            replayed.cycles = _play(self._made, tell)
            replayed.complete = True
        finally:
            replayed.wall_s = time.perf_counter() - began
        return replayed

    def _set_up(self) -> SetUp:
        if self.request.model == "ideal":
            from slurmsched.replay.ideal_setup import ideal_setup

            return ideal_setup(self.trace, self.described, self.request)
        from slurmsched.replay.slurm_setup import slurm_setup  # late, with pydantic: the ideal cluster does without

        return slurm_setup(self.trace, self.described, self.request)


def _play(made: SetUp, tell: Callable[[Any], None] | None) -> int:
    """Cycles that it took."""
    cluster, planner, store = made.replayed.cluster, made.planner, made.store
    if not isinstance(cluster, IdealCluster):
        return replay(cluster, planner, store, interval_s=SLURM_INTERVAL_S, on_progress=tell)
    assert planner is not None
    model = cluster.model
    if model.rounds_follow:
        times = {"round_s": model.round_s, "hold_s": model.hold_s}
        return replay_following(cluster, planner, store, **times, on_progress=tell)
    if model.round_s:
        return replay(cluster, planner, store, interval_s=model.round_s, on_progress=tell)
    return replay_events(cluster, planner, store, on_progress=tell)


def _now_and_then(on_progress: Callable[[int], None], events: int = 256) -> Callable[[Any], None]:
    """Tells at every so many events only: a progress bar costs more than a cycle."""
    count = itertools.count()

    def tell(cluster: Any) -> None:
        if next(count) % events == 0 or cluster.finished:
            on_progress(cluster.ended)

    return tell
