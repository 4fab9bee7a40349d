"""The weights of Slurm's own priority (PriorityWeight* of slurm.conf), and which of them an order by policy keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmsched.model.slurm_text import real_number
from slurmsched.tier_spec import Tier

PREFIX, TRES = "PriorityWeight", "PriorityWeightTRES"
MOST_WEIGHT = 2**32  # no weight of Slurm reaches it


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of slurm.conf. share: of the sum of all, 0 to 1."""

    name: str
    points: float
    share: float

    def __str__(self) -> str:
        return f"{self.name}={self.points:g} ({self.share:.0%} of all weights)"


def slurm_weights(settings: Mapping[str, str]) -> tuple[Weight, ...]:
    """The weights above 0 of slurm.conf, the largest first. Those of PriorityWeightTRES count together."""
    points = {name: _points(text) for name, text in settings.items() if name.startswith(PREFIX) and name != TRES}
    parts = settings.get(TRES, "").split(",")
    points[TRES] = sum(_points(part.partition("=")[2]) for part in parts)
    whole = sum(points.values())
    made = (Weight(name, value, value / whole) for name, value in points.items() if value > 0)
    return tuple(sorted(made, key=lambda weight: (-weight.points, weight.name)))


def _points(text: str) -> float:
    value = real_number(text)
    return value if 0 < value < MOST_WEIGHT else 0.0


# The weight that each tier keeps.
KEPT_BY = {
    "partition": "PriorityWeightPartition",
    "qos": "PriorityWeightQOS",
    "fair_share": "PriorityWeightFairShare",
    "account": "PriorityWeightAssoc",
}
BANDS = 4  # default number of bands of fair share


def lost_weights(settings: Mapping[str, str], tiers: Sequence[Tier]) -> tuple[Weight, ...]:
    """The weights that stop counting once a policy orders the jobs within these tiers, the largest first.

    priority:W keeps them all, to within W points.
    """
    kinds = {tier.kind for tier in tiers}
    if "priority" in kinds:
        return ()
    kept = {KEPT_BY[kind] for kind in kinds}
    return tuple(weight for weight in slurm_weights(settings) if weight.name not in kept)


def proposed_tiers(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The tiers that keep what the site's weights promise to its users, that of the largest weight first.

    Age, job size and TRES are not promises to users. They order jobs, which the policy now does.
    """
    kinds = {name: kind for kind, name in KEPT_BY.items()}
    found = (kinds[weight.name] for weight in slurm_weights(settings) if weight.name in kinds)
    return tuple(f"{kind}:{BANDS}" if kind == "fair_share" else kind for kind in found)


def weight_notes(settings: Mapping[str, str], tiers: Sequence[Tier]) -> tuple[str, ...]:
    """A line for each weight that stops counting, with the tier that would keep it."""
    keeps = {name: f"{kind}:{BANDS}" if kind == "fair_share" else kind for kind, name in KEPT_BY.items()}
    return tuple(
        f"{weight} no longer counts: the policy's order replaces it"
        + (f'; "{keeps[weight.name]}" in policy.tiers keeps it' if weight.name in keeps else "")
        for weight in lost_weights(settings, tiers)
    )
