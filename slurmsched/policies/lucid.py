"""Shortest expected service first, explained, with advice on who could share GPUs: Lucid's order and packing score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.estimators.additive import Additive
from slurmsched.model import Card, Family, Input, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import hint_column
from slurmsched.policies.expected import known_or_last, service
from slurmsched.policies.order import ordered
from slurmsched.policies.qssf import learn_notes
from slurmsched.protocols import Estimator

TINY, JUMBO = 0.0, 2.0  # sharing scores; a pair may share GPUs if they sum to 2 at most


@dataclass(frozen=True, slots=True)
class Lucid:
    """Least expected service first, GPUs times expected run time; says what each estimate stands on.

    estimator: where expected run times come from.
    `why` has the row of the estimate's source (0 = the most alike), and a sharing score: 0 for a job that offers to
    share (`share=yes`), 2 for any other; two jobs may share if their scores sum to 2 at most. Jobs without an estimate
    come last, in FIFO order.
    Source: Hu et al. (Lucid), ASPLOS '23, for the order and the rule of the sum. Its additive model of run times is
    replaced by means whose group is told, its scores from GPU profiles by the user's word: both ours.
    """

    preemptive: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.DURATION,
        "Hu et al.: Lucid, ASPLOS 2023",
        needs=(Input.PAST, Input.DURATION),
        on_slurm=(
            "The paper first runs every job for a short capped time on few GPUs to profile it: a job of Slurm has one "
            "time limit and starts over at a requeue, so nothing is profiled.",
            "The paper packs pairs of jobs on the same GPUs: Slurm shares a GPU only between jobs that asked for "
            "shards or MPS at submission, so pairs are shown by their scores and not made.",
        ),
    )

    estimator: Estimator = field(default_factory=Additive)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, estimates = snapshot.jobs, self.estimator.estimate(snapshot)
        run_s = known_or_last(estimates.total_s)
        gpu_s = service(run_s, jobs)
        why: Mapping[str, NDArray[Any]] = {"expected_gpu_s": gpu_s, "run_s": run_s, "estimate_source": estimates.source,
               "sharing_score": sharing_score(snapshot)}  # fmt: skip
        return Ranking(ordered(jobs, gpu_s), why=why, notes=learn_notes(snapshot, "lucid"))


def sharing_score(snapshot: Snapshot) -> Floats:
    """0 for a job that offers to share its GPUs, 2 for one that does not. (N,)."""
    return np.where(hint_column(snapshot.jobs, "share") == 1.0, TINY, JUMBO)
