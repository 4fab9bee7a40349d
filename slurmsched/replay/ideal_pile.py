"""The ideal cluster of one pile of GPUs, compiled: all that happens between two plans is one call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels import ideal_pile as pile
from slurmsched.model import Plan, Receipt
from slurmsched.model.columns import Int64s
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.metrics import History, Runs
from slurmsched.replay.traces import Trace

_NONE = np.zeros(0, np.int64)
_ROOM = 4_096  # notes and runs kept in tables before they are packed away


class PileCluster(IdealCluster):
    """An IdealCluster on one node without rounds, quirks and physics; same plans, same results, in less time.

    Raises as IdealCluster, and ConfigError where it cannot stand for one.
    """

    def __init__(self, trace: Trace, nodes: Sequence[int], model: IdealModel | None = None, *, seed: int = 0) -> None:
        super().__init__(trace, nodes, model, seed=seed)
        if not self.suits(nodes, self.model):
            raise ConfigError("only counts GPUs; choose IdealCluster", key="model")
        jobs, gpus = len(trace), self.free
        self._life, self._lists = np.full((5, jobs), math.nan), np.zeros((6, jobs), np.int64)
        life, lists = self._life, self._lists
        life[pile.NEEDED], life[pile.PROGRESS] = self.cast.duration_s, 0.0
        lists[pile.ARRIVALS] = np.asarray(self._arrivals)
        self.progress_s, self.first_start_s, self.end_s = life[1:4]
        self._active = lists[pile.ACTIVE]
        self._tally, self._clock = np.zeros(pile.TALLY, np.int64), np.zeros(pile.CLOCK)
        self._tally[[pile.FREE, pile.LEFT, pile.BY_ARRIVAL]] = gpus, jobs, 1
        settings = ("start_cost_s", "restart_cost_s", "checkpoint_s", "clock_s")
        costs = [getattr(self.model, name) for name in settings]
        self._clock[pile.WAKE], self._clock[pile.START_COST : pile.LETS_IN] = math.inf, costs
        self._clock[pile.LETS_IN] = math.nan
        self._notes, self._ran = np.empty((_ROOM, 3)), np.empty((_ROOM + min(jobs, gpus), 3))
        self._tables = (
            self.cast.times, self.cast.counts, life, lists, self._tally, self._clock, self._notes, self._ran,
        )  # fmt: skip
        self._clock[pile.NEXT] = pile.next_pile(self.cast.times, life, lists, self._tally, self._clock)
        self._tell()

    @staticmethod
    def suits(nodes: Sequence[int], model: IdealModel) -> bool:
        """Whether this cluster can stand for the one of these nodes and settings."""
        return len(nodes) == 1 and not model.round_s and not model.quirky

    @property
    def next_event_s(self) -> float:
        """As IdealCluster."""
        return self._next_s

    @property
    def quiet_s(self) -> float:
        """As IdealCluster."""
        running = self._lists[pile.HEAP, : self._held]
        return float(self._life[pile.UNTIL, running].max(initial=-math.inf)) if self._held else math.inf

    @property
    def undecided(self) -> bool:
        """As IdealCluster."""
        return self._undecided

    @property
    def history(self) -> History:
        """As IdealCluster."""
        self._pack()
        return self._history

    @property
    def runs(self) -> Runs:
        """As IdealCluster."""
        self._pack()
        return self._runs

    def proceed(self) -> None:
        """Let time pass until a plan can matter, or all jobs have ended; at times that is only a part of the way."""
        self._pass(math.inf, to_plan=True)

    def advance(self, until_s: float) -> int:
        """As IdealCluster."""
        happened = self._pass(until_s, to_plan=False)
        while self.next_event_s <= until_s and self.next_event_s < math.inf:
            happened += self._pass(until_s, to_plan=False)
        if until_s < math.inf:
            self._now_s = self._clock[pile.NOW] = max(self._now_s, until_s)
        return happened

    def apply(self, plan: Plan) -> Receipt:
        """As IdealCluster."""
        if plan.target is None:
            raise ConfigError("an ideal cluster needs a planner that names who holds which GPUs", key="placement")
        self._check_alone(plan.target)
        self._check_sizes(plan, plan.target)
        self._make_room()
        wake, needs = plan.wake, plan.queue_needs
        kind = pile.NO_QUEUE if plan.queue is None else pile.WHOEVER if len(needs) else pile.IN_TURN
        opened = wake.fits and plan.queue is None
        told = (wake.free_gpus, 0, 0, 0, opened, wake.arrivals, wake.takes, wake.running, kind)
        self._tally[pile.BOUND : pile.KIND + 1] = told
        self._clock[pile.WAKE] = self.model.wake_s(wake.at_s, self._now_s)
        self._clock[pile.LETS_IN] = math.nan if wake.lets_in_gpu_s is None else wake.lets_in_gpu_s
        queue: Int64s = _NONE if plan.queue is None else plan.queue
        changed = pile.enact_pile(self._seen, plan.target.rows, queue, needs, *self._tables)
        self._tell()
        return Receipt(planned=changed)

    def _pass(self, until_s: float, *, to_plan: bool) -> int:
        self._make_room()
        happened: int = pile.proceed_pile(until_s, to_plan, *self._tables)
        self._tell()
        return happened

    def _tell(self) -> None:
        """Counts and times as the ideal cluster keeps them."""
        self._present, self._held, self.free, self._left, self._noted, self._leaves, due = self._tally[:7].tolist()
        self._now_s, _, self._next_s = self._clock[:3].tolist()
        self._undecided = due != 0

    def _make_room(self) -> None:
        if max(self._noted, self._leaves) > _ROOM // 2:
            self._pack()

    def _pack(self) -> None:
        """Notes and runs from the tables to where they are kept."""
        noted, ran = self._notes[: self._noted], self._ran[: self._leaves]
        busy = self._history.gpus - noted[:, 1]
        self._history.extend(noted[:, 0], np.stack([busy, noted[:, 2]], axis=1).astype(np.int64))
        self._runs.extend(ran[:, 0].astype(np.int64), ran[:, 1], ran[:, 2])
        self._tally[[pile.NOTED, pile.LEAVES]] = self._noted = self._leaves = 0
