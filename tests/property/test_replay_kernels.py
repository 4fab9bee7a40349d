"""Gang, backfill and walk kernels agree with their naive twins."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels.gang_fit import pick_gang
from slurmsched.kernels.ranking_walks import backfill, walk
from tests.reference import backfill as naive_backfill
from tests.reference import gang as naive_gang
from tests.reference import walk as naive_walk

SIZE = 4


@given(
    free=st.lists(st.integers(0, SIZE), min_size=1, max_size=5),
    gpus=st.integers(1, 14),
    nodes=st.integers(1, 5),
    seed=st.integers(0, 9),
)
@settings(deadline=None)
def test_pick_gang__agrees_with_reference(free: list[int], gpus: int, nodes: int, seed: int) -> None:
    """Same nodes, or neither finds any."""
    price = np.random.default_rng(seed).integers(0, 3, len(free)).astype(np.float64)
    shares = np.zeros(len(free), np.int64)
    fits = pick_gang(np.array(free, np.int64), price, gpus, nodes, SIZE, shares)
    expected = naive_gang.pick_gang(np.array(free), price, gpus, nodes, SIZE)
    assert (shares.tolist() if fits else None) == expected


def handicaps(width: int) -> st.SearchStrategy[np.ndarray]:
    """None, or nodes by their number."""
    return st.sampled_from([np.zeros(width), np.arange(width) / width])


@st.composite
def outlooks(draw: st.DrawFn) -> dict[str, Any]:
    """A cluster that empties in steps, and a queue."""
    width, steps, jobs = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 7))
    cells = draw(st.lists(st.integers(0, SIZE), min_size=width * steps, max_size=width * steps))
    free = np.sort(np.array(cells, np.int64).reshape(steps, width), axis=0)
    times = np.cumsum(
        [100.0, *draw(st.lists(st.sampled_from([5.0, 10.0, 25.0]), min_size=steps - 1, max_size=steps - 1))]
    )
    gpus = np.array(draw(st.lists(st.integers(1, SIZE * width), min_size=jobs, max_size=jobs)), np.int64)
    limit = draw(st.lists(st.sampled_from([5.0, 7.0, 10.0, 40.0, np.inf]), min_size=jobs, max_size=jobs))
    return {
        "times": times, "free": free, "gpus": gpus, "nodes": -(-gpus // SIZE), "limit_s": np.array(limit),
        "price": draw(handicaps(width)), "size": SIZE, "most": draw(st.integers(1, jobs)), "whole": draw(st.booleans()),
    }  # fmt: skip


@given(outlooks())
@settings(deadline=None, max_examples=300)
def test_backfill__agrees_with_reference(outlook: dict[str, Any]) -> None:
    """The same jobs start on the same nodes."""
    assert backfill(*outlook.values()).tolist() == naive_backfill.backfill(**outlook)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[dict[str, Any]], np.ndarray, list[int], np.ndarray]:
    """Ranked jobs, some running within capacity, nodes they may use, GPUs to give, which nodes come first."""
    capacity = draw(st.lists(st.integers(1, SIZE), min_size=1, max_size=4))
    left, ranked = list(capacity), []
    for _ in range(draw(st.integers(1, 9))):
        node = draw(st.integers(0, len(capacity) - 1))
        gpus = draw(st.integers(1, SIZE * 2))
        held = {node: min(gpus, left[node])} if draw(st.booleans()) and left[node] else {}
        for n, count in held.items():
            left[n] -= count
        gpus = sum(held.values()) or gpus
        ranked.append({"gpus": gpus, "nodes": draw(st.integers(1, 3)), "held": held, "pool": draw(st.integers(0, 1))})
    usable = np.array(
        [[True] * len(capacity), draw(st.lists(st.booleans(), min_size=len(capacity), max_size=len(capacity)))]
    )
    return ranked, usable, capacity, draw(handicaps(len(capacity)))


@given(fleets())
@settings(deadline=None, max_examples=300)
def test_walk__agrees_with_reference(fleet: tuple[list[dict[str, Any]], np.ndarray, list[int], np.ndarray]) -> None:
    """The same jobs hold the same GPUs, no node gives more than it has, and a gang is whole or absent."""
    ranked, usable, capacity, handicap = fleet
    made = np.array(_walked(*fleet)).reshape(len(ranked), len(capacity))
    assert made.tolist() == naive_walk.walk(ranked, usable, capacity, handicap)
    assert (made.sum(axis=0) <= capacity).all()
    assert all(total in (0, job["gpus"]) for total, job in zip(made.sum(axis=1).tolist(), ranked, strict=True))


def _walked(
    ranked: list[dict[str, Any]], usable: np.ndarray, capacity: list[int], handicap: np.ndarray
) -> list[list[int]]:
    held = [(node, gpus) for job in ranked for node, gpus in job["held"].items()]
    count = np.array([len(job["held"]) for job in ranked], np.int64)
    columns = (np.array([job[name] for job in ranked], np.int64) for name in ("gpus", "nodes"))
    nodes, gpus = (np.array([pair[i] for pair in held], np.int64) for i in (0, 1))
    pool = np.array([job["pool"] for job in ranked], np.int64)
    order, capacities = np.arange(len(ranked)), np.array(capacity, np.int64)
    made: list[list[int]] = walk(
        order, *columns, np.cumsum(count) - count, count, nodes, gpus, pool, usable, capacities, handicap
    ).tolist()  # fmt: skip
    return made
