"""Quasi-shortest service first: Helios's QSSF."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.estimators.history import History
from slurmsched.estimators.lessons import available
from slurmsched.estimators.nothing import Nothing
from slurmsched.estimators.trees import Trees
from slurmsched.model import Card, Family, Input, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.expected import known_or_last, service
from slurmsched.policies.order import ordered
from slurmsched.policies.ranges import Part, check_ranges
from slurmsched.protocols import Estimator


def learn_notes(snapshot: Snapshot, policy: str) -> tuple[str, ...]:
    """What to say while there is nothing to learn from."""
    if len(snapshot.past) or not len(snapshot.jobs):
        return ()
    return (f"nothing has ended yet that {policy} could learn from: expected run times are hints and time limits",)


_NO_TREES = (
    "scikit-learn is not installed: qssf goes by its rolling estimate alone (pip install 'slurmsched[trees]')",
)


@dataclass(frozen=True, slots=True)
class Qssf:
    """Least expected service first, GPUs times expected run time, where the past says how long; nobody is stopped.

    trees_share: weight of the estimate of `trees`, the rest is the estimator's; one that knows a job alone counts.
    estimator: the other estimate.
    Jobs without an estimate come last, in FIFO order. Raises ConfigError for a share outside 0 to 1.
    Source: Hu et al. (Helios), SC '21: priority, and the weighted mix of a rolling and a tree estimate.
    Its weight was not verified: 0.5 is ours.
    """

    preemptive: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.DURATION,
        "Hu et al.: Helios, SC 2021",
        left_out=("Powering down idle nodes is no part of the order: see `slurmsched power advise`.",),
        needs=(Input.PAST, Input.DURATION),
        on_slurm=(
            "The first job that does not fit holds back all others in the paper; Slurm's backfill lets jobs pass that "
            "do not delay it.",
        ),
    )

    trees_share: Part = 0.5
    estimator: Estimator = field(default_factory=History)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        run_s = known_or_last(self._run_s(snapshot))
        gpu_s = service(run_s, snapshot.jobs)
        why = {"expected_gpu_s": gpu_s, "run_s": run_s}
        notes = (*learn_notes(snapshot, "qssf"), *_NO_TREES[: bool(self.trees_share) and not available()])
        return Ranking(ordered(snapshot.jobs, gpu_s), why=why, notes=notes)

    def _run_s(self, snapshot: Snapshot) -> Floats:
        """The weighted mix [s]. (N,), NaN where neither knows."""
        rolling_s = self.estimator.estimate(snapshot).total_s
        if not self.trees_share:
            return rolling_s
        trees_s = Trees(estimator=Nothing()).estimate(snapshot).total_s
        mixed = self.trees_share * trees_s + (1.0 - self.trees_share) * rolling_s
        return np.where(np.isnan(trees_s), rolling_s, np.where(np.isnan(rolling_s), trees_s, mixed))
