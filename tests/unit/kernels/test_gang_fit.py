"""How a gang is split over nodes, against the plain twin."""

from __future__ import annotations

import pytest

from slurmsched.kernels.gang_fit import part_of
from tests.reference import gang as reference


@pytest.mark.parametrize("size", [1, 4, 8])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_part_of__agrees_with_reference(size: int, nodes: int) -> None:
    """Whole nodes and a rest, or equal parts where these come out or more nodes are asked for."""
    counts = range(1, 25)
    assert [min(part_of(gpus, nodes, size), gpus) for gpus in counts if gpus >= nodes] == [
        reference.parts(gpus, nodes, size)[0] for gpus in counts if gpus >= nodes
    ]
