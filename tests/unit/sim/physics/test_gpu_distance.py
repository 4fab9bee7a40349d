"""How far the GPUs of a job are from each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.sim.physics.gpu_distance import GpuDistance, levels, nearest_levels
from tests.unit.sim.physics.places import Place, holding, wired


@pytest.mark.parametrize(
    ("machine", "place", "level"),
    [
        ("dgx-1v", {0: 0b1}, GpuDistance.ISLAND),
        ("dgx-1v", {0: 0b1001}, GpuDistance.ISLAND),  # GPUs 0 and 3: two links
        ("dgx-1v", {0: 0b100001}, GpuDistance.NODE),
        ("dgx-1v", {0: 0xFF}, GpuDistance.ISLAND),  # 0 and 5 have none
        ("pcie-two-sockets", {0: 0b1100}, GpuDistance.ISLAND),
        ("pcie-two-sockets", {0: 0b11000}, GpuDistance.NODE),
        ("", {0: 0b100001}, GpuDistance.ISLAND),
        ("", {0: 1, 1: 1}, GpuDistance.LEAF),
    ],
)
def test_levels__of_one_place(machine: str, place: Place, level: GpuDistance) -> None:
    """An island is a ring of NVLinks, or a NUMA node where there are none; unknown wiring tells nothing apart."""
    assert levels(*holding([place], machine=machine)).tolist() == [level]


def test_levels__of_gangs_by_leaf() -> None:
    """Nodes of one leaf switch, and of two."""
    given, held = holding([{0: 0xFF, 1: 1}, {2: 0xF, 3: 0xF}, {1: 2, 2: 0x10}])
    given = replace(given, topology=wired("dgx-1v", 4, leaves=[0, 0, 1, 1]))
    assert levels(given, held).tolist() == [GpuDistance.LEAF, GpuDistance.LEAF, GpuDistance.ACROSS]


@pytest.mark.parametrize(
    ("machine", "leaves", "nearest"),
    [
        (
            "dgx-1v",
            [0, 0, 1, 1],
            [GpuDistance.ISLAND, GpuDistance.ISLAND, GpuDistance.ISLAND, GpuDistance.LEAF, GpuDistance.ACROSS],
        ),
        (
            "pcie-two-sockets",
            [],
            [GpuDistance.ISLAND, GpuDistance.ISLAND, GpuDistance.NODE, GpuDistance.LEAF, GpuDistance.LEAF],
        ),
        (
            "bridged-pairs",
            [0, 0, 0, 0],
            [GpuDistance.ISLAND, GpuDistance.NODE, GpuDistance.NODE, GpuDistance.LEAF, GpuDistance.LEAF],
        ),
        ("", [], [GpuDistance.ISLAND, GpuDistance.ISLAND, GpuDistance.ISLAND, GpuDistance.LEAF, GpuDistance.LEAF]),
    ],
)
def test_nearest_levels__on_an_empty_cluster(machine: str, leaves: list[int], nearest: list[GpuDistance]) -> None:
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
