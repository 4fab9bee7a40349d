"""The kernels of counting placements agree with their plain twins."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels import free_gpus, ranking_walks
from tests.reference import pile as reference


def ints(low: int, high: int, size: int, dtype: Any = np.int64) -> st.SearchStrategy[Any]:
    return st.lists(st.integers(low, high), min_size=size, max_size=size).map(lambda rows: np.array(rows, dtype))


@settings(deadline=None)
@given(rows=st.integers(0, 12), capacity=st.integers(0, 16), data=st.data())
def test_fill_pile__agrees_with_reference(rows: int, capacity: int, data: st.DataObject) -> None:
    """First fit in the order given."""
    gpus, order = data.draw(ints(0, 9, rows)), np.array(data.draw(st.permutations(range(rows))), np.int64)
    assert ranking_walks.fill_in_order(order, gpus, capacity).tolist() == reference.fill_pile(order, gpus, capacity)


@settings(deadline=None)
@given(rows=st.integers(0, 8), used=st.integers(0, 16), data=st.data())
def test_place_on_pile__agrees_with_its_parts(rows: int, used: int, data: st.DataObject) -> None:
    """First fit of what each job holds or asks for, in what the nodes have to give; all on node row 0."""
    ids, stands = np.arange(rows), data.draw(ints(0, 2, rows))
    asked, order = data.draw(ints(1, 8, rows, np.int32)), np.array(data.draw(st.permutations(range(rows))), np.int64)
    held = (ids[stands == 2], np.zeros((stands == 2).sum(), np.int64), asked[stands == 2])
    nodes = (np.array([False]), np.array([16], np.int32), np.array([used], np.int32))
    placed = np.empty((5, rows), np.int64)
    served = ranking_walks.place_by_count(order, stands, (ids, asked), held, nodes, placed)
    wanted = np.array(reference.wanted_of(ids, stands, asked, held[0], held[2]), np.int64)
    free = sum(reference.givable(nodes[0], nodes[1], nodes[2], held[1], held[2]))
    rows_served = reference.fill_pile(order, wanted, free)
    expected = [rows_served, list(range(served)), [1] * served, [0] * served, wanted[rows_served].tolist()]
    assert placed[:, :served].tolist() == expected


@settings(deadline=None, max_examples=300)
@given(rows=st.integers(0, 10), running=st.integers(0, 4), data=st.data())
def test_backfill_pile__delays_the_head_no_more_than_reference(rows: int, running: int, data: st.DataObject) -> None:
    """EASY: who starts is who leaves the first waiting gang its earliest start."""
    gpus = data.draw(ints(1, 8, rows + running))
    ahead_s = data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0]), min_size=len(gpus), max_size=len(gpus)))
    capacity = max(int(gpus[:running].sum()), int(gpus.max(initial=0)), data.draw(st.integers(0, 20)))
    got = ranking_walks.backfill_by_count(gpus, np.array(ahead_s), running, capacity)
    assert np.flatnonzero(got).tolist() == reference.backfill_pile(gpus, ahead_s, running, capacity)


@settings(deadline=None)
@given(rows=st.integers(0, 12), data=st.data())
def test_standing_of__agrees_with_reference(rows: int, data: st.DataObject) -> None:
    """Flags 1, 2 and 4 stand for pending, holding and completing."""
    state, priority = data.draw(ints(0, 7, rows)), data.draw(ints(0, 1, rows))
    times = data.draw(st.lists(st.sampled_from([0.0, 5.0, 9.0, np.nan]), min_size=rows, max_size=rows))
    given_, got = (state, priority, np.array(times, np.float64), 5.0), np.empty(rows, np.int64)
    free_gpus.standing_of(*given_, (1, 2, 4), got)
    assert got.tolist() == reference.standing_of(*given_, 1, 2, 4).tolist()


@settings(deadline=None)
@given(jobs=st.integers(0, 6), held=st.integers(0, 8), nodes=st.integers(1, 4), data=st.data())
def test_stock__agrees_with_reference(jobs: int, held: int, nodes: int, data: st.DataObject) -> None:
    """Wanted by job and givable by node, with holders and nodes that the snapshot does not know."""
    ids, stands = np.arange(jobs) * 2, data.draw(ints(0, 2, jobs))
    holder, gpus = np.sort(data.draw(ints(0, 12, held))), data.draw(ints(0, 8, held, np.int32))
    asked = data.draw(ints(0, 8, jobs, np.int32))
    given_ = (ids, stands, asked, holder, gpus)
    assert free_gpus.wanted_of(*given_).tolist() == reference.wanted_of(*given_)
    node, closed = data.draw(ints(-1, nodes - 1, held)), data.draw(ints(0, 1, nodes, np.bool_))
    capacity, used = data.draw(ints(0, 8, nodes, np.int32)), data.draw(ints(0, 8, nodes, np.int32))
    assert free_gpus.givable(closed, capacity, used, node, gpus).tolist() == reference.givable(
        closed, capacity, used, node, gpus
    )
