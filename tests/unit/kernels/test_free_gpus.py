"""GPUs that jobs want and nodes may give, against the plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.kernels.free_gpus import givable, wanted_of
from tests.reference import pile as reference


@pytest.mark.parametrize("seed", range(10))
def test_wanted_of__agrees_with_reference(seed: int) -> None:
    """What a job asks for while it waits, and holds while it runs; allocations of other jobs count for none."""
    chance = np.random.default_rng(seed)
    job_id, holder = np.arange(2, 8), np.sort(chance.integers(1, 10, 6))
    standing, asked = chance.integers(0, 3, 6), chance.integers(1, 9, 6).astype(np.int32)
    gpus = chance.integers(1, 5, 6).astype(np.int32)
    found = wanted_of(job_id, standing, asked, holder, gpus)
    assert found.tolist() == reference.wanted_of(job_id, standing, asked, holder, gpus)


@pytest.mark.parametrize("seed", range(10))
def test_givable__agrees_with_reference(seed: int) -> None:
    """What jobs of the snapshot hold, and what is free on nodes that take jobs; node -1 is none of these."""
    chance = np.random.default_rng(seed)
    closed, capacity = chance.random(4) < 0.3, np.full(4, 8, np.int32)
    node, gpus = chance.integers(-1, 4, 5), chance.integers(1, 3, 5).astype(np.int32)
    used = chance.integers(0, 9, 4).astype(np.int32)
    found = givable(closed, capacity, used, node, gpus)
    assert found.tolist() == reference.givable(closed, capacity, used, node, gpus)
