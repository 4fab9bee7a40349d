"""Scans of the jobs of a replay, against their plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.job_scan import changed_runs, count_in_order, job_columns, room_needed, who_waits
from tests.reference import show as reference


@pytest.mark.parametrize("seed", range(20))
def test_count_in_order__agrees_with_reference(seed: int) -> None:
    """Each job that fits gets what it asks for, in order; one of no GPU neither runs nor waits."""
    chance = np.random.default_rng(seed)
    rows, capacity = int(chance.integers(0, 9)), int(chance.integers(0, 12))
    order, gpus = chance.permutation(rows), chance.integers(0, 5, rows).astype(np.int32)
    placed, running, queue = np.empty((5, rows), np.int64), np.empty(rows, np.bool_), np.empty((2, rows), np.int64)
    served, waiting, least = count_in_order(order, gpus, capacity, placed, running, queue)
    runs, waits, needs = reference.count_in_order(order.tolist(), gpus.tolist(), capacity)
    assert placed[:, :served].tolist() == [runs, list(range(served)), [1] * served, [0] * served,
                                           [gpus[row] for row in runs]]  # fmt: skip
    assert (np.flatnonzero(running).tolist(), queue[:, :waiting].tolist()) == (sorted(runs), [waits, needs])
    assert least == min(needs, default=0)


def test_count_in_order__a_small_job_overtakes_a_large_one() -> None:
    """Of 4 GPUs the second job gets 3; the first waits for all 5 less what the second, behind it, gives back."""
    placed, running, queue = np.empty((5, 2), np.int64), np.empty(2, np.bool_), np.empty((2, 2), np.int64)
    counts = count_in_order(np.arange(2), np.array([5, 3], np.int32), 4, placed, running, queue)
    assert (counts, queue[:, 0].tolist(), placed[0, 0]) == ((1, 1, 2), [0, 2], 1)


def test_who_waits__leaves_out_who_neither_holds_nor_waits() -> None:
    """Row 0 runs, row 1 waits for 4 GPUs of which it would get 2 back, row 2 is over."""
    running, queue = np.empty(3, np.bool_), np.empty((2, 3), np.int64)
    gpus = np.array([2, 4, 8], np.int32)
    found = who_waits(np.array([1, 2, 0]), np.array([2, 1, 0]), np.array([0]), gpus, running, queue)
    assert (found, queue[:, 0].tolist(), running.tolist()) == ((4, 1, 2), [1, 2], [True, False, False])


def test_job_columns__and_changed_runs_agree_with_reference() -> None:
    """A job that runs and one that waits; then the one stops and the other starts."""
    times, counts = np.array([[3.0, 1, 0, 2, 9], [np.nan, 0, 5, 2, 9]]), np.array([[7, 2, 1, 0], [8, 4, 1, 3]])
    rows, floats, ints, small = np.arange(2), np.empty((8, 2)), np.empty((2, 2), np.int64), np.empty((3, 2), np.int32)
    ids, held = np.empty(2, np.int64), np.empty(2, np.int32)
    assert job_columns(rows, times, counts, 10.0, (1, 2), floats, ints, small, ids, held) == 1
    for row, blocks in enumerate(reference.job_columns(rows, times, counts, 10.0, (1, 2))):
        for block, values in zip((floats, ints, small), blocks, strict=True):
            np.testing.assert_array_equal(block[:, row], values)
    assert (ids[0], held[0]) == (7, 2)
    differ = np.empty(2, np.int64)
    stops, changed = changed_runs(rows, times, np.array([1]), differ)
    assert (differ[:stops].tolist(), differ[stops:changed].tolist()) == reference.changes([True, False], [1])


@pytest.mark.parametrize("seed", range(60))
def test_room_needed__agrees_with_reference(seed: int) -> None:
    """Nodes of 1 to 4 GPUs; jobs hold GPUs of some and wait for 1 to 9."""
    chance = np.random.default_rng(seed)
    rows, capacity = int(chance.integers(1, 9)), chance.integers(1, 5, int(chance.integers(1, 5)))
    idle, held = capacity.copy(), dict[int, dict[int, int]]()
    for row in np.flatnonzero(chance.random(rows) < 0.6).tolist():
        for n in np.flatnonzero((chance.random(len(capacity)) < 0.5) & (idle > 0)).tolist():
            held.setdefault(row, {})[n] = int(chance.integers(1, idle[n] + 1))
            idle[n] -= held[row][n]
    waits = np.array([row not in held and chance.random() < 0.9 for row in range(rows)])
    gpus, nodes = chance.integers(1, 10, rows).astype(np.int32), chance.integers(1, 4, rows).astype(np.int32)
    count = np.array([len(held[row]) for row in held], np.int64)
    placed = (np.array(list(held), np.int64), np.cumsum(count) - count, count)
    entries = np.array([pair for row in held for pair in held[row].items()], np.int64).reshape(-1, 2).T.copy()
    order = chance.permutation(rows)
    got = room_needed(order, waits, gpus, nodes, placed, (entries[0], entries[1]), capacity)
    expected = reference.room_needed(
        order.tolist(), waits.tolist(), gpus.tolist(), nodes.tolist(), held, capacity.tolist()
    )
    assert [None if needs == np.iinfo(np.int64).max else needs for needs in got.tolist()] == expected
