"""How far the GPUs of a job are from each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.replay.physics.levels import Level, levels, nearest_levels
from tests.unit.replay.physics.places import Place, holding, wired


@pytest.mark.parametrize(
    ("machine", "place", "level"),
    [
        ("dgx-1v", {0: 0b1}, Level.ISLAND), ("dgx-1v", {0: 0b1001}, Level.ISLAND),  # GPUs 0 and 3: two links
        ("dgx-1v", {0: 0b100001}, Level.NODE), ("dgx-1v", {0: 0xFF}, Level.ISLAND),  # 0 and 5 have none
        ("pcie-two-sockets", {0: 0b1100}, Level.ISLAND), ("pcie-two-sockets", {0: 0b11000}, Level.NODE),
        ("", {0: 0b100001}, Level.ISLAND), ("", {0: 1, 1: 1}, Level.LEAF),
    ],
)  # fmt: skip
def test_levels__of_one_place(machine: str, place: Place, level: Level) -> None:
    """An island is a ring of NVLinks, or a NUMA node where there are none; unknown wiring tells nothing apart."""
    assert levels(*holding([place], machine=machine)).tolist() == [level]


def test_levels__of_gangs_by_leaf() -> None:
    """Nodes of one leaf switch, and of two."""
    given, held = holding([{0: 0xFF, 1: 1}, {2: 0xF, 3: 0xF}, {1: 2, 2: 0x10}])
    given = replace(given, topology=wired("dgx-1v", 4, leaves=[0, 0, 1, 1]))
    assert levels(given, held).tolist() == [Level.LEAF, Level.LEAF, Level.ACROSS]


@pytest.mark.parametrize(
    ("machine", "leaves", "nearest"),
    [
        ("dgx-1v", [0, 0, 1, 1], [Level.ISLAND, Level.ISLAND, Level.ISLAND, Level.LEAF, Level.ACROSS]),
        ("pcie-two-sockets", [], [Level.ISLAND, Level.ISLAND, Level.NODE, Level.LEAF, Level.LEAF]),
        ("bridged-pairs", [0, 0, 0, 0], [Level.ISLAND, Level.NODE, Level.NODE, Level.LEAF, Level.LEAF]),
        ("", [], [Level.ISLAND, Level.ISLAND, Level.ISLAND, Level.LEAF, Level.LEAF]),
    ],
)  # fmt: skip
def test_nearest_levels__on_an_empty_cluster(machine: str, leaves: list[int], nearest: list[Level]) -> None:
    """The nearest level that 2, 4, 8, 16 and 32 GPUs can be on, whatever is held now."""
    places = [{0: 0b11}, {0: 0xF}, {0: 0xFF}, {0: 0xFF, 2: 0xFF}, dict.fromkeys(range(4), 0xFF)]
    given, held = holding(places, machine=machine)
    given = replace(given, topology=wired(machine, 4, leaves))
    assert nearest_levels(given, held.rows).tolist() == nearest


def test_levels__of_no_job() -> None:
    """Nothing held, no level."""
    given, held = holding([{0: 1}])
    none = replace(held, rows=held.rows[:0], first=held.first[:0], count=held.count[:0])
    assert np.array_equal(levels(given, none), [])
