"""Which weights of Slurm's own priority an order by policy keeps, and which it no longer counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurmsched.model.slurm_weights import Weight, slurm_weights
from slurmsched.tier_spec import Tier

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
