"""How training jobs change their batch size while they run: the two ways of Shockwave's workload, as numbers.

Source: the simulator of Zheng et al. (Shockwave), NSDI '23, uw-mad-dash/shockwave 8a44f4a27a45. `gns` doubles a batch
size at measured epochs, after the gradient noise scale; `accordion` trains with the largest outside of the epochs that
matter most for accuracy (Agarwal et al., MLSys '21).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.throughput_table import job_kind, model_and_batch, throughput, throughput_table
from slurmsched.model import Labels, Plan, Receipt, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import MARK
from slurmsched.model.trace import Trace
from slurmsched.plain_text import pluralize
from slurmsched.sim.experiments.published_settings import PublishedSettings
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_snapshot import TIME_LIMIT

SAMPLES: Mapping[str, int] = {
    "ResNet-18": 50_000, "ResNet-50": 100_000, "Transformer": 10_000, "LM": 59_675, "Recommendation": 117_907,
    "CycleGAN": 6_287, "A3C": 4,
}  # fmt: skip
LAST_CRITICAL = 260  # no epoch after this is another than those before were
LARGEST: Mapping[str, int] = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8_192}
# model, first batch size, GPUs -> epochs at which the batch size doubles
DOUBLES: Mapping[tuple[str, int, int], tuple[int, ...]] = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71), ("ResNet-18", 32, 1): (21, 31, 51), ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,), ("ResNet-18", 16, 2): (21, 31, 91, 111), ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41), ("ResNet-18", 128, 2): (41,), ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61), ("ResNet-18", 64, 4): (11, 61), ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,), ("ResNet-50", 32, 2): (101, 111), ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221), ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71), ("LM", 10, 1): (11, 21, 41), ("LM", 20, 1): (11, 41), ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71), ("LM", 10, 2): (11, 31, 41), ("LM", 20, 2): (31, 41), ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91), ("LM", 10, 4): (11, 31, 61), ("LM", 20, 4): (11, 61), ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91), ("Recommendation", 1024, 1): (21, 51, 91),
    ("Recommendation", 2048, 1): (21, 41), ("Recommendation", 4096, 1): (41,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BatchSizeRule:
    """A job that may change its batch size.

    mode: "gns", "accordion", or anything else for one that keeps it.
    first: batch size at its start, 0 = not told.
    gpus: that it runs on.
    """

    model: str
    mode: str
    first: int
    gpus: int

    def steps_an_epoch(self, batch: int) -> int:
        """Steps of an epoch with this batch size."""
        return math.ceil(SAMPLES.get(self.model, 1) / max(batch, 1))

    def epoch(self, steps: int, batch: int) -> int:
        """Epochs begun after that many steps, the last one counted whole."""
        return math.ceil(steps / self.steps_an_epoch(batch))

    def wanted(self, steps: int, batch: int) -> int:
        """The batch size it is to have after that many steps with this one; the same if nothing is to change."""
        if self.model not in LARGEST or (self.first == LARGEST[self.model] and self.model != "Transformer"):
            return batch
        epoch = self.epoch(steps, batch)
        if self.mode == "gns":
            return 2 * batch if self._by_noise(epoch + 1) > batch else batch
        if self.mode == "accordion" and self.model != "Transformer":
            return self.first if self._critical(epoch) else LARGEST[self.model]
        return batch

    def batches(self, epochs: int) -> tuple[int, ...]:
        """The batch sizes that it has at one time or another in that many epochs, ascending."""
        if self.mode == "gns":
            doubles = DOUBLES.get((self.model, self.first, self.gpus), ())
            return tuple(sorted({self._by_noise(epoch) for epoch in (0, *doubles) if epoch < epochs}))
        each = self.steps_an_epoch(self.first)
        known = min(epochs, LAST_CRITICAL + 1)
        return tuple(sorted({self.first, *(self.wanted(epoch * each, self.first) for epoch in range(known))}))

    def _by_noise(self, epoch: int) -> int:
        passed = sum(epoch >= each for each in DOUBLES.get((self.model, self.first, self.gpus), ()))
        return min(self.first << passed, LARGEST.get(self.model, self.first << passed))

    def _critical(self, epoch: int) -> bool:
        """Whether the epoch is one of those that matter most."""
        if self.model == "ResNet-50":
            return epoch % 30 < 10
        if self.model == "ResNet-18":
            head = 20 if self.first == 256 else 10
            return epoch < head or 150 <= epoch < 160 or 250 <= epoch < 260
        if self.model == "Recommendation":
            return epoch < {512: 30, 1_024: 30, 2_048: 40}.get(self.first, 10)
        return epoch < 10


# An ideal cluster in rounds whose jobs train in steps and change their batch size, as Shockwave's simulator has it.

WORKER = "v100"
FINISHING_S = 5.0  # a slice shorter than a round by more is the last of its job, and free of the cost of a restart
UNFAIR = 1.05  # rho above which a job is told to be treated unfairly, as in the scripts of Shockwave's release
_RAN, _SUBMIT = 1, 3  # columns of JobArrays.times


class RoundSlice(NamedTuple):
    """What a job does in a round: steps made, run time [s], whether it ends, and time lost to its restart [s]."""

    steps: int
    run_s: float
    ends: bool
    lost_s: float


class AdaptingCluster(IdealCluster):
    """The ideal cluster in rounds that follow each other, each job doing whole steps at its throughput on a V100.

    A job's model is told with its batch size, its mode as its name; its run time is that at its first batch size, so
    that times the throughput gives its steps. Between two rounds of which it was in the first a job may change its
    batch size (BatchSizeRule.wanted); begun epochs then count whole. A job that was not in the round before loses
    restart_cost_s of its slice. Policies see the present batch size and the progress as hints. The time limit is the
    run time of the whole job at the present batch size.
    Raises InputError for a model that the table lacks, ConfigError without rounds.
    Source: the simulator of Zheng et al. (Shockwave), NSDI '23.
    """

    model: PublishedSettings

    def __init__(self, trace: Trace, nodes: Sequence[int], model: PublishedSettings, *, seed: int = 0) -> None:
        if not model.rounds_follow:
            raise ConfigError("needs rounds_follow = true and round_s: batch sizes change between rounds",
                              key="model.adapts")  # fmt: skip
        super().__init__(trace, nodes, model, seed=seed)
        ordered = trace.take(np.argsort(trace.job_id, kind="stable"))
        self._table = throughput_table(model.adapts)[WORKER]
        self._kind = [
            _batch_size_rule(*row) for row in zip(ordered.model, ordered.name, ordered.gpus.tolist(), strict=True)
        ]
        self._batch = [kind.first for kind in self._kind]
        self._rate = [self._throughput(row, batch) for row, batch in enumerate(self._batch)]
        lengths = zip(ordered.duration_s.tolist(), self._rate, strict=True)
        self._steps = [round(duration_s * rate) for duration_s, rate in lengths]
        self._done = [0] * len(ordered)
        self._next = list(self._batch)
        self._batches = [kind.batches(kind.epoch(steps, kind.first)) for kind, steps in
                         zip(self._kind, self._steps, strict=True)]  # fmt: skip
        self._slices: dict[int, RoundSlice] = {}
        self._before: frozenset[int] | None = None  # rows of the round before; None before the first
        self._alone_s = ordered.time_limit_s

    def read(self) -> Snapshot:
        """The cluster now, jobs as they are at their present batch size."""
        rows = self._active[: self._present].tolist()
        for row in rows:
            self._times[row, TIME_LIMIT] = self._steps[row] / self._rate[row]
        comments = list(self.job_arrays.texts["comment"])
        for row in rows:
            comments[row] = self._hints(row)
        self.job_arrays = replace(self.job_arrays, texts={**self.job_arrays.texts, "comment": Labels.of(comments)})
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
        jct_s = self.end_s - self.job_arrays.times[:, _SUBMIT]
        return np.asarray((jct_s / (self._alone_s * contention))[done])

    def _until(self, row: int, end_s: float) -> None:
        """Ends are known when a round begins."""

    def _slice(self, row: int) -> RoundSlice:
        rate, remaining = self._rate[row], self._steps[row] - self._done[row]
        steps = min(int(rate * self.model.round_s), remaining)
        run_s, lost_s = steps / rate, 0.0
        fresh = self._before is not None and row not in self._before
        if fresh and run_s > self.model.round_s - FINISHING_S:
            lost_s = self.model.restart_cost_s
            steps = int(steps * (run_s - lost_s) / run_s)
        return RoundSlice(steps, run_s, steps >= remaining, lost_s)

    def _count(self, row: int, slice_: RoundSlice) -> None:
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
                             f"{pluralize(kind.gpus, 'GPU')} has no throughput; leave it out, or add it",
                             source=self.model.adapts)  # fmt: skip
        return rate

    def _hints(self, row: int) -> str:
        sizes = ":".join(map(str, self._batches[row]))
        batch = f" batch={self._batch[row]} batches={sizes}" if self._batch[row] else ""
        return (f"{MARK} model={self._kind[row].model}{batch} "
                f"progress={min(self._done[row], self._steps[row])}/{self._steps[row]}")  # fmt: skip


def _batch_size_rule(kind: str, mode: str, gpus: int) -> BatchSizeRule:
    model, batch = model_and_batch(kind)
    return BatchSizeRule(model, mode, batch or 0, gpus)
