"""One priority from what a job would learn and how it is pressed: MLFS's heuristic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.job_times import deadline_s, expected_remaining_s
from slurmsched.estimators.past_run_times import RollingHistory
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hints import hint_column
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Part, Period, Weight, check_ranges
from slurmsched.model.policy_info import NEEDS_PREEMPTION
from slurmsched.plain_text import pluralize_of
from slurmsched.protocols import Estimator

LEAST_H = 1.0 / 60.0  # a remaining time or slack below a minute counts as one, lest a priority be infinite


@dataclass(frozen=True, slots=True)
class Mlfs:
    """Highest composite priority first: learning progress, and deadline, remaining time and waiting.

    The learning part is 1 less the progress (`progress=`), times the loss fall of the last step over that of all steps
    (`loss=`). Each factor is 1 without its hint, as at the first step. A job without a deadline has no term for it.
    alpha: weight of the learning part, 0 to 1. The rest is the weight of the cluster part.
    deadline_weight: weight of 1 / hours to the deadline.
    remaining_weight: weight of 1 / hours remaining.
    waiting_weight: weight of hours waited.
    round_s: time until the order is computed again [s].
    estimator: source of expected run times.
    Raises ConfigError for a value out of range.
    Source: Wang, Liu and Shen (MLFS), CoNEXT '20: the composite, the terms of the cluster part, and the loss in the
    learning part. Ours: the share not done in place of 1 / iteration, hours as the unit, the weights. Left out: urgency
    and the size of a model's partition, its learnt policy, its load control.
    """

    preemptive: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DURATION,
        "Wang, Liu, Shen: MLFS, CoNEXT 2020",
        left_out=(
            "The learnt policy, load control, priorities of tasks that wait for others, and servers by distance to an "
            "ideal one.",
            "Urgency and the size of a model's partition in the learning part.",
        ),
        needs=(PolicyInput.PROGRESS, PolicyInput.DEADLINE, PolicyInput.PAST, PolicyInput.DURATION),
        uses=(PolicyLever.ORDER, PolicyLever.REQUEUE),
        on_slurm=(
            NEEDS_PREEMPTION,
            "Priorities are of tasks in the paper and of whole jobs here: Slurm starts and stops a gang as one.",
            "Slurm knows no losses: a job tells them by the hint loss=, and progress by progress=; without them the "
            "learning part is the same for all. Model partitions are not told.",
        ),
    )

    alpha: Part = 0.3
    deadline_weight: Weight = 1.0
    remaining_weight: Weight = 1.0
    waiting_weight: Weight = 0.1
    round_s: Period = 60.0
    estimator: Estimator = field(default_factory=RollingHistory)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        progress = hint_column(jobs, "progress")
        loss = hint_column(jobs, "loss")
        learning = (1.0 - np.where(np.isnan(progress), 0.0, progress)) * np.where(np.isnan(loss), 1.0, loss)
        pressed = self._pressed(snapshot)
        priority = self.alpha * learning + (1.0 - self.alpha) * pressed
        why = {"priority": priority, "learning": learning, "pressed": pressed}
        return Ranking(ordered(jobs, -priority), why=why, notes=_notes(progress, loss))

    def _pressed(self, snapshot: Snapshot) -> Floats:
        """The cluster part: deadline, remaining time and waiting. (N,), finite."""
        jobs = snapshot.jobs
        slack_h = (deadline_s(jobs) - snapshot.now_s) / 3_600.0
        remaining_h = expected_remaining_s(self.estimator, snapshot) / 3_600.0
        return (
            self.deadline_weight / np.maximum(slack_h, LEAST_H)
            + self.remaining_weight / np.maximum(remaining_h, LEAST_H)
            + self.waiting_weight * jobs.waiting_s / 3_600.0
        )

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """The end of the round, where anybody waits [Unix s]: priorities move with every second."""
        waits = ~running & ~snapshot.jobs.finished
        return snapshot.now_s + self.round_s if waits.any() else math.inf


def _notes(progress: Floats, loss: Floats) -> tuple[str, ...]:
    """Notes on hints that jobs lack; on losses only if some job reports one."""
    silent, unlearned = int(np.isnan(progress).sum()), int(np.isnan(loss).sum())
    notes = list[str]()
    if silent:
        notes.append(
            f"{pluralize_of(silent, len(progress), 'job', 'reports', 'report')} no progress: "
            "ordered by deadline, remaining time and waiting"
        )
    if 0 < unlearned < len(loss):
        notes.append(
            f"{pluralize_of(unlearned, len(loss), 'job', 'reports', 'report')} no loss: counted as if at the first step"
        )
    return tuple(notes)
