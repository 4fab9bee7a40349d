"""Kernels of GPU sets against their naive twins, on links drawn at random."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels.best_sets import best_sets, grown_set
from slurmsched.kernels.headroom import bit_count, headroom
from slurmsched.kernels.linked_gang import best_nodes, tightest_cell
from slurmsched.kernels.rings import ring_order, rings
from slurmsched.model.topology import SiteTopology
from slurmsched.placements.gpu_sets import floors, set_table
from slurmsched.placements.gpu_stock import bit_counts, low_bits
from slurmsched.placements.linked import Tables
from slurmsched.topology.machines import machines
from tests.reference import linked
from tests.reference import rings as reference

QUICK = settings(deadline=None, max_examples=60)


@st.composite
def link_weights(draw: st.DrawFn, most: int = 6) -> np.ndarray:
    """Symmetric links of few distinct weights, 0 on the diagonal."""
    gpus = draw(st.integers(2, most))
    weight = np.zeros((gpus, gpus), np.int64)
    for a in range(gpus):
        for b in range(a):
            weight[a, b] = weight[b, a] = draw(st.sampled_from([0, 1, 5, 9]))
    return weight


@QUICK
@given(link_weights(), st.booleans())
def test_rings__agree_with_reference(weight: np.ndarray, by_smallest: bool) -> None:
    """Every set's best ring over all orders."""
    levels = floors(weight, "smallest" if by_smallest else "sum")
    smallest, total = rings(weight, levels)
    for mask in range(1, 1 << len(weight)):
        expected = reference.ring_value(weight, reference.bits(mask), by_smallest)
        assert expected == (smallest[mask] if by_smallest else 0, total[mask])


@QUICK
@given(link_weights(7))
def test_ring_order__agrees_with_reference(weight: np.ndarray) -> None:
    """The order found has the smallest link and sum of the best ring."""
    order = tuple(ring_order(weight, floors(weight)).tolist())
    links = reference.ring_links(weight, order)
    assert tuple(range(len(weight))) == tuple(sorted(order))
    assert reference.ring_value(weight, tuple(range(len(weight)))) == (min(links), sum(links))


@QUICK
@given(st.integers(1, 5), st.data())
def test_best_sets__agrees_with_reference(gpus: int, data: st.DataObject) -> None:
    """Whatever the criteria: best sets, ties by worth and number, and worths."""
    sets = 1 << gpus
    few = st.lists(st.integers(0, 2), min_size=sets, max_size=sets)
    key, value = np.array([data.draw(few), data.draw(few)]).T.copy(), np.array(data.draw(few))
    size = np.array([mask.bit_count() for mask in range(sets)])
    as_dict = {mask: tuple(key[mask].tolist()) for mask in range(sets)}
    expected, worth = reference.best_sets(as_dict, dict(enumerate(value.tolist())), gpus)
    best, ours = best_sets(size, key, value)
    assert np.array_equal(expected, best)
    assert np.array_equal(worth, ours)


@QUICK
@given(link_weights(), st.integers(0, 63), st.integers(1, 6))
def test_grown_set__gives_so_many_free_gpus(weight: np.ndarray, free: int, k: int) -> None:
    """k of the free ones, or none if there are fewer; of two GPUs the best pair."""
    free &= (1 << len(weight)) - 1
    made = int(grown_set(weight, np.ones(len(weight), np.bool_), free, k))
    assert (k if free.bit_count() >= k else 0) == made.bit_count()
    assert not made & ~free
    if k == 2 and made:
        best = max(int(weight[reference.bits(pair)]) for pair in reference.subsets(free, 2))
        assert best == weight[reference.bits(made)]


@QUICK
@given(st.lists(st.tuples(st.integers(0, 255), st.booleans(), st.integers(0, 40), st.integers(0, 40)), max_size=6),
       st.integers(0, 9), st.integers(0, 9))  # fmt: skip
def test_headroom__agrees_with_reference(nodes: list[tuple[int, bool, int, int]], cpus: int, mib: int) -> None:
    """The most GPUs for which GPUs, CPUs and memory are there."""
    free, usable, have_cpus, have_mib = np.array(nodes, np.int64).reshape(-1, 4).T.copy()
    args = (free, usable.astype(np.bool_), have_cpus.astype(float), have_mib.astype(float), float(cpus), float(mib))
    assert linked.headroom(*args) == headroom(*args).tolist()


@QUICK
@given(st.lists(st.integers(0, 8), min_size=1, max_size=9), st.integers(1, 8), st.integers(0, 3), st.integers(0, 8),
       st.data())  # fmt: skip
def test_tightest_cell__agrees_with_reference(
    room: list[int], part: int, parts: int, rest: int, data: st.DataObject
) -> None:
    """Lowest level, fewest GPUs left over, lowest row."""
    nodes, rest = len(room), min(rest, part - 1)
    order = np.array(data.draw(st.permutations(range(nodes))), np.int64)
    spans = data.draw(st.lists(st.tuples(st.integers(0, nodes), st.integers(0, nodes), st.integers(1, 3)), max_size=5))
    low, high, level = np.array([(min(a, b), max(a, b), at) for a, b, at in spans] + [(0, nodes, 4)]).T.copy()
    args = (np.array(room, np.int64), order, low, high, level, part, parts, rest)
    assert linked.tightest_cell(*args) == tightest_cell(*args)


@given(st.lists(st.integers(0, 2**63 - 1), max_size=9))
def test_bit_counts__count(masks: list[int]) -> None:
    """As Python counts; low_bits is its inverse."""
    assert [mask.bit_count() for mask in masks] == [bit_count(mask) for mask in masks]
    counts = bit_counts(np.array(masks, np.int64))
    assert [mask.bit_count() for mask in masks] == counts.tolist()
    assert counts.tolist() == bit_counts(low_bits(counts)).tolist()


@QUICK
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 8), st.integers(-1, 2), st.integers(-1, 1)), min_size=1,
                max_size=8), st.integers(1, 8), st.integers(1, 4), st.data())  # fmt: skip
def test_best_nodes__agrees_with_reference(
    rows: list[tuple[int, int, int, int]], gpus: int, nodes: int, data: st.DataObject
) -> None:
    """The best nodes of a cell one after another: set, fullest node, fullest cell, least harm, place."""
    classes = (machines()["dgx-1v"], machines()["bridged-pairs"])
    tables, made = Tables.of(SiteTopology(classes), "smallest"), [set_table(one) for one in classes]
    free, most, cell, kind = np.array(rows, np.int64).T.copy()
    room = np.minimum(most, bit_counts(free))
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    columns = (tables.best_at, tables.width, tables.best, tables.set_at, tables.rank, tables.worth)
    got = best_nodes(free, room, order, begin, end, cell, 3, kind, gpus, nodes, *columns)
    by_node = [made[k] if k >= 0 else None for k in kind.tolist()]
    assert linked.best_nodes(free, room, order[begin:end], cell, by_node, gpus, nodes) == got.tolist()
