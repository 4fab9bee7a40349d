"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slurmsched.model import PolicyFamily, PolicyInfo, Ranking, Snapshot
from slurmsched.model.ordering import arrival_s, ordered


@dataclass(frozen=True, slots=True)
class Fifo:
    """First in, first out: by first submission, whatever the job asks for.

    A requeued job keeps its place. In Slurm its submission time moves.
    Source: the baseline of every paper; with Slurm's backfill below it, EASY-like.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.BASELINE,
        "none: the common baseline",
        on_slurm=("Slurm's backfill still lets small jobs pass, so this is FIFO with backfill.",),
        criteria={"submit_s": "submitted {at}"},
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs), why={"submit_s": arrival_s(snapshot.jobs)})
