"""Quasi-shortest service first: Helios's QSSF."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_times import known_or_last, service
from slurmsched.estimators.boosted_trees import Trees, scikit_learn_installed
from slurmsched.estimators.past_run_times import RollingHistory
from slurmsched.estimators.requested_time import NoEstimate
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, check_ranges
from slurmsched.protocols import Estimator


def learn_notes(snapshot: Snapshot, policy: str) -> tuple[str, ...]:
    """The note while there are no ended jobs to learn from."""
    if len(snapshot.past) or not len(snapshot.jobs):
        return ()
    return (f"nothing has ended yet that {policy} could learn from: expected run times are hints and time limits",)


_NO_TREES = (
    "scikit-learn is not installed: qssf goes by its rolling estimate alone (pip install 'slurmsched[trees]')",
)


@dataclass(frozen=True, slots=True)
class Qssf:
    """Least expected service first, GPUs times expected run time, learnt from jobs that ended. No job is stopped.

    Jobs without an estimate come last, in FIFO order.
    trees_share: weight of the estimate of `trees`; the rest is that of the estimator. If only one knows a job, it
        counts.
    estimator: the other estimate.
    Raises ConfigError for a share outside 0 to 1.
    Source: Hu et al. (Helios), SC '21: priority, and the weighted mix of a rolling and a tree estimate. Its weight is
    not
    verified: 0.5 is ours.
    """

    preemptive: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DURATION,
        "Hu et al.: Helios, SC 2021",
        left_out=("Powering down idle nodes: see `slurmsched power advise`.",),
        needs=(PolicyInput.PAST, PolicyInput.DURATION),
        on_slurm=(
            "The first job that does not fit holds back all others in the paper; Slurm's backfill lets jobs pass that "
            "do not delay it.",
        ),
        criteria={"expected_gpu_s": "expected to use {}", "run_s": "runs {}"},
    )

    trees_share: Part = 0.5
    estimator: Estimator = field(default_factory=RollingHistory)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        run_s = known_or_last(self._run_s(snapshot))
        gpu_s = service(run_s, snapshot.jobs)
        why = {"expected_gpu_s": gpu_s, "run_s": run_s}
        notes = (*learn_notes(snapshot, "qssf"), *_NO_TREES[: bool(self.trees_share) and not scikit_learn_installed()])
        return Ranking(ordered(snapshot.jobs, gpu_s), why=why, notes=notes)

    def _run_s(self, snapshot: Snapshot) -> Floats:
        """The weighted mix [s]. (N,), NaN where neither has an estimate."""
        rolling_s = self.estimator.estimate(snapshot).total_s
        if not self.trees_share:
            return rolling_s
        trees_s = Trees(estimator=NoEstimate()).estimate(snapshot).total_s
        mixed = self.trees_share * trees_s + (1.0 - self.trees_share) * rolling_s
        return np.where(np.isnan(trees_s), rolling_s, np.where(np.isnan(rolling_s), trees_s, mixed))
