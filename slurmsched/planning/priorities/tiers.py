"""Tiers: keys that go before any policy, so that it orders jobs only within what the site has promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import NAN, Bools, Floats
from slurmsched.planning.priorities.order import competing_jobs
from slurmsched.tier_spec import Tier

# kind of tier -> the criterion by which `queue` and `explain` show it
CRITERIA = {
    "partition": "partition_factor",
    "qos": "qos_priority",
    "fair_share": "fair_share_band",
    "account": "account_priority",
    "priority": "priority_band",
}
DECIDED_BY = "decided_by"
_FIRST = {
    "joins_shared_gpu": "shared GPU",
    "over_age_cap": "age cap",
    "idle_gpus": "idle GPUs",
    "over_soft_cap": "soft cap",
}


def in_tiers(ranking: Ranking, snapshot: Snapshot, tiers: Sequence[Tier], factors: Floats) -> Ranking:
    """The ranking by these tiers first, the highest value first; within a tier in the policy's own order.

    factors: (N,) Slurm's own priority without the lever and without a nice of the user's own. A job of which the value
    is not known comes behind all others of its tier.
    """
    if not tiers:
        return ranking
    columns = {CRITERIA[tier.kind]: _tier_values(snapshot, tier, factors) for tier in tiers}
    keys = [-np.nan_to_num(values[ranking.order], nan=-np.inf) for values in columns.values()]
    order = ranking.order[np.lexsort(keys[::-1])]  # stable: the policy's order within equal keys
    return replace(ranking, order=order, why={**columns, **ranking.why})


def unread_tiers(snapshot: Snapshot, tiers: Sequence[Tier], managed: Bools) -> tuple[str, ...]:
    """Tiers that order nothing, as Slurm gave no value for any managed job that waits, as text."""
    waits = managed & snapshot.jobs.pending
    if not waits.any():
        return ()
    nothing = np.zeros(len(snapshot.jobs))
    empty = [str(tier) for tier in tiers if tier.kind != "priority"
             and np.isnan(_tier_values(snapshot, tier, nothing)[waits]).all()]  # fmt: skip
    return tuple(f"policy.tiers: Slurm shows no {name} for waiting jobs; this tier has no effect"
                 for name in empty)  # fmt: skip


def with_decider(snapshot: Snapshot, ranking: Ranking) -> Ranking:
    """The ranking with the criterion `decided_by`: what puts each waiting job behind the one before it.

    That is the first tier (or cap) in which the two differ, else "policy"; "" for the first of those that compete.
    """
    kinds = _FIRST | {criterion: kind for kind, criterion in CRITERIA.items()}
    names = sorted((name for name in ranking.why if name in kinds), key=lambda name: name not in _FIRST)
    if not names:
        return ranking
    found = np.full(len(snapshot.jobs), "", "<U10")
    rows = ranking.order[snapshot.jobs.pending[ranking.order]]
    group = competing_jobs(snapshot)[rows]
    rows = rows[np.argsort(group, kind="stable")]
    behind, before = rows[1:], rows[:-1]
    found[behind] = "policy"
    for name in reversed(names):
        values = _comparable(ranking.why[name])
        found[behind[values[behind] != values[before]]] = kinds[name]
    found[rows[np.flatnonzero(np.diff(np.sort(group), prepend=-1))]] = ""
    return replace(ranking, why={**ranking.why, DECIDED_BY: found})


def tier_between(other: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The first tier in which two jobs differ, with both values, "" if none. other, own: criteria of each by name."""
    for kind, name in ((kind, name) for name in other for kind, known in CRITERIA.items() if known == name):
        if other[name] != own.get(name) and not (isnan(other[name]) and isnan(own.get(name, NAN))):
            return f"tier {kind}: {name} {other[name]:g} against {own.get(name, NAN):g}"
    return ""


def decision(why: Mapping[str, Any]) -> str:
    """What puts a job behind the one before it, as text; "" where no tier is set or nobody is before it."""
    by = why.get(DECIDED_BY, "")
    if not by:
        return ""
    known = {"policy": "the policy", "age cap": "the age cap", "soft cap": "a soft cap"}
    return f"{known.get(by, f'tier {by}')} puts it behind the job before it"


def _comparable(values: NDArray[Any]) -> NDArray[Any]:
    return np.nan_to_num(values, nan=-1.0) if values.dtype.kind == "f" else values


def _tier_values(snapshot: Snapshot, tier: Tier, factors: Floats) -> Floats:
    """What a tier orders by, higher first; NaN = not known. (N,)."""
    jobs = snapshot.jobs
    if tier.kind == "partition":
        return _partition_factor(snapshot)
    if tier.kind == "qos":
        return jobs.qos_priority
    if tier.kind == "account":
        return jobs.association_priority
    if tier.kind == "fair_share":
        return np.clip(np.ceil(jobs.fair_share * tier.number - 1e-9), 1, tier.number)
    return np.floor(np.asarray(factors, np.float64) / tier.number)


def _partition_factor(snapshot: Snapshot) -> Floats:
    """The highest PriorityJobFactor of the partitions that each job names. (N,)."""
    of = dict(zip(snapshot.partitions.name, snapshot.partitions.job_factor.tolist(), strict=True))

    def highest(listed: str) -> float:
        return max((of[name] for name in listed.split(",") if name in of), default=np.nan)

    return snapshot.jobs.partition.map(highest, np.float64)
