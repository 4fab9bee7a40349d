"""Policies as their authors' programs: the index and the random order by hand, and every rule of a policy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from slurmsched.allocation.heterogeneity import HeterogeneousCluster
from slurmsched.errors import ConfigError
from slurmsched.sim.experiments.released_policies import (
    RELEASED,
    load_policy,
    make_policy,
    released_index,
    shuffled_as_released,
)
from slurmsched.testing import check_policy, snapshot

HISTORY = np.array([4.0, 8.0, 12.0])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("allox-as-released", {}), ("gavel-as-released", {"objective": "makespan"}), ("gittins-as-released", {}),
     ("gavel-as-released", {"objective": "sum-throughput"}), ("gavel-as-released", {"objective": "ftf"})],
)  # fmt: skip
def test_policies__keep_every_rule(name: str, parameters: dict[str, object]) -> None:
    """Every rule of check_policy."""
    assert check_policy(make_policy(name, parameters)) is None


def test_make_policy__finds_all_and_refuses_what_is_none() -> None:
    """Ours and those of the registry; accounts came after the released simulator."""
    assert {load_policy(name) for name in RELEASED} == set(RELEASED.values())
    assert type(make_policy("fifo", {})).__name__ == "Fifo"
    with pytest.raises(ConfigError, match="no policy 'gavel-released'"):
        make_policy("gavel-released", {})
    with pytest.raises(ConfigError, match="has no accounts"):
        make_policy("gavel-as-released", {"accounts": True})


@pytest.mark.parametrize(
    ("attained", "index"),
    [
        (0.0, 1 / (4 + 4 + 4)),  # from 3: the 4 ends, served 4; the other two delta each
        (5.0, 1 / (8 + 4)),  # from 7: the 8 ends, counted whole; 12 is served delta
        (8.0, 0.0),  # from 11: the last sample never ends
        (12.0, 0.0),
    ],
)
def test_released_index__agrees_with_hand(attained: float, index: float) -> None:
    """The released simulator's table on {4, 8, 12} with delta 4: just below the next sample, service from 0."""
    assert released_index(HISTORY, np.array([attained]), 4.0)[0] == pytest.approx(index, rel=1e-15)


def test_shuffled_as_released__is_pythons_own_order() -> None:
    """The order of each round is that of random.Random(seed + 5)."""
    here = HeterogeneousCluster(
        ("k80", "p100", "v100"), np.ones(3), np.ones(1), np.array([[1.0, 2.0, 3.0]]), np.ones(1, np.bool_)
    )
    theirs, drawn = random.Random(5), []
    for _ in range(6):
        order = ["v100", "p100", "k80"]
        theirs.shuffle(order)
        drawn.append(order)
    ours = [[here.types[c] for c in shuffled_as_released(here, snapshot(), n)] for n in range(6)]
    assert ours == drawn
