"""The order of waiting jobs, and what changes it after the policy.

These are tiers, own nice, the age cap, soft caps, and GPUs that jobs of the same user do not use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import IdleGpusConfig
from slurmsched.errors import UnreadableError
from slurmsched.model import Jobs, Ranking, Snapshot
from slurmsched.model.columns import NAN, Bools, Floats, Int64s
from slurmsched.model.gres import parse_gres
from slurmsched.model.hints import parse_hints
from slurmsched.planning.job_scope import follows_array
from slurmsched.planning.priorities.priority_fields import PriorityField
from slurmsched.tier_spec import OWNERS, Tier

if TYPE_CHECKING:
    from slurmsched.config import SoftCaps


def competing_jobs(snapshot: Snapshot) -> Int64s:
    """A number for each job, equal for jobs whose partitions share nodes, directly or through others. (N,) int64."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for listed in (*snapshot.nodes.partitions.names, *snapshot.jobs.partition.names):
        first, *others = listed.split(",")
        for other in others:
            root[find(other)] = find(first)
    numbers: dict[str, int] = {}
    return snapshot.jobs.partition.map(
        lambda listed: numbers.setdefault(find(listed.split(",")[0]), len(numbers)), np.int64
    )


# The one order of waiting jobs.


def queue_order(snapshot: Snapshot, ranking: Ranking | None) -> Int64s:
    """Rows of all pending jobs, first to start first. (K,) int64.

    Without a ranking Slurm's own order: partition tier, priority, submission, id.
    """
    order = _by_priority(snapshot) if ranking is None else ranking.order
    found: Int64s = order[snapshot.jobs.pending[order]]
    return found


def _by_priority(snapshot: Snapshot) -> Int64s:
    jobs, partitions = snapshot.jobs, snapshot.partitions
    tiers = dict(zip(partitions.name, partitions.priority_tier.tolist(), strict=True))
    tier = jobs.partition.map(lambda listed: max(tiers.get(name, 1) for name in listed.split(",")), np.int64)
    return np.lexsort((jobs.job_id, jobs.submit_s, -jobs.priority, -tier)).astype(np.int64)


def with_own_nice(snapshot: Snapshot, ranking: Ranking, ours: Bools, wanted: Int64s, lever: PriorityField) -> Ranking:
    """The ranking as Slurm will have it: a nice of the user's own counts too, as does an operator's site factor.

    ours: (N,) bool, managed jobs. wanted: (N,) int64, their lever values. A managed job changes places only with such
    jobs that compete with it, and only where somebody moved one of them.
    """
    jobs = snapshot.jobs
    waits = (ours | (follows_array(jobs) & ours[_leader_rows(snapshot)])) & jobs.pending
    moved = waits & (lever.others(jobs) != 0)
    if not moved.any():
        return ranking
    priority = np.maximum(lever.factors(jobs) + _boost(snapshot, wanted, lever) - lever.others(jobs), 1)
    group, order = competing_jobs(snapshot), ranking.order.copy()
    for number in np.unique(group[moved]):
        places = np.flatnonzero((waits & (group == number))[order])
        rows = order[places]
        order[places] = rows[np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -priority[rows]))]
    return replace(ranking, order=order)


def behind_by_own_nice(snapshot: Snapshot, lever: PriorityField) -> Bools:
    """Pending jobs that a nice of their own puts behind a job they compete with, waiting or running. (N,) bool."""
    jobs, own = snapshot.jobs, np.maximum(lever.others(snapshot.jobs), 0)
    if not own.any():
        return np.zeros(len(jobs), np.bool_)
    group, here = competing_jobs(snapshot), ~jobs.finished
    least = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group[here], own[here])
    found: Bools = jobs.pending & (own > least[group])
    return found


def _boost(snapshot: Snapshot, wanted: Int64s, lever: PriorityField) -> Int64s:
    """What these lever values add to each priority. (N,) int64."""
    return snapshot.jobs.base_nice - wanted if lever.name == "nice" else wanted


