"""Gangs on GPUs of several types at once: to a placement each type's part is a job of its own, and all or none stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Allocations, Assignments, Jobs, Labels, Ranking, Snapshot
from slurmsched.model.columns import Int64s, sealed
from slurmsched.model.wants import types_of
from slurmsched.planning.wants import held_types, nodes_for, stopped
from slurmsched.resources.held import node_rows

Place = Callable[[Snapshot, Ranking], Assignments]
TRIES = 8  # gangs given up one by one, the most urgent first; then all at once that are torn


def placed_whole(place: Place, snapshot: Snapshot, ranking: Ranking) -> Assignments:
    """What `place` says of a snapshot that is as wanted, every gang whole though it be on several GPU types.

    A gang of which only some parts find room has none, and the others are placed anew without it: those before it in
    the order have all they want by then, so that it could not start anyway. Raises ConfigError for a placement that
    does not heed eligible_s: it would be asked for ever.
    """
    wanted = None if ranking.wants is None else ranking.wants.gpus_by_type
    if wanted is None or wanted.names in ((), ("",)):
        return place(snapshot, ranking)
    split, tries, out = Parts.of(snapshot, ranking, wanted), 0, set[int]()
    target = place(split.snapshot, split.ranking)
    while len(torn := split.torn(target)):
        if not out.isdisjoint(torn.tolist()):
            raise ConfigError("places jobs before their eligible_s", key="placement.name")
        gone = torn[:1] if tries < TRIES else torn
        split, tries, out = split.without(gone), tries + 1, out | set(gone.tolist())
        target = place(split.snapshot, split.ranking)
    return split.joined(target)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A snapshot in which each part of such a gang is a job.

    snapshot: the first part of a gang stands in its row, the others behind all jobs. ranking: the parts of a gang one
    after the other. whole: (M,) row of the gang, or job, that each row belongs to.
    """

    snapshot: Snapshot
    ranking: Ranking
    whole: Int64s

    @classmethod
    def of(cls, snapshot: Snapshot, ranking: Ranking, gpus_by_type: Labels) -> Parts:
        """The parts of the gangs for which the policy wants GPUs of several types. gpus_by_type: (N,), see Wants."""
        jobs = snapshot.jobs
        gangs = np.flatnonzero(~gpus_by_type.isin([""])).tolist()
        shares = [(row, name, gpus) for row in gangs for name, gpus in sorted(types_of(gpus_by_type[row]).items())]
        gang, further = np.array([row for row, _, _ in shares], np.int64), np.zeros(len(shares), np.bool_)
        further[1:] = gang[1:] == gang[:-1]
        whole = np.append(np.arange(len(jobs)), gang[further])
        rows = np.where(further, len(jobs) - 1 + np.cumsum(further), gang).tolist()
        split = _split(snapshot, whole, {row: (name, gpus) for row, (_, name, gpus) in zip(rows, shares, strict=True)})
        part_of = {(int(jobs.job_id[row]), name): int(split.job_id[at]) for at, (row, name, _) in
                   zip(rows, shares, strict=True)}  # fmt: skip
        place = np.empty(len(jobs), np.int64)
        place[ranking.order] = np.arange(len(jobs))
        order = np.lexsort((np.arange(len(whole)), place[whole]))
        return cls(replace(snapshot, jobs=split, allocations=_dealt(snapshot, part_of)), Ranking(order), whole)

    def torn(self, target: Assignments) -> Int64s:
        """Rows of the gangs of which some parts have room and some have not, most urgent first."""
        parts = np.bincount(self.whole)
        placed = np.bincount(self.whole[target.rows], minlength=len(parts))
        order = self.ranking.order[self.ranking.order < len(parts)]
        return order[((placed > 0) & (placed < parts))[order]]

    def without(self, gangs: Int64s) -> Parts:
        """The same, but these gangs hold nothing and do not start."""
        out, jobs = np.isin(self.whole, gangs), self.snapshot.jobs
        later = jobs.with_columns(eligible_s=np.where(out, np.inf, jobs.eligible_s))
        return replace(self, snapshot=stopped(replace(self.snapshot, jobs=later), out))

    def joined(self, target: Assignments) -> Assignments:
        """The target in rows of the jobs before the split, the nodes of each ascending and named once."""
        rows, begin, rank = np.unique(self.whole[target.rows], return_index=True, return_inverse=True)
        by_order, place = np.argsort(begin), np.empty(len(rows), np.int64)
        place[by_order] = np.arange(len(rows))
        width = len(self.snapshot.nodes) + 1
        key = np.repeat(place[rank.reshape(-1)], target.count) * width + target.node
        order = np.argsort(key, kind="stable")
        once, first = np.unique(key[order], return_index=True)
        job, node = np.divmod(once, width)
        count = np.bincount(job, minlength=len(rows)).astype(np.int64)
        gpus = _over(np.add, target.gpus[order], first)
        mask = _over(np.bitwise_or, target.gpu_mask[order], first) if len(target.gpu_mask) else target.gpu_mask
        columns = (rows[by_order], np.cumsum(count) - count, count, node, gpus, mask)
        return Assignments(*(sealed(np.array(column, np.int64)) for column in columns))


def _over(function: np.ufunc, values: Int64s, first: Int64s) -> Int64s:
    """The function over each stretch of values. first: (S,) where they begin. (S,)."""
    return np.asarray(function.reduceat(values, first)) if len(first) else values


def _split(snapshot: Snapshot, whole: Int64s, wanted: dict[int, tuple[str, int]]) -> Jobs:
    """The jobs, one for each part. whole: see Parts. wanted: type and GPUs by row of a part."""
    jobs = snapshot.jobs.take(whole)
    gpus, request = jobs.gpus.astype(np.int64), list(jobs.gpu_request)
    for row, (name, count) in wanted.items():
        gpus[row], request[row] = count, f"gpu:{name}:{count}"
    job_id, extra = jobs.job_id.copy(), len(whole) - len(snapshot.jobs)
    job_id[len(whole) - extra :] = job_id.max(initial=0) + 1 + np.arange(extra)
    share = gpus / np.maximum(jobs.gpus, 1)
    columns: dict[str, Any] = {
        "job_id": job_id, "gpus": gpus, "gpu_request": request, "nodes": nodes_for(replace(snapshot, jobs=jobs), gpus),
        "cpus": np.rint(jobs.cpus * share), "memory_mib": jobs.memory_mib * share,
    }  # fmt: skip
    return jobs.with_columns(**columns)


def _dealt(snapshot: Snapshot, part_of: dict[tuple[int, str], int]) -> Allocations:
    """The allocations, those of a gang as of its parts. part_of: job id of a part by that of its gang and its type."""
    held = snapshot.allocations
    pairs = zip(held.job_id.tolist(), held_types(snapshot), strict=True)
    job_id = np.array([part_of.get(pair, pair[0]) for pair in pairs], np.int64)
    return held.with_columns(job_id=job_id).take(np.lexsort((node_rows(snapshot), job_id)))
