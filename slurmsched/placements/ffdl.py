"""FfDL: the whole gang at once, by biased sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Int64s
from slurmsched.model.gpu_masks import bit_counts, lowest_bits
from slurmsched.placements.gang_walk import Gang, GangRequest, OfferedGpus, by_node, place_gangs

Form = Literal["pack", "spread"]


@dataclass(frozen=True, slots=True)
class Ffdl:
    """A gang placed as one: several assignments of all its nodes are drawn, and the best is kept.

    form: "pack" draws full nodes more often and keeps the draw that leaves the fewest free GPUs on its nodes; "spread"
        the other way round.
    samples: draws.
    bias: how much more often, in e-folds from the fullest node to the emptiest.

    Draws are random by snapshot.seed and job id. If no draw fits, the nodes are tried in order.
    Raises ConfigError for another form, no sample or a negative bias.
    Source: Jayaram et al. (FfDL), Middleware '19: gangs, pack in place of spread, biased sampling; number and bias of
    the draws are ours, as none are published.
    """

    form: Form = "pack"
    samples: int = 16
    bias: float = 4.0

    def __post_init__(self) -> None:
        if self.form not in ("pack", "spread"):
            raise ConfigError(f"must be pack or spread, got {self.form!r}", key="placement.form")
        if self.samples < 1:
            raise ConfigError(f"must be at least 1, got {self.samples}", key="placement.samples")
        if not 0 <= self.bias < np.inf:
            raise ConfigError(f"must be a number of at least 0, got {self.bias}", key="placement.bias")

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""

        def sampled(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
            free = bit_counts(offer.free)
            preferred = free if self.form == "pack" else -free
            in_order = np.argsort(preferred, kind="stable")
            if ask.gpus > offer.room.sum():
                return None
            chance = np.random.default_rng((abs(snapshot.seed), ask.job_id))
            drawn = [self._draw(preferred, chance) for _ in range(self.samples)]
            gangs = [by_node(ask, offer, order, lambda _, mask, gpus: lowest_bits(mask, gpus)) for order in drawn]
            whole = [gang for gang in gangs if gang is not None]
            if not whole:
                return by_node(ask, offer, in_order, lambda _, mask, gpus: lowest_bits(mask, gpus))
            return min(whole, key=lambda gang: (int(preferred[gang[0]].sum()), gang[0].tolist()))

        return place_gangs(snapshot, ranking, sampled)

    def _draw(self, preferred: Int64s, chance: np.random.Generator) -> Int64s:
        """Nodes in a random order, those of low `preferred` early more often: Gumbel noise on their weights."""
        span = max(int(np.ptp(preferred)), 1)
        return np.argsort(self.bias * preferred / span - chance.gumbel(size=len(preferred)), kind="stable")
