"""Shortest waiting allowance first: GENIE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.estimators.alike import Alike
from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Labels, Ranking, Snapshot, Use, Wants
from slurmsched.model.columns import Bools, Floats
from slurmsched.policies.deadlines import active, deadline_s, missing
from slurmsched.policies.expected import remaining_s
from slurmsched.policies.gpu_market import market
from slurmsched.policies.order import ordered
from slurmsched.protocols import Estimator, SpeedEstimator
from slurmsched.words import some


@dataclass(frozen=True, slots=True)
class Genie:
    """Shortest waiting allowance first: the job that can wait least and still meet its deadline.

    estimator: where expected run times come from. speeds: by GPU type; where they differ a job waits for the type on
    which it is predicted to be fastest.
    A job that cannot meet its deadline any more, or has none, comes after those that can, by attained service.
    Source: Chen et al. (GENIE), TPDS 2020, for the allowance and the placement by predicted rate; what becomes of the
    other jobs, and speeds by GPU type in place of its fitted model, are ours.
    """

    preemptive: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        Family.DEADLINE,
        "Chen et al.: GENIE, IEEE TPDS 2020",
        left_out=("Other sizes: a job keeps the number of GPUs that it asks for.",),
        needs=(Input.DEADLINE, Input.DURATION, Input.SPEED),
        uses=(Use.ORDER, Use.GPU_TYPE),
        on_slurm=(
            "The paper fits a job's rate in a profiling run; here it is the user's hint or the history of jobs alike.",
            "A job of one node that names no type is sent to its fastest one where placement.types is on.",
        ),
    )

    estimator: Estimator = field(default_factory=Hint)
    speeds: SpeedEstimator = field(default_factory=Alike)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, due_s = snapshot.jobs, deadline_s(snapshot.jobs)
        left_s, wants = self._left_s(snapshot)
        allowance_s = np.where(np.isfinite(left_s), due_s - snapshot.now_s - np.where(np.isfinite(left_s), left_s, 0.0),
                               np.inf)  # fmt: skip
        in_time = np.isfinite(allowance_s) & (allowance_s >= 0)
        order = ordered(jobs, ~in_time, np.where(in_time, allowance_s, jobs.attained_gpu_s))
        late = int((active(snapshot) & (allowance_s < 0)).sum())
        notes = missing(active(snapshot), due_s, left_s)
        notes += (f"{some(late, 'job')} cannot meet the deadline any more",) if late else ()
        why = {"in_time": in_time.astype(np.int64), "allowance_s": allowance_s}
        return Ranking(order, why=why, notes=notes, wants=wants)

    def _left_s(self, snapshot: Snapshot) -> tuple[Floats, Wants | None]:
        """Run time to come on the best type of each job (N,), and that type for those that wait, where types differ."""
        left_s, there = remaining_s(self.estimator, snapshot), market(snapshot, self.speeds)
        speed = there.speed
        best = speed.max(axis=1, initial=0.0)
        left_s = np.divide(left_s, best, out=left_s.copy(), where=best > 0)
        if (speed == best[:, None]).all(axis=1)[there.active].all():
            return left_s, None
        names = [there.types[column] for column in speed.argmax(axis=1).tolist()]
        asks = snapshot.jobs.pending & (best > 0)
        return left_s, Wants(gpu_type=Labels.of([name if ask else "" for name, ask in zip(names, asks, strict=True)]))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next job that waits can no longer meet its deadline [Unix s], infinity if none is about to."""
        waits = ~running & ~snapshot.jobs.finished & (ranking.why["in_time"] > 0)
        return snapshot.now_s + float(np.min(ranking.why["allowance_s"], initial=np.inf, where=waits)) + 1.0
