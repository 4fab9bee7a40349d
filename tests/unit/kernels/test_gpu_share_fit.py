"""Parts of GPUs, where no node has room."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.gpu_share_fit import SharedNodes, ShareRequests, place_shares
from tests.reference import gpu_shares as reference


@pytest.mark.parametrize("rule", range(6))
def test_place_shares__gives_no_node_where_none_has_room(rule: int) -> None:
    """A request of two GPUs on nodes of one; what is free and its fragments stay, as in the reference."""
    nodes = SharedNodes(np.array([[1000, 0], [400, 0]]), np.ones(2, np.int64), np.full(2, 8.0), np.full(2, 9.0),
                        np.zeros(2, np.int64), np.zeros((2, 3), np.int64), np.array([16.0, 4000.0]))  # fmt: skip
    kinds = ShareRequests(np.array([2]), np.array([1000]), np.zeros(1), np.zeros(1), np.ones((1, 2), np.bool_))
    weight, wanted, draws = np.ones(1), np.zeros(1, np.int64), np.full((1, 2), 0.5)
    expected = reference.place_shares(wanted, kinds, nodes, weight, rule, draws)
    node, _, _, fragments = place_shares(wanted, kinds, nodes, kinds, weight, rule, draws)
    assert (node.tolist(), nodes.free[:, 0].tolist()) == ([-1], [1000, 400])
    assert fragments.tolist() == pytest.approx([one[3] for one in expected])


@pytest.mark.parametrize("rule", range(6))
def test_place_shares__looks_beyond_the_first_block_of_nodes(rule: int) -> None:
    """Of 130 nodes only the last has a GPU."""
    free, counts = np.zeros((130, 2), np.int64), np.ones(130, np.int64)
    free[-1, 0] = 1000
    nodes = SharedNodes(free, counts, np.full(130, 8.0), np.full(130, 9.0), np.zeros(130, np.int64),
                        np.zeros((130, 3), np.int64), np.array([16.0, 4000.0]))  # fmt: skip
    kinds = ShareRequests(np.ones(1, np.int64), np.array([1000]), np.zeros(1), np.zeros(1), np.ones((1, 2), np.bool_))
    node, mask, _, _ = place_shares(np.zeros(1, np.int64), kinds, nodes, kinds, np.ones(1), rule, np.full((1, 2), 0.5))
    assert (node.tolist(), mask.tolist()) == ([129], [1])
