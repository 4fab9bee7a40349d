"""Beside other jobs, with the batch sizes that together make the most of the shared GPUs: IADeep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from slurmsched.allocation.job_packing import least_interference
from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.estimators.throughput_table import job_kind, throughput, throughput_table
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.model.ordering import arrival_s, ordered
from slurmsched.model.policy_info import ANY_PARTITION, NO_SHARED_GPUS
from slurmsched.policies.co_scheml import CoScheMl

MOST_CHOICES = 256  # of the batch sizes of a group; with more only the sizes that its jobs have now


class BatchChoice(NamedTuple):
    """Batch sizes of a group, 0 = the job has none, and progress of each job over that alone with its best batch."""

    batches: tuple[int, ...]
    progress: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class IaDeep(CoScheMl):
    """As co-scheml, but jobs with the hint `batches` may have another batch size beside other jobs.

    For each group the batch sizes count with which its jobs make the most progress together: samples in a second, over
    those alone with the best batch that a job may have.
    Parameters are those of co-scheml.
    Source: Chen et al. (IADeep), SC '23: batch sizes and assignment of jobs to GPUs are chosen together. The full paper
    was not at hand: all sizes of a table are compared, where the paper searches by Bayesian optimisation.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.SERVICE,
        "Chen et al.: IADeep, SC 2023",
        left_out=(
            "The search for batch sizes while jobs run: tables of pairs by batch size are compared. A larger batch "
            "counts by its samples alone, whatever the job learns from them. Nothing changes the batch of a job: it is "
            "only told.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.PROFILE,),
        on_slurm=(NO_SHARED_GPUS,),
        criteria={
            "submit_s": "submitted {at}",
            "beside": "on GPUs of job {0+}",
            "made": "makes {} of its progress there",
            "batch": "with a batch of {}",
        },
    )

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, order = snapshot.jobs, ordered(snapshot.jobs)
        hints = cache(lambda row: parse_hints(jobs.comment[row]))
        host = least_interference(snapshot, order, lambda rows: self._lost(snapshot, rows, hints), self.most)
        groups, kept, batch = dict[int, list[int]](), np.full(len(jobs), inf), np.full(len(jobs), inf)
        for row in np.flatnonzero(host >= 0).tolist():
            groups.setdefault(int(host[row]), [jobs.row_of(int(host[row]))]).append(row)
        for rows in groups.values():
            chosen = self._chosen(snapshot, rows, hints)
            kept[rows] = np.round(chosen.progress, 2)
            batch[rows] = [each or inf for each in chosen.batches]
        why = {"submit_s": arrival_s(jobs), "beside": host, "made": kept, "batch": batch}
        return Ranking(order, why=why, changes=JobChanges(beside=host))

    def _lost(self, snapshot: Snapshot, rows: Sequence[int], hints_of: Callable[[int], Hints]) -> float:
        """Progress that jobs of these rows lose on the same GPUs; infinity if they may not share."""
        alone = CoScheMl._lost(self, snapshot, rows, hints_of)
        if alone == inf or len(rows) < 2:
            return alone
        return len(rows) - sum(self._chosen(snapshot, rows, hints_of).progress)

    def _chosen(self, snapshot: Snapshot, rows: Sequence[int], hints_of: Callable[[int], Hints]) -> BatchChoice:
        """The batch sizes of a group, in the order of its rows."""
        jobs = [(each.model or "", each.batch or 0, each.batches or ()) for each in map(hints_of, rows)]
        place = sorted(range(len(jobs)), key=lambda at: jobs[at])
        found = best_batches(self._speeds, tuple(jobs[at] for at in place), int(snapshot.jobs.gpus[rows[0]]))
        back = np.argsort(place).tolist()
        return BatchChoice(tuple(found.batches[at] for at in back), tuple(found.progress[at] for at in back))


Job = tuple[str, int, tuple[int, ...]]  # model, batch that it has now, batches that it may have


@lru_cache(maxsize=65_536)
def best_batches(speeds: GroupSpeeds, jobs: tuple[Job, ...], gpus: int) -> BatchChoice:
    """The batch sizes with which these jobs make the most progress in sum; of equals the first.

    Sizes that the table of pairs lacks are left out, but for those that jobs have now.
    """
    choices = [[now, *(each for each in may if each != now and _samples(speeds, model, each, gpus) > 0)]
               if _samples(speeds, model, now, gpus) > 0 else [now] for model, now, may in jobs]  # fmt: skip
    if np.prod([len(each) for each in choices]) > MOST_CHOICES:
        choices = [each[:1] for each in choices]
    made = [progress_with(speeds, jobs, batches, gpus) for batches in product(*choices)]
    return max(made, key=lambda choice: sum(choice.progress))


def progress_with(speeds: GroupSpeeds, jobs: tuple[Job, ...], batches: tuple[int, ...], gpus: int) -> BatchChoice:
    """What these jobs make together with these batch sizes."""
    kinds = [job_kind(model, batch or None) for (model, _, _), batch in zip(jobs, batches, strict=True)]
    alone = [_gain(speeds, job, batch, gpus) for job, batch in zip(jobs, batches, strict=True)]
    kept = speeds.kept(kinds, gpus).kept
    return BatchChoice(batches, tuple(one * share for one, share in zip(alone, kept, strict=True)))


def _gain(speeds: GroupSpeeds, job: Job, batch: int, gpus: int) -> float:
    """Samples in a second alone with this batch, over those with the best one; 1 where they are not known."""
    model, now, may = job
    best = max(_samples(speeds, model, each, gpus) for each in (now, *may))
    return _samples(speeds, model, batch, gpus) / best if _samples(speeds, model, now, gpus) > 0 else 1.0


def _samples(speeds: GroupSpeeds, model: str, batch: int, gpus: int) -> float:
    """Samples in a second alone by the table of pairs, 0 where it has no such job."""
    kind = job_kind(model, batch or None)
    if not speeds.pairs or not batch or not speeds.knows(kind, gpus):
        return 0.0
    return throughput(throughput_table(speeds.pairs).get(speeds.type, {}), kind, gpus) * batch
