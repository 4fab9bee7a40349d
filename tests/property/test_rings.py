"""Kernels of GPU sets against their naive twins, on links drawn at random."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels.gang_fit import SetTables, best_nodes, bit_count, headroom, tightest_cell
from slurmsched.kernels.gpu_set_search import best_sets, grown_set, ring_order, rings
from slurmsched.model import Labels, Ranking, Snapshot, frozen
from slurmsched.model.gpu_masks import bit_counts, low_bits
from slurmsched.model.gpu_topology import Fabric, SiteTopology
from slurmsched.placements import gang_walk
from slurmsched.placements.linked import ClassTables, Linked
from slurmsched.resources.gpu_sets import link_floors, set_table
from slurmsched.testing import snapshot
from slurmsched.topology.gpu_links import machines
from tests.reference import gpu_set_search as reference
from tests.reference import linked

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
    levels = link_floors(weight, "smallest" if by_smallest else "sum")
    smallest, total = rings(weight, levels)
    for mask in range(1, 1 << len(weight)):
        expected = reference.ring_value(weight, reference.bits(mask), by_smallest)
        assert expected == (smallest[mask] if by_smallest else 0, total[mask])


@QUICK
@given(link_weights(7))
def test_ring_order__agrees_with_reference(weight: np.ndarray) -> None:
    """The order found has the smallest link and sum of the best ring."""
    order = tuple(ring_order(weight, link_floors(weight)).tolist())
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
    tables, made = ClassTables.of(SiteTopology(classes), "smallest"), [set_table(one) for one in classes]
    free, most, cell, kind = np.array(rows, np.int64).T.copy()
    room = np.minimum(most, bit_counts(free))
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    columns = (tables.best_at, tables.width, tables.best, tables.set_at, tables.rank, tables.worth)
    got = best_nodes(free, room, order[begin:end], cell, 3, kind, SetTables(*columns), gpus, nodes)
    by_node = [made[k] if k >= 0 else None for k in kind.tolist()]
    assert linked.best_nodes(free, room, order[begin:end], cell, by_node, gpus, nodes) == got.tolist()


def crowded(seed: int) -> tuple[Snapshot, Ranking]:
    """Up to 24 nodes of two kinds, and of none, under three levels of switches; jobs run and wait, in any order."""
    chance = np.random.default_rng(seed)
    count = int(chance.integers(2, 25))
    size = chance.choice([8, 4], count)
    rows, held = list[dict[str, Any]](), list[dict[str, Any]]()
    for n in range(count):
        free = chance.permutation(int(size[n]))
        for gpus in chance.choice([0, 0, 1, 3], 2).tolist():
            mine, free = free[:gpus], free[gpus:]
            if len(mine):
                job_id, mask = len(rows) + 1, sum(1 << int(g) for g in mine)
                rows.append({"job_id": job_id, "gpus": len(mine), "state": "RUNNING", "cpus": 2 * len(mine)})
                held.append({"job_id": job_id, "node": f"n{n + 1:02}", "gpus": len(mine), "gpu_mask": mask})
    counted = bool(chance.integers(0, 2))
    for gpus in chance.choice([1, 1, 2, 3, 4, 8, 11, 13, 16, 21], int(chance.integers(1, 30))).tolist():
        beside = {"cpus": int(chance.choice([1, 2, 4])) * gpus, "memory_mib": float(chance.choice([0, 1, 3]) * gpus)}
        over = int(chance.choice([-(-gpus // 8), min(gpus, 4)]))
        asks = {"gpus": gpus, "nodes": over, "gpu_request": "gpu", "partition": str(chance.choice(["gpu", "few"]))}
        rows.append({"job_id": len(rows) + 1, **asks, **(beside if counted else {})})
    nodes = [
        {"name": f"n{n + 1:02}", "gpus": gpus, "gpu_types": f"gpu:{gpus}", "partitions": "few,gpu" if n % 3 else "gpu"}
        | ({"cpus": int(chance.integers(gpus, 30)), "memory_mib": 20.0} if counted else {})
        for n, gpus in enumerate(size.tolist())
    ]
    tree = Fabric("tree", Labels.of(["l0", "l1", "l2", "s0", "t0"]), frozen([1, 1, 1, 2, 3], np.int8),
                  frozen([3, 3, 4, 4, -1], np.int32))  # fmt: skip
    kinds = np.where(chance.random(count) < 0.1, -1, np.where(size == 8, 0, 1))
    cell = frozen(chance.choice([0, 0, 1, 2, 3, -1], count), np.int64)
    wired = SiteTopology((machines()["dgx-1v"], machines()["bridged-pairs"]), frozen(kinds, np.int64), tree, cell)
    made = snapshot(rows, nodes, allocations=held, topology=wired)
    first = np.arange(len(rows)) if chance.integers(0, 2) else chance.permutation(len(rows))
    return made, Ranking(first)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_serve_series__chooses_as_one_gang_after_another(seed: int) -> None:
    """The same GPUs for the same jobs, whatever is free, counted, held, wired or in whatever order."""
    at, ranking = crowded(seed)
    found = []
    for least in (1, 1 << 60):
        with patch.object(gang_walk, "FEW_GANGS", least):
            found.append(Linked().place(at, ranking))
    for spec in fields(found[0]):
        one, other = (getattr(each, spec.name).tolist() for each in found)
        assert one == other, spec.name
