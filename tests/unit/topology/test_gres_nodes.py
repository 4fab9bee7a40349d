"""Requests by GPU Type: which one gives the best set for certain."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.resources.gpu_sets import set_ranks
from slurmsched.topology.gpu_links import GpuDevice, machines
from slurmsched.topology.gres_nodes import TypedNode, best_share, safest_request, typed_node
from slurmsched.topology.topology_files import NodeClass

MESH = machines()["dgx-1v"]
RANK = set_ranks(MESH).rank
PAIRS = ("p0", "p1", "p1", "p0", "p2", "p3", "p3", "p2")  # joined by two lanes
HALVES = ("h0",) * 4 + ("h1",) * 4
SINGLES = tuple(f"g{g}" for g in range(8))


def bits(*gpus: int) -> int:
    return sum(1 << g for g in gpus)


@pytest.mark.parametrize(
    ("types", "free", "gpus", "request_", "mask"),
    [
        (PAIRS, bits(0, 3, 4, 6), 2, "gpu:p0:2", bits(0, 3)),
        (PAIRS, bits(1, 2, 4, 5), 2, "gpu:p1:2", bits(1, 2)),
        (PAIRS, bits(2, 3, 5), 2, "gpu:p0:1,gpu:p1:1", bits(2, 3)),
        (PAIRS, bits(0, 1, 2, 3, 5), 4, "gpu:p0:2,gpu:p1:2", bits(0, 1, 2, 3)),
        (SINGLES, bits(0, 1, 4, 6), 2, "gpu:g0:1,gpu:g4:1", bits(0, 4)),
        (HALVES, bits(1, 2, 5), 2, "gpu:h0:2", bits(1, 2)),
    ],
)
def test_surest__names_the_types_of_the_best_set(types, free, gpus, request_, mask):
    """A pair, two halves of broken pairs, two pairs, single GPUs."""
    found = safest_request(types, free, gpus, RANK)
    assert found is not None
    assert (found.request, found.mask) == (request_, mask)


def test_surest__counts_the_worst_that_slurm_may_give():
    """Two of four alike may be a single link, so that no pair of two lanes is promised."""
    found = safest_request(HALVES, bits(0, 1, 2, 3), 2, RANK)
    assert found is not None
    assert found.rank < RANK[bits(0, 3)]


def test_surest__of_equals_the_one_that_is_preferred():
    """The table's own choice leaves most behind; which of the equal pairs it is does not matter otherwise."""
    found = safest_request(PAIRS, 0xFF, 2, RANK, prefer=bits(5, 6))
    assert found is not None
    assert found.request == "gpu:p3:2"


@given(
    types=st.lists(st.sampled_from("abcd"), min_size=8, max_size=8).map(tuple),
    free=st.integers(1, 255),
    gpus=st.integers(1, 8),
    draw=st.integers(0, 69),
)
def test_surest__is_no_worse_for_knowing_a_best_set(types, free, gpus, draw):
    """Whichever of the best sets is preferred, the outcome has the rank that it has without."""
    plain = safest_request(types, free, gpus, RANK)
    if plain is None:
        return
    sets = [mask for mask in range(256) if mask & ~free == 0 and mask.bit_count() == gpus]
    best = [mask for mask in sets if RANK[mask] == max(RANK[sets])]
    found = safest_request(types, free, gpus, RANK, best[draw % len(best)])
    assert found is not None
    assert found.rank == plain.rank


def test_surest__too_few_free_is_none():
    """Three GPUs of two."""
    assert safest_request(PAIRS, bits(0, 1), 3, RANK) is None


@given(
    types=st.lists(st.sampled_from("abcd"), min_size=8, max_size=8).map(tuple),
    free=st.integers(0, 255),
    gpus=st.integers(1, 8),
    rank=st.permutations(range(256)),
)
def test_surest__agrees_with_looking_at_every_outcome(types, free, gpus, rank):
    """No way to name Types has a better worst outcome, and this one has the outcome it tells."""
    rank = np.array(rank)
    sets = [bits(*some) for some in combinations([g for g in range(8) if free >> g & 1], gpus)]
    worst: dict[tuple[str, ...], int] = {}
    for mask in sets:
        way = tuple(sorted(types[g] for g in range(8) if mask >> g & 1))
        worst[way] = min(worst.get(way, 256), int(rank[mask]))
    found = safest_request(types, free, gpus, rank)
    if found is None:
        assert not sets
        return
    named = [(entry.split(":")[1], int(entry.split(":")[2])) for entry in found.request.split(",")]
    way = tuple(sorted(name for name, count in named for _ in range(count)))
    assert worst[way] == found.rank == int(rank[found.mask]) == max(worst.values())


def test_best_share__a_type_for_each_gpu_reaches_everything():
    """The coarser the Types, the less a request can tell; pairs of two lanes reach nearly all on a mesh."""
    assert best_share(SINGLES, RANK) == 1.0
    assert best_share(HALVES, RANK) < 0.8 < best_share(PAIRS, RANK) < 1.0


def device(kind: str) -> GpuDevice:
    return GpuDevice(kind, ("/dev/nvidia0",))


@pytest.mark.parametrize(
    ("types", "counted", "known"),
    [("aab", (("a", 2), ("b", 1)), True), ("baa", (("b", 1), ("a", 2)), True), ("aab", (("b", 1), ("a", 2)), False),
     ("aba", (("a", 2), ("b", 1)), False), ("aab", (), False), ("aaa", (("a", 3),), False)],
)  # fmt: skip
def test_typed_node__only_where_index_and_type_are_sure(types, counted, known):
    """Slurm numbers GPUs Type by Type, in the order it tells; one Type is picked by Links."""
    one = NodeClass(MESH, ("n1",), tuple(device(kind) for kind in types))
    assert typed_node(one, counted) == (TypedNode(tuple(types)) if known else None)


@pytest.mark.parametrize("types", [("a", ""), ("1g.5gb", "a")])
def test_typed_node__every_gpu_has_a_type_and_is_whole(types):
    """One without may get any; MIG devices are no GPUs."""
    one = NodeClass(MESH, ("n1",), tuple(device(kind) for kind in types))
    assert typed_node(one, [(kind, 1) for kind in types]) is None
