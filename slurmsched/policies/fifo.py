"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slurmsched.model import Card, Family, Ranking, Snapshot
from slurmsched.policies.order import arrival_s, ordered


@dataclass(frozen=True, slots=True)
class Fifo:
    """First in, first out: by first submission, whatever the job asks for.

    A requeued job keeps its place, unlike in Slurm, where its submission time moves.
    Source: the baseline of every paper; with Slurm's backfill below it, EASY-like.
    """

    preemptive: ClassVar[bool] = False
    arrivals_last: ClassVar[bool] = True  # a job that comes goes behind all that wait, and nothing else moves them
    card: ClassVar[Card] = Card(
        Family.BASELINE,
        "none: the common baseline",
        on_slurm=("Slurm's backfill still lets small jobs pass, so this is FIFO with backfill.",),
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs), why={"submit_s": arrival_s(snapshot.jobs)})
