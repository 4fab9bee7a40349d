"""Rules that every placement, and every physics, keeps, as one call in a plug-in's own tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from slurmsched.kernels._jit import load
from slurmsched.model import Assignments, Labels, Ranking, Snapshot, frozen
from slurmsched.model.columns import Floats
from slurmsched.model.gpu_topology import SiteTopology
from slurmsched.placements.baselines import AnyFit
from slurmsched.protocols import Physics, Placement
from slurmsched.resources.allocated import holding
from slurmsched.resources.placeable_gpus import placeable_gpu_counts
from slurmsched.resources.startable_jobs import startable
from slurmsched.testing.builders import mixed_snapshot, shifted, snapshot
from slurmsched.testing.conformance import SHIFTS_S, NonconformingError, checked_run, frozen_or_raise, turned
from slurmsched.topology.gpu_links import machines


def placement_examples() -> tuple[Snapshot, ...]:
    """The snapshots that placements are tried on: nothing, no node, jobs that hold nothing, busy ones with and without
    wiring, with and without shown GPU indices, more jobs than GPUs."""
    alone = [{"job_id": 7, "state": "RUNNING", "start_s": 10.0, "executed_s": 90.0}]
    empty = (snapshot((), "0x0"), snapshot((), "4x8"), snapshot(alone, "0x0", now_s=100.0))
    busy = [busy_snapshot(30, seed) for seed in (1, 2)]
    vague = replace(busy[0], nodes=busy[0].nodes.with_columns(gpu_mask_used=np.zeros(8, np.int64)))
    return (*empty, mixed_snapshot(40, seed=2), *busy, vague, replace(busy[1], topology=SiteTopology()))


def busy_snapshot(waiting: int, seed: int = 0) -> Snapshot:
    """8 nodes of 8 GPUs, wired as DGX-1V and as bridged pairs, about half of them held; that many jobs wait."""
    chance = np.random.default_rng(seed)
    rows, held, free = [], [], {n: list(range(8)) for n in range(1, 9)}
    for job_id in range(1, 13):
        node, gpus = int(chance.integers(1, 9)), int(chance.integers(1, 5))
        taken = [free[node].pop(int(chance.integers(len(free[node])))) for _ in range(min(gpus, len(free[node])))]
        if taken:
            rows.append({"job_id": job_id, "state": "RUNNING", "gpus": len(taken), "cpus": len(taken)})
            mask = sum(1 << g for g in taken)
            held.append({"job_id": job_id, "node": f"n{node}", "gpus": len(taken), "gpu_mask": mask})
    for job_id in range(20, 20 + waiting):
        gpus = int(chance.choice([1, 2, 3, 4, 8, 12, 16]))
        beside = {"cpus": gpus * int(chance.integers(0, 5)), "nodes": int(chance.integers(1, 3)) if gpus > 1 else 1}
        rows.append({"job_id": job_id, "gpus": gpus, "gpu_request": "gpu", "account": f"team{job_id % 3}", **beside})
    wired = machines()
    classes = (wired["dgx-1v"], wired["bridged-pairs"])
    topology = SiteTopology(classes, frozen([0, 0, 0, 0, 1, 1, 1, 1], np.int64))
    return snapshot(rows, "8x8", now_s=100.0, allocations=held, seed=seed, topology=topology)


def check_placement(placement: Placement, snapshots: Sequence[Snapshot] = ()) -> None:
    """Raise NonconformingError unless the placement keeps every rule on the given snapshots and on placement_examples.

    frozen, pure and repeatable as check_policy has them. gangs: a job has all its GPUs or none. order: jobs come in the
    ranking's order, each once, and only such as hold GPUs or may start. capacity: no GPU twice, none that others hold,
    none of a node that takes no jobs. masks: none at all, or each 0 or of as many GPUs as are counted, without overlap.
    stays: a running job holds what it held. row order: the same jobs in other rows get the same GPUs. clock: all times
    shifted by a constant change nothing.
    """
    frozen_or_raise(placement)
    load()  # lest a kernel be compiled in the watched run: the compiler reads a clock
    for given in (*snapshots, *placement_examples()):
        for order in (np.arange(len(given.jobs)), np.arange(len(given.jobs))[::-1]):
            ranking = Ranking(order)
            made = checked_run(partial(_placed_by, placement, ranking), given, Assignments)
            _check_gangs(made, given, ranking)
            _check_masks(made, given)
            _check_capacity(made, given)
            _check_stays(made, given)
            _check_row_order(placement, given, ranking, made)
        check_clock(placement, given)


def _placed_by(placement: Placement, ranking: Ranking, given: Snapshot) -> Assignments:
    """What it places by the ranking, or by one that suits a snapshot of another size."""
    suits = len(ranking.order) == len(given.jobs)
    return placement.place(given, ranking if suits else Ranking(np.arange(len(given.jobs))))


def _check_gangs(made: Assignments, given: Snapshot, ranking: Ranking) -> None:
    jobs, place = given.jobs, np.empty(len(given.jobs), np.int64)
    place[ranking.order] = np.arange(len(place))
    if len(np.unique(made.rows)) != len(made.rows) or (np.diff(place[made.rows]) < 0).any():
        raise NonconformingError("order", "jobs must come once each, in the ranking's order")
    if not (startable(given) | holding(jobs))[made.rows].all():
        raise NonconformingError("order", "a job is placed that neither holds GPUs nor may start")
    for row, first, count in zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True):
        have, asked = int(made.gpus[first : first + count].sum()), int(jobs.gpus[row])
        if startable(given)[row] and have != asked:
            raise NonconformingError("gangs", f"job {jobs.job_id[row]} asks for {asked} GPUs and gets {have}")


def _check_masks(made: Assignments, given: Snapshot) -> None:
    if not len(made.gpu_mask):
        return
    if len(made.gpu_mask) != len(made.gpus):
        raise NonconformingError("masks", f"{len(made.gpu_mask)} masks for {len(made.gpus)} places")
    seen = np.zeros(len(given.nodes), np.int64)
    for node, gpus, mask in zip(made.node.tolist(), made.gpus.tolist(), made.gpu_mask.tolist(), strict=True):
        name = given.nodes.name[node]
        if mask and mask.bit_count() != gpus:
            raise NonconformingError("masks", f"{gpus} GPUs of {name} have mask {mask:#b}")
        if mask & int(seen[node]):
            raise NonconformingError("capacity", f"GPUs {mask & int(seen[node]):#b} of {name} are given twice")
        seen[node] |= mask


def _check_capacity(made: Assignments, given: Snapshot) -> None:
    there, names = placeable_gpu_counts(given), given.nodes.name
    taken = np.bincount(made.node, made.gpus, len(given.nodes)).astype(np.int64)
    for n in np.flatnonzero(taken > there).tolist():
        raise NonconformingError("capacity", f"{taken[n]} GPUs of {names[n]} are given, there are {there[n]}")
    theirs = given.nodes.gpu_mask_used.copy()
    node_of = {name: row for row, name in enumerate(names)}
    for name, mask in zip(given.allocations.node, given.allocations.gpu_mask.tolist(), strict=True):
        theirs[node_of[name]] &= ~mask
    for node, mask in zip(made.node.tolist(), made.gpu_mask.tolist(), strict=False):
        if mask & int(theirs[node]):
            raise NonconformingError("capacity", f"GPUs {mask & int(theirs[node]):#b} of {names[node]} are others'")


def _check_stays(made: Assignments, given: Snapshot) -> None:
    if not len(made.gpu_mask):
        return
    allocations = given.allocations
    had = {
        (int(job), name): int(mask)
        for job, name, mask in zip(allocations.job_id, allocations.node, allocations.gpu_mask, strict=True)
    }
    runs = holding(given.jobs)
    for row, first, count in zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True):
        job = int(given.jobs.job_id[row])
        for k in range(first, first + count) if runs[row] else ():
            name = given.nodes.name[made.node[k]]
            if made.gpu_mask[k] not in (0, had.get((job, name), 0)):
                raise NonconformingError("stays", f"running job {job} is moved on {name}")


def _check_row_order(placement: Placement, given: Snapshot, ranking: Ranking, made: Assignments) -> None:
    other = turned(given)
    back = np.argsort(-np.arange(len(given.jobs)), kind="stable")  # row of each job in the other table
    again = placement.place(other, Ranking(back[ranking.order]))
    if _by_job(made, given) != _by_job(again, other):
        raise NonconformingError("row order", "who gets which GPUs depends on the rows of the jobs table")


def check_clock(placement: Placement, given: Snapshot, shifts_s: Sequence[float] = SHIFTS_S) -> None:
    """Raise NonconformingError if who gets which GPUs depends on what the clock counts from, in `backfill` and
    `reserve` too where the placement has them. shifts_s: what all times are shifted by [s]."""
    ranking = Ranking(np.arange(len(given.jobs)))
    for by_s in shifts_s:
        later = shifted(given, by_s)
        for name in ("place", "backfill", "reserve"):
            if not (make := getattr(placement, name, None)):
                continue
            here, there = make(given, ranking), make(later, ranking)
            if _by_job(here, given) != _by_job(there, later):
                raise NonconformingError("clock", f"{name}: all times {by_s:g} s later, and others get the GPUs")


def _by_job(made: Assignments, given: Snapshot) -> dict[int, list[tuple[int, ...]]]:
    masks = made.gpu_mask if len(made.gpu_mask) else np.zeros(len(made.gpus), np.int64)
    return {
        int(given.jobs.job_id[row]): sorted(
            (int(made.node[k]), int(made.gpus[k]), int(masks[k])) for k in range(first, first + count)
        )
        for row, first, count in zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True)
    }


# Physics.


def check_physics(physics: Physics, models: Sequence[str] = ("",)) -> None:
    """Raise NonconformingError unless the physics keeps every rule on busy clusters of wired nodes, and on idle ones.

    frozen, pure and repeatable as check_policy has them. speed: one a job, finite and above 0. costs: finite times of
    at least 0. row order: a job is as fast in whatever row. models: names that the jobs have in turn.
    """
    frozen_or_raise(physics)
    for name in ("restart_cost_s", "resize_cost_s"):
        if not 0 <= getattr(physics, name) < float("inf"):
            raise NonconformingError("costs", f"{name} must be a time of at least 0")
    load()  # lest a kernel be compiled in the watched run: the compiler reads a clock
    for given in (busy_snapshot(30, 1), busy_snapshot(0, 2)):
        speed = checked_run(partial(_speed, physics, models), given, np.ndarray)
        jobs = given.jobs.job_id[_held_assignments(given).rows].tolist()
        if speed.shape != (len(jobs),) or not (np.isfinite(speed) & (speed > 0)).all():
            raise NonconformingError("speed", f"must be {len(jobs)} finite numbers above 0")
        if dict(zip(jobs, speed.tolist(), strict=True)) != _job_rows_of_physics(physics, models, turned(given)):
            raise NonconformingError("row order", "the speed of a job depends on its row")


def _speed(physics: Physics, models: Sequence[str], given: Snapshot) -> Floats:
    """Of what the jobs hold, with the models as their names."""
    names = Labels.of([models[job % len(models)] for job in given.jobs.job_id.tolist()])
    return physics.speed(replace(given, jobs=given.jobs.with_columns(name=names)), _held_assignments(given))


def _held_assignments(given: Snapshot) -> Assignments:
    """What the jobs hold that run or could, drawn by job id."""
    return AnyFit().place(given, Ranking(np.argsort(given.jobs.job_id)))


def _job_rows_of_physics(physics: Physics, models: Sequence[str], given: Snapshot) -> dict[int, float]:
    jobs = given.jobs.job_id[_held_assignments(given).rows].tolist()
    return dict(zip(jobs, _speed(physics, models, given).tolist(), strict=True))
