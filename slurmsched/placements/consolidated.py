"""Consolidated: a gang on the fewest nodes."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.placements.candidates import Held, assign, pools, to_give


@dataclass(frozen=True, slots=True)
class Consolidated:
    """A gang on one node if it fits there (the one left fullest), else on whole nodes and one remainder.

    Running jobs stay where they are or go; a pending job takes idle GPUs first, then those of the least urgent
    running jobs. Source: Gu et al. (Tiresias), NSDI '19, section 3.3, without its model profiles.
    """

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold GPUs now, and where; every gang whole."""
        pool, usable = pools(snapshot)
        return assign(snapshot, ranking.order, to_give(snapshot), Held.of(snapshot), pool, usable)
