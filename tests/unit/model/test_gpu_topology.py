"""The topology tables: what a class of node may hold."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model import GpuTopology, LinkKind


def test_build__what_is_not_given_is_unknown():
    """Nothing is invented: no link, no NUMA node; yet every GPU counts as whole and on the fabric."""
    node = GpuTopology.build("plain", 4)
    assert (node.gpus, node.known) == (4, False)
    assert (set(node.numa.tolist()), set(node.kind.ravel().tolist())) == ({-1}, {LinkKind.UNKNOWN})
    assert node.on_fabric.all() and not node.mig.any()
    assert node.nics == ((), (), (), ())


def test_build__links_make_it_known_and_cannot_be_changed():
    """Columns are read-only, as in every table."""
    pair = np.array([[0, LinkKind.NVLINK], [LinkKind.NVLINK, 0]])
    node = GpuTopology.build("pair", 2, kind=pair)
    assert node.known
    with pytest.raises(ValueError, match="read-only"):
        node.kind[0, 1] = 0


@pytest.mark.parametrize(
    ("gpus", "columns", "words"),
    [
        (65, {}, "at most 64"),
        (2, {"numa": [0]}, "numa of bad must be"),
        (2, {"lanes": [[0, 1], [2, 0]]}, "symmetric"),
    ],
)
def test_build__refuses_what_is_no_topology(gpus, columns, words):
    """Too many GPUs for a mask, a wrong shape, an asymmetric matrix."""
    with pytest.raises(ValueError, match=words):
        GpuTopology.build("bad", gpus, **columns)
