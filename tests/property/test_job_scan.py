"""The kernels of the ideal cluster's cycle agree with their plain twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels import job_scan
from slurmsched.kernels.service_queues import sort_rows
from tests.reference import show as reference

FLAGS = (1, 2)


def tables(jobs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tables of a cast as the cluster keeps them, with small whole numbers."""
    chance = np.random.default_rng(seed)
    times = chance.integers(0, 9, (jobs, 5)).astype(np.float64)
    times[chance.random(jobs) < 0.5, 0] = np.nan
    return times, chance.integers(1, 9, (jobs, 4))


@settings(deadline=None)
@given(jobs=st.integers(0, 9), seed=st.integers(0, 999), data=st.data())
def test_job_columns__agrees_with_reference(jobs: int, seed: int, data: st.DataObject) -> None:
    """Times, service, states and counts of the jobs there are; ids and GPUs of those that run."""
    times, counts = tables(jobs, seed)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, jobs - 1)))) if jobs else [], np.int64)
    floats, ints = np.empty((8, len(rows))), np.empty((2, len(rows)), np.int64)
    small = np.empty((3, len(rows)), np.int32)
    ids, held = np.empty(len(rows), np.int64), np.empty(len(rows), np.int32)
    holders = job_scan.job_columns(rows, times, counts, 10.0, FLAGS, floats, ints, small, ids, held)
    expected = reference.job_columns(rows, times, counts, 10.0, FLAGS)
    for row, blocks in enumerate(expected):
        for block, values in zip((floats, ints, small), blocks, strict=True):
            np.testing.assert_array_equal(block[:, row], values)
    assert ids[:holders].tolist() == [ints[0] for _, ints, _ in expected if ints[1] == FLAGS[1]]
    assert held[:holders].tolist() == [small[1] for (_, ints, small) in expected if ints[1] == FLAGS[1]]


@settings(deadline=None)
@given(running=st.lists(st.booleans(), max_size=9), data=st.data())
def test_changes__agrees_with_reference(running: list[bool], data: st.DataObject) -> None:
    """Who runs and is not in the target stops, the other way round starts."""
    target = sorted(data.draw(st.sets(st.integers(0, len(running) - 1)))) if running else []
    times = np.where(np.array(running, np.bool_), 1.0, np.nan).reshape(-1, 1)
    differ = np.empty(len(running), np.int64)
    stops, changed = job_scan.changed_runs(np.arange(len(running)), times, np.array(target, np.int64), differ)
    expected = reference.changes(running, target)
    assert (differ[:stops].tolist(), differ[stops:changed].tolist()) == expected


@settings(deadline=None)
@given(stands=st.lists(st.integers(0, 2), max_size=9), seed=st.integers(0, 99), data=st.data())
def test_who_waits__agrees_with_reference(stands: list[int], seed: int, data: st.DataObject) -> None:
    """Of those that are not served: fewest GPUs asked for, the rows in order, and what must come free for each."""
    chance, rows = np.random.default_rng(seed), len(stands)
    order, gpus = chance.permutation(rows), chance.integers(1, 9, rows).astype(np.int32)
    served = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))) if rows else [], np.int64)
    queue = np.empty((2, rows), np.int64)
    running = np.ones(rows, np.bool_)
    least, waiting, need = job_scan.who_waits(order, np.array(stands, np.int64), served, gpus, running, queue)
    assert need == (queue[1, :waiting].min() if waiting else 0)
    assert np.flatnonzero(running).tolist() == served.tolist()
    assert (least, *queue[:, :waiting].tolist()) == reference.who_waits(order.tolist(), stands, served, gpus)


@settings(deadline=None, max_examples=300)
@given(keys=st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, np.inf])] * 2), max_size=20), data=st.data())
def test_sort_rows__gives_one_order_wherever_it_begins(keys: list[tuple[float, float]], data: st.DataObject) -> None:
    """Sorted by keys, ties by row, from any order."""
    order = np.array(data.draw(st.permutations(range(len(keys)))), np.int64)
    sort_rows(np.array(keys, np.float64).reshape(-1, 2), order)
    assert order.tolist() == reference.sort_rows(keys)