def _leader_rows(snapshot: Snapshot) -> Int64s:
    """Row of the array of each task, any row for a job of none. (N,) int64."""
    jobs = snapshot.jobs
    return np.minimum(np.searchsorted(jobs.job_id, jobs.array_job_id), max(len(jobs) - 1, 0))


# The hard age cap.


def aged_first(ranking: Ranking, snapshot: Snapshot, managed: Bools, age_cap_s: float) -> Ranking:
    """The ranking with the managed jobs that waited longer than the cap before all others, the longest first.

    managed: (N,) bool. age_cap_s: 0 = no cap. Jobs of other partitions keep their order: they are spaced apart.
    """
    if not age_cap_s:
        return ranking
    over = managed & (starvation_s(snapshot) > age_cap_s)
    if not over.any():
        return ranking
    jobs, rows = snapshot.jobs, np.flatnonzero(over)
    first = rows[np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -starvation_s(snapshot)[rows]))]
    order = np.concatenate([first, ranking.order[~over[ranking.order]]])
    return replace(ranking, order=order, why={**ranking.why, "over_age_cap": over})


def starvation_s(snapshot: Snapshot) -> Floats:
    """How long each pending job has waited since it last ran and while it could have started [s]; 0 for others. (N,).

    Time in which a dependency or a begin time held it back is no starvation.
    """
    jobs = snapshot.jobs
    since_eligible_s = np.nan_to_num(snapshot.now_s - jobs.eligible_s, nan=np.inf)
    waited: Floats = np.maximum(np.fmin(jobs.waiting_s, since_eligible_s), 0.0)
    return np.where(jobs.pending, waited, 0.0)


# Soft caps: jobs whose user, account or QOS exceeds a number of GPUs go last. No job is held.


Key = tuple[str, str]  # "user:alice", "gpu" or "gpu:h100"


def capped_last(ranking: Ranking, snapshot: Snapshot, managed: Bools, caps: SoftCaps) -> Ranking:
    """The ranking with the managed waiting jobs beyond a cap behind all others, in their own order. managed: (N,)."""
    if not caps.any:
        return ranking
    beyond = managed & beyond_caps(ranking, snapshot, caps)
    last = beyond[ranking.order]
    order = np.concatenate([ranking.order[~last], ranking.order[last]])
    return replace(ranking, order=order, why={"over_soft_cap": beyond, **ranking.why})


def beyond_caps(ranking: Ranking, snapshot: Snapshot, caps: SoftCaps) -> Bools:
    """Waiting jobs that would take an owner above a cap. Running jobs count first, then waiting ones in their order.
    (N,).

    A job beyond a cap uses none of it, so that a smaller one behind it may still be within. An array counts with the
    GPUs of all its tasks, and is beyond where its first task is.
    """
    jobs, used = snapshot.jobs, _held_by_owner(snapshot, caps)
    found = np.zeros(len(jobs), np.bool_)
    for row in ranking.order[jobs.pending[ranking.order]].tolist():
        asked = list(_asked_by_cap(snapshot, row, caps))
        found[row] = any(used[key] + gpus > cap for key, gpus, cap in asked)
        if not found[row]:
            used.update({key: gpus * max(int(jobs.array_tasks[row]), 1) for key, gpus, _ in asked})
    return found


def _asked_by_cap(snapshot: Snapshot, row: int, caps: SoftCaps) -> Iterator[tuple[Key, int, int]]:
    """Each cap that a waiting job counts against: whose, how many GPUs it asks for, and the cap."""
    jobs = snapshot.jobs
    by_kind = _gpus_of(jobs.gpu_request[row], int(jobs.gpus[row]))
    for owner in _owners(snapshot, row):
        for kind, cap in _caps_of(owner, caps).items():
            if gpus := by_kind.get(kind, 0):
                yield (owner, kind), gpus, cap


