"""Tiers: two jobs on the same GPUs keep a share of their speed by how much each of them uses a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.checks import check_words
from slurmsched.replay.physics.costs import Costs, check_speed, named
from slurmsched.replay.physics.levels import sharing


@dataclass(frozen=True, slots=True)
class Tiers(Costs):
    """Speed 1 alone; beside another job the share that stands in `kept` at the sum of both scores.

    tiny, medium: words in names of models whose jobs score 0 and 1; all others score 2. kept: five shares, of the sums
    0 to 4. Two jobs share all their GPUs or none; when one of them ends the other goes on at speed 1.
    Raises ConfigError for shares that are not five, ascend or are not within 0 and 1, and for words that are no list;
    InputError for three jobs on a GPU, and for jobs that share a part of their GPUs.
    Source: the tiers and their bounds, a mean speed beside others of 0.95 and 0.85, are those by which the public
    analyzer of Hu et al. (Lucid), ASPLOS '23, labels models: the bound itself is the share of sums 0 and 2, and sum 1
    lies between; the shares of sums 3 and 4, which Lucid never packs, are ours.
    """

    shared: ClassVar[bool] = True
    colocates: ClassVar[bool] = True

    tiny: tuple[str, ...] = ()
    medium: tuple[str, ...] = ()
    kept: tuple[float, ...] = (0.95, 0.9, 0.85, 0.7, 0.55)

    def __post_init__(self) -> None:
        if len(self.kept) != 5:
            raise ConfigError(f"needs five shares, of the sums 0 to 4, got {len(self.kept)}", key="physics.kept")
        for share in self.kept:
            check_speed("kept", share)
        if list(self.kept) != sorted(self.kept, reverse=True):
            raise ConfigError("must not ascend: heavier jobs keep no more", key="physics.kept")
        for name in ("tiny", "medium"):
            check_words(name, getattr(self, name), "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        models = snapshot.jobs.name
        score = np.where(named(models, self.tiny), 0, np.where(named(models, self.medium), 1, 2))[held.rows]
        found = np.ones(len(held.rows))
        for pair in sharing(snapshot, held):
            found[pair] = self.kept[int(score[pair].sum())]
        return found
