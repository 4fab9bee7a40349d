"""An ideal cluster in rounds whose jobs train in steps and change their batch size, as Shockwave's simulator has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.throughput_table import job_kind, model_and_batch, throughput, throughput_table
from slurmsched.model import Labels, Plan, Receipt, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import MARK
from slurmsched.replay.batch_sizes import Adapting
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_view import TIME_LIMIT
from slurmsched.replay.traces import Trace
from slurmsched.words import some

WORKER = "v100"
FINISHING_S = 5.0  # a slice shorter than a round by more is the last of its job, and free of the cost of a restart
UNFAIR = 1.05  # rho above which a job is told to be treated unfairly, as in the scripts of Shockwave's release
_RAN, _SUBMIT = 1, 3  # columns of Cast.times


class Slice(NamedTuple):
    """What a job does in a round: steps made, run time [s], whether it ends, and time lost to its restart [s]."""

    steps: int
    run_s: float
    ends: bool
    lost_s: float


class AdaptingCluster(IdealCluster):
    """The ideal cluster in rounds that follow each other, each job doing whole steps at its throughput on a V100.

    A job's model is told with its batch size, its mode as its name; its run time is that at its first batch size, so
    that times the throughput gives its steps. Between two rounds of which it was in the first a job may change its
    batch size (replay.batch_sizes); begun epochs then count whole. A job that was not in the round before loses
    restart_cost_s of its slice. Policies see the present batch size and the progress as hints, and as the time limit
    how long the whole job would take at the present batch size.
    Raises InputError for a model that the table lacks, ConfigError without rounds.
    Source: the simulator of Zheng et al. (Shockwave), NSDI '23.
    """

    def __init__(self, trace: Trace, nodes: Sequence[int], model: IdealModel, *, seed: int = 0) -> None:
        if not model.rounds_follow:
            raise ConfigError("needs rounds_follow = true and round_s: batch sizes change between rounds",
                              key="model.adapts")  # fmt: skip
        super().__init__(trace, nodes, model, seed=seed)
        ordered = trace.take(np.argsort(trace.job_id, kind="stable"))
        self._table = throughput_table(model.adapts)[WORKER]
        self._kind = [_adapting(*row) for row in zip(ordered.model, ordered.name, ordered.gpus.tolist(), strict=True)]
        self._batch = [kind.first for kind in self._kind]
        self._rate = [self._throughput(row, batch) for row, batch in enumerate(self._batch)]
        lengths = zip(ordered.duration_s.tolist(), self._rate, strict=True)
        self._steps = [round(duration_s * rate) for duration_s, rate in lengths]
        self._done = [0] * len(ordered)
        self._next = list(self._batch)
        self._batches = [kind.batches(kind.epoch(steps, kind.first)) for kind, steps in
                         zip(self._kind, self._steps, strict=True)]  # fmt: skip
        self._slices: dict[int, Slice] = {}
        self._before: frozenset[int] | None = None  # rows of the round before; None before the first
        self._alone_s = ordered.time_limit_s

    def read(self) -> Snapshot:
        """The cluster now, jobs as they are at their present batch size."""
        rows = self._active[: self._present].tolist()
        for row in rows:
            self._times[row, TIME_LIMIT] = self._steps[row] / self._rate[row]
        comments = list(self.cast.texts["comment"])
        for row in rows:
            comments[row] = self._hints(row)
        self.cast = replace(self.cast, texts={**self.cast.texts, "comment": Labels.of(comments)})
        return super().read()

    def apply(self, plan: Plan) -> Receipt:
        """As the ideal cluster; then a round begins."""
        receipt = super().apply(plan)
        running = np.flatnonzero(~np.isnan(self.start_s)).tolist()
        self._slices = {row: self._slice(row) for row in running}
        for row, slice_ in self._slices.items():
            if slice_.ends:
                super()._until(row, self._now_s + slice_.run_s)
        return receipt

    def advance(self, until_s: float) -> int:
        """Let time pass to the end of the round, which is over then."""
        began_s = self._now_s
        happened = super().advance(until_s)
        for row, slice_ in self._slices.items():
            self._times[row, _RAN] -= self._now_s - began_s - slice_.run_s + slice_.lost_s
            self._count(row, slice_)
        self._before = frozenset(self._slices) if self._slices or self._before is not None else None
        self._slices = {}
        for row in self._active[: self._present].tolist():
            self._next[row] = self._kind[row].wanted(self._done[row], self._batch[row])
        return happened + 1

    @property
    def quiet_s(self) -> float:
        """When all jobs that run now have done what they do in this round."""
        return self._now_s + max((each.run_s for each in self._slices.values()), default=math.inf)

    def rho(self) -> Floats:
        """Of each job that ended, in ascending id: JCT over its time limit times jobs of the trace over GPUs. (J,).

        The time limit of such a trace is the run time alone, batch sizes changing as profiled.
        """
        done = np.isfinite(self.end_s)
        contention = max(1.0, len(done) / self.history.gpus)
        jct_s = self.end_s - self.cast.times[:, _SUBMIT]
        return np.asarray((jct_s / (self._alone_s * contention))[done])

    def _until(self, row: int, end_s: float) -> None:
        """Ends are known when a round begins."""

    def _slice(self, row: int) -> Slice:
        rate, left = self._rate[row], self._steps[row] - self._done[row]
        steps = min(int(rate * self.model.round_s), left)
        run_s, lost_s = steps / rate, 0.0
        fresh = self._before is not None and row not in self._before
        if fresh and run_s > self.model.round_s - FINISHING_S:
            lost_s = self.model.restart_cost_s
            steps = int(steps * (run_s - lost_s) / run_s)
        return Slice(steps, run_s, steps >= left, lost_s)

    def _count(self, row: int, slice_: Slice) -> None:
        """The steps of a slice, and the batch size that was asked for before it."""
        self._done[row] += slice_.steps
        batch, kind = self._next[row], self._kind[row]
        if slice_.ends or batch == self._batch[row] or not self._has(row, batch):
            return
        was, epochs = self._batch[row], kind.epoch(self._steps[row], self._batch[row])
        steps = math.ceil(self._steps[row] * was / batch)
        each = kind.steps_an_epoch(batch)
        self._done[row] = kind.epoch(self._done[row], was) * each
        self._steps[row] = steps if kind.epoch(steps, batch) == epochs else each * epochs
        self._batch[row], self._rate[row] = batch, self._throughput(row, batch)

    def _has(self, row: int, batch: int) -> bool:
        return throughput(self._table, job_kind(self._kind[row].model, batch), self._kind[row].gpus) > 0

    def _throughput(self, row: int, batch: int) -> float:
        kind = self._kind[row]
        rate = throughput(self._table, job_kind(kind.model, batch), kind.gpus)
        if not rate > 0:
            raise InputError(f"job {self.job_id[row]}: {kind.model!r} with batch size {batch} on "
                             f"{some(kind.gpus, 'GPU')} has no throughput; leave it out, or add it",
                             source=self.model.adapts)  # fmt: skip
        return rate

    def _hints(self, row: int) -> str:
        sizes = ":".join(map(str, self._batches[row]))
        batch = f" batch={self._batch[row]} batches={sizes}" if self._batch[row] else ""
        return (f"{MARK} model={self._kind[row].model}{batch} "
                f"progress={min(self._done[row], self._steps[row])}/{self._steps[row]}")  # fmt: skip


def _adapting(kind: str, mode: str, gpus: int) -> Adapting:
    model, batch = model_and_batch(kind)
    return Adapting(model, mode, batch or 0, gpus)
