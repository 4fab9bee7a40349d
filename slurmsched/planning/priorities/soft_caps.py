"""Soft caps: jobs whose user, account or QOS exceeds a number of GPUs go last. No job is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.gres import parse_gres
from slurmsched.tier_spec import OWNERS

if TYPE_CHECKING:
    from slurmsched.config import SoftCaps

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