def _held_by_owner(snapshot: Snapshot, caps: SoftCaps) -> Counter[Key]:
    """GPUs that started jobs hold, by owner and kind, where there is a cap."""
    jobs, used = snapshot.jobs, Counter[Key]()
    held: dict[int, Counter[str]] = {}
    table = snapshot.allocations
    for job_id, kind, gpus in zip(table.job_id.tolist(), table.gpu_type, table.gpus.tolist(), strict=True):
        held.setdefault(job_id, Counter()).update({f"gpu:{kind}": gpus} if kind else {})
    for row in np.flatnonzero(~jobs.pending & ~jobs.finished & (jobs.gpus > 0)).tolist():
        by_kind = {"gpu": int(jobs.gpus[row]), **held.get(int(jobs.job_id[row]), {})}
        for owner in _owners(snapshot, row):
            used.update({(owner, kind): by_kind.get(kind, 0) for kind in _caps_of(owner, caps)})
    return used


def _owners(snapshot: Snapshot, row: int) -> list[str]:
    return [f"{owner}:{name}" for owner in OWNERS if (name := getattr(snapshot.jobs, owner)[row])]


def _caps_of(owner: str, caps: SoftCaps) -> Mapping[str, int]:
    """The caps of one owner by kind of GPU: its own where it has some, else those of all of its sort."""
    own = caps.named.get(owner)
    found: Mapping[str, int] = getattr(caps, owner.partition(":")[0]) if own is None else own
    return found


def _gpus_of(request: str, gpus: int) -> dict[str, int]:
    """GPUs that a waiting job asks for: all, and those of each type that it names."""
    found = {"gpu": gpus}
    try:
        entries = parse_gres(request)
    except UnreadableError:
        return found
    return found | {f"gpu:{entry.type}": entry.count for entry in entries if entry.kind == "gpu" and entry.type}


# Idle GPUs: running jobs that do not use theirs, and how they change the place of their users' waiting jobs.
#
# The AdminComment of an idle job may say so (admin_comments). The waiting jobs of its user may go behind those of
# others. The idle job itself may go behind all, and preemption may then take its GPUs (idle.requeue).
# Source: slurmsched.


NO_IDLE = IdleGpusConfig()


def idle_jobs(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs whose GPUs compute less than idle.below_pct of the time, as measured. (N,) bool."""
    return _judged_jobs(jobs, idle) & (jobs.gpu_use < idle.below_pct / 100)  # NaN: not measured


def some_idle(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs with some idle GPUs, however much they use the others. (N,) bool."""
    return _judged_jobs(jobs, idle) & (jobs.idle_gpus > 0)


def _judged_jobs(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs that have run long enough and that no exception of the site excludes. (N,) bool."""
    judged = jobs.running & (jobs.gpus > 0) & (jobs.run_s >= idle.after_s)
    judged &= jobs.batch | idle.interactive
    spared = {"user": idle.except_users, "account": idle.except_accounts, "partition": idle.except_partitions,
              "qos": idle.except_qos}  # fmt: skip
    for column, names in spared.items():
        judged &= ~getattr(jobs, column).isin(names) if names else True
    return judged


def idle_users_last(ranking: Ranking, snapshot: Snapshot, managed: Bools, idle: IdleGpusConfig) -> Ranking:
    """The ranking with jobs of users who have an idle job at its end. managed: (N,) bool.

    - First come all other jobs.
    - Then come the managed waiting jobs of these users (idle.last).
    - Then come the idle jobs themselves (idle.requeue), so that preemption takes their GPUs first. These are only batch
      jobs that asked for a signal before they are stopped.
    """
    jobs, none = snapshot.jobs, np.zeros(len(snapshot.jobs), np.bool_)
    if not (idle.last or idle.requeue):
        return ranking
    judged = idle_jobs(jobs, idle)
    users = {jobs.user[row] for row in np.flatnonzero(judged).tolist()}
    behind = managed & jobs.pending & jobs.user.isin(sorted(users)) if idle.last else none
    asks = jobs.comment.map(lambda comment: parse_hints(comment).ckpt is not None, np.bool_)
    leaves = judged & jobs.batch & asks if idle.requeue else none
    if not (behind | leaves).any():
        return ranking
    level = np.where(leaves, 2, behind.astype(np.int64))[ranking.order]
    order = ranking.order[np.argsort(level, kind="stable")]
    return replace(ranking, order=order, why={"idle_gpus": behind | leaves, **ranking.why})


# Tiers: keys that go before any policy, so that it orders jobs only within what the site has promised.


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
