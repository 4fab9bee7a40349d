"""Walks over a ranking and EASY backfill, on a fixed set of small clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.kernels import ranking_walks
from slurmsched.kernels.gang_series import GangSeries
from slurmsched.placements import baselines, gang_walk
from slurmsched.placements.baselines import BestFit, Scattered
from slurmsched.resources.placeable_gpus import PlaceableGpus
from tests.property.test_rings import crowded
from tests.reference import backfill as naive_backfill
from tests.reference import gangs, pile
from tests.reference import walk as naive_walk

SIZE = 4  # GPUs of a node


def test_walk__agrees_with_reference() -> None:
    """The same jobs hold the same GPUs of the same nodes, whether they run or wait."""
    chance = np.random.default_rng(1)
    for _ in range(200):
        width, jobs = chance.integers(1, 5), chance.integers(1, 9)
        capacity = chance.integers(1, SIZE + 1, width)
        idle, ranked = capacity.copy(), []
        for _ in range(jobs):
            held: dict[int, int] = {}
            for node in np.flatnonzero(chance.random(width) < 0.3).tolist() if chance.random() < 0.6 else []:
                if idle[node] > 0:
                    held[node] = int(chance.integers(1, idle[node] + 1))
                    idle[node] -= held[node]
            asked = int(chance.integers(1, 2 * SIZE + 1))
            ranked.append({"gpus": sum(held.values()) or asked, "nodes": int(chance.integers(1, 4)), "held": held,
                           "pool": int(chance.integers(2))})  # fmt: skip
        usable = np.array([np.ones(width, np.bool_), chance.random(width) < 0.5])
        handicap = np.arange(width) / width * chance.integers(2)
        expected = naive_walk.walk(ranked, usable, capacity.tolist(), handicap)
        assert walked(ranked, usable, capacity, handicap) == expected


def walked(
    ranked: list[dict[str, Any]], usable: np.ndarray, capacity: np.ndarray, handicap: np.ndarray
) -> list[list[int]]:
    """What the kernel gives these jobs."""
    count = np.array([len(job["held"]) for job in ranked])
    node, held = np.array([pair for job in ranked for pair in job["held"].items()], np.int64).reshape(-1, 2).T
    gpus, nodes, pool = (np.array([job[name] for job in ranked]) for name in ("gpus", "nodes", "pool"))
    order, first = np.arange(len(ranked)), np.cumsum(count) - count
    made: list[list[int]] = ranking_walks.walk(
        order, gpus, nodes, first, count, node, held, pool, usable, capacity, handicap
    ).tolist()  # fmt: skip
    return made


def test_shares_given__lists_what_each_row_has() -> None:
    """Rows without any are left out."""
    given = np.array([[0, 0, 0], [0, 2, 1], [0, 0, 0], [4, 0, 0]])
    expected = ([1, 3], [2, 1], [1, 2, 0], [2, 1, 4])
    assert expected == tuple(column.tolist() for column in ranking_walks.shares_given(given))


@pytest.mark.parametrize("seed", range(40))
def test_next_fitting_and_fewest_displaced__walk_as_reference(seed: int) -> None:
    """The same jobs keep or get the same GPUs as when every job and every number of displaced jobs is tried."""
    at, ranking = crowded(seed)
    requests, known = gang_walk._GangRequests(at), PlaceableGpus.of(at)
    asks = {row: ask for row in range(len(at.jobs)) if not known.allocated.count[row] and (ask := requests.of(row))}
    for placement in (BestFit(), Scattered()):
        choose = baselines._fullest if isinstance(placement, BestFit) else placement._anywhere
        made = placement.place(at, ranking)
        ends = (made.first + made.count).tolist()
        found = {row: (made.node[first:end].tolist(), made.gpus[first:end].tolist())
                 for row, first, end in zip(made.rows.tolist(), made.first.tolist(), ends, strict=True)}  # fmt: skip
        expected = {row: (node, [mask.bit_count() for mask in masks])
                    for row, (node, masks) in gangs.place_gangs(at, ranking, choose, asks).items()}  # fmt: skip
        assert (list(expected), expected) == (list(found), found)


def test_next_fitting__each_running_job_stays_whole_or_goes() -> None:
    """Two nodes with 2 and 3 free GPUs. Job 0 waits. Job 1 holds both nodes, job 2 a GPU of the first, job 3 one of the
    second, job 4 nothing: it waits for 3 GPUs. Job 2 finds its GPU taken by job 1. Job 3 finds too few CPUs, and job 5
    too little memory, if they count. Jobs before all waiting ones stay in any case.
    """
    held = ranking_walks.HeldSets(
        np.array([0, 0, 2, 3, 4, 4]), np.array([0, 2, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 1]),
        np.array([0b01, 0b001, 0b01, 0b010, 0b100]), np.array([1.0, 3.0, 0.0, 2.0, 0.0]), np.array([0, 0, 0, 1, 9.0])
    )  # fmt: skip
    behind = np.arange(6)
    for rows, beside, kept, gpus in (
        (behind, False, [1, 3, 5], [0b10, 0b000]),
        (behind, True, [1], [0b10, 0b110]),
        (behind[1:], True, [1, 2, 3], [0b10, 0b100]),
    ):
        free = ranking_walks.FreeSets(np.array([0b11, 0b111]), np.array([np.inf, 4.0]), np.array([8.0, 8.0]))
        placed = ranking_walks.PlacedGangs._make([*np.empty((4, 9), np.int64), np.zeros(2, np.int64)])
        ones = np.ones(6, np.int64)
        asks = GangSeries(np.array([9, 0, 0, 0, 3, 0])[rows], ones, 4 * ones, 0 * ones, np.zeros(6), np.zeros(6))
        assert ranking_walks.next_fitting(rows, 0, asks, held, free, placed, True, beside) == len(rows)
        assert (placed.rows[: placed.written[0]].tolist(), free.gpus.tolist()) == (kept, gpus)


def test_fill_in_order__agrees_with_reference() -> None:
    """First fit in the order given, until nothing is free."""
    chance = np.random.default_rng(2)
    for rows in range(13):
        gpus, order = chance.integers(0, 9, rows), chance.permutation(rows)
        for capacity in (0, 4, 16, 99):
            expected = pile.fill_pile(order, gpus, capacity)
            assert ranking_walks.fill_in_order(order, gpus, capacity).tolist() == expected


def test_place_by_count__gives_what_is_held_or_asked_for() -> None:
    """A node of 8 GPUs. Job 12 holds 2, job 10 asks for 4, job 11 for 3; in this order the last does not fit."""
    jobs, held = (np.array([10, 11, 12]), np.array([4, 3, 2], np.int32)), (np.array([12]), np.array([0]), [2])
    nodes, placed = (np.array([False]), np.array([8], np.int32), np.array([2], np.int32)), np.empty((5, 3), np.int64)
    served = ranking_walks.place_by_count(
        np.array([2, 0, 1]), np.array([1, 1, 2]), jobs, (*held[:2], np.array(held[2], np.int32)), nodes, placed
    )  # fmt: skip
    assert placed[:, :served].tolist() == [[2, 0], [0, 1], [1, 1], [0, 0], [2, 4]]


def test_backfill_by_count__agrees_with_reference() -> None:
    """Who starts leaves the first gang that waits its earliest start; one that asks for no GPU does not start."""
    chance = np.random.default_rng(3)
    for _ in range(300):
        rows, running = chance.integers(0, 10), int(chance.integers(0, 4))
        gpus = chance.integers(0, 8, rows + running)
        gpus[:running] += gpus[:running] == 0
        ahead_s = chance.choice([1.0, 2.0, 3.0, 5.0], len(gpus))
        capacity = max(gpus[:running].sum(), gpus.max(initial=0), chance.integers(0, 20))
        got = np.flatnonzero(ranking_walks.backfill_by_count(gpus, ahead_s, running, capacity)).tolist()
        assert got == pile.backfill_pile(gpus, ahead_s, running, capacity)


def test_backfill__agrees_with_reference() -> None:
    """The same jobs start on the same nodes: EASY and conservative, on shares and on whole nodes."""
    chance = np.random.default_rng(4)
    for _ in range(200):
        width, steps, jobs = chance.integers(1, 4), chance.integers(1, 5), chance.integers(1, 8)
        free = np.sort(chance.integers(0, SIZE + 1, (steps, width)), axis=0)
        times = 100.0 + np.cumsum([0.0, *chance.choice([5.0, 10.0, 25.0], steps - 1)])
        gpus = chance.integers(1, SIZE * width + 1, jobs)
        limit_s = chance.choice([5.0, 7.0, 10.0, 40.0, np.inf], jobs)
        price = np.arange(width) / width * chance.integers(2)
        most, whole = int(chance.integers(1, jobs + 1)), bool(chance.integers(2))
        queue = (times, free, gpus, -(-gpus // SIZE), limit_s, price, SIZE, most, whole)
        assert ranking_walks.backfill(*queue).tolist() == naive_backfill.backfill(*queue)
