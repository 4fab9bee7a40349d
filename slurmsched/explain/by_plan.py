"""When a job starts if each job before it takes its turn and every job runs to its time limit. Source: ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import nan

import numpy as np

from slurmsched.explain.facts import Facts
from slurmsched.explain.floor import Floor, Share
from slurmsched.explain.obstacles import Asks, Kind, Obstacle, own_reservations, spreads, whole
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.eligibility import eligibility, limit_classes
from slurmsched.resources.job_request import request_of

MOST = 2_000  # jobs before it, tasks of arrays counted one by one


def by_plan(snapshot: Snapshot, before: Sequence[int], row: int, facts: Facts) -> tuple[float, float]:
    """The start [Unix s] were it next, and after all of `before` (rows in their order); NaN where it cannot be told.

    Only GPUs are counted. Backfill and jobs that end early make it earlier, jobs that are new before it later.
    """
    jobs = snapshot.jobs
    tasks = np.maximum(jobs.array_tasks[list(before)], 1)
    if not jobs.gpus[row] or tasks.sum() > MOST:
        return nan, nan
    nodes = Nodes.of(snapshot, facts)
    own = _share(snapshot, row, nodes.own(row), whole(snapshot, row, facts), spreads(snapshot, row, facts))
    shares = {one: nodes.share(one) for one in dict.fromkeys(before)}
    queue = [shares[one] for one in np.repeat(list(before), tasks).astype(int).tolist()]
    return _turn(Floor.of(snapshot, facts), (), own), _turn(Floor.of(snapshot, facts), _rivals(queue, own), own)


def _rivals(before: Sequence[Share], own: Share) -> list[Share]:
    """Those that may have a node that it may have, or one of another rival after them: others it passes by backfill."""
    found, contested = list[Share](), own.may
    for one in reversed(before):
        if (one.may & contested).any():
            found.append(one)
            contested = contested | one.may
    return found[::-1]


def _share(snapshot: Snapshot, row: int, may: Bools, alone: bool, spread: bool) -> Share:
    jobs, many = snapshot.jobs, max(1, int(snapshot.jobs.nodes[row]))
    gpus = int(jobs.gpus[row])
    return Share(may, gpus, -(-gpus // many), many, alone, spread, float(jobs.time_limit_s[row]),
                 own_reservations(snapshot, row))  # fmt: skip


def _turn(floor: Floor, before: Sequence[Share], own: Share) -> float:
    for one in before:
        if not one.each or not floor.fits(one, one.may, floor.size):
            continue  # it holds no GPUs, or cannot start now: Slurm passes it by
        if not floor.wait(one):
            return nan
        floor.take(one)
    return floor.now_s if floor.wait(own) else nan


@dataclass(frozen=True, slots=True)
class Nodes:
    """Which nodes jobs may have, whoever is there now. seen: the snapshot with the reservations of the facts. classes:
    see limit_classes. known: nodes large enough or not, by what jobs say of nodes: a queue has few kinds of these."""

    snapshot: Snapshot
    facts: Facts
    seen: Snapshot
    classes: list[Int64s]
    known: dict[tuple[object, ...], Bools] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, facts: Facts) -> Nodes:
        return cls(snapshot, facts, replace(snapshot, reservations=facts.reservations), limit_classes(snapshot))

    def own(self, row: int) -> Bools:
        """Those that only GPUs keep the job off that asks, if anything. (N,) bool."""
        asks = Asks.of(self.snapshot, row, replace(self.facts, reservations=Facts().reservations))
        used = self.snapshot.nodes.gpus_used
        return np.array([_gpus_alone(asks.obstacle(at), int(used[at])) for at in range(len(used))], dtype=np.bool_)

    def ever(self, row: int) -> Bools:
        """Those that could serve the job that asks, whatever their state and whoever is there now. (N,) bool."""
        return Asks.of(self.snapshot, row, self.facts).found.ever

    def could(self, row: int) -> Bools:
        """As `ever`, of another job, whose record is not at hand. (N,) bool.

        One that is too large for any node may be on several: `-n` and `--gpus` alone show one.
        """
        nodes, request, may = self.snapshot.nodes, request_of(self.seen, row), self._any_size(row)
        large = (nodes.gpus >= request.gpus) & (nodes.cpus >= request.cpus) & (nodes.memory_mib >= request.memory_mib)
        return may & large if (may & large).any() else may

    def _any_size(self, row: int) -> Bools:
        jobs = self.snapshot.jobs
        key = (jobs.partition[row], jobs.gpu_request[row], jobs.features_asked[row], jobs.nodes_asked[row],
               jobs.nodes_excluded[row], jobs.reservation[row], int(jobs.nodes[row]),
               *(int(one[row]) for one in self.classes))  # fmt: skip
        if key not in self.known:
            self.known[key] = eligibility(self.seen, request_of(self.seen, row), sized=False).ever
        return self.known[key]

    def share(self, row: int) -> Share:
        """Of a job before it."""
        listed = self.snapshot.jobs.partition[row].split(",")
        partitions = {name: fields for name, fields in self.facts.partitions.items() if name in listed}
        alone = whole(self.snapshot, row, Facts(partitions=partitions))
        jobs, could, wide = self.snapshot.jobs, self.could(row), spreads(self.snapshot, row, Facts())
        wide = wide or (jobs.nodes[row] <= 1 and not (could & (self.snapshot.nodes.gpus >= jobs.gpus[row])).any())
        return _share(self.snapshot, row, could, alone, bool(wide))


def _gpus_alone(one: Obstacle | None, used: int) -> bool:
    return one is None or one.kind is Kind.GPUS or (one.kind is Kind.WHOLE and used > 0)
