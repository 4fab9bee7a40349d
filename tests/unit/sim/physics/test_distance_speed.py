"""Speed by placement level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.sim.physics.interconnect_speed import DistanceSpeed, GpuDistance, levels, nearest_levels
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import Place, holding, wired

# Seconds for the same work of 2 P100 on one socket and on two, by network and batch size 1, 4, 64, 128.
# Source: gpu-topo-aware 8125c2875ad9, prof_from_experiments.json, solo (Apache-2.0).
SC17 = [
    (127.415, 159.115), (152.285, 187.32), (936.71, 954.5), (1779.79, 1795.05),
    (146.135, 150.265), (299.16, 305.375), (3401.1, 3387.095), (6587.755, 6644.66),
]  # fmt: skip


def test_spread__conforms() -> None:
    """The rules of all physics."""
    check_physics(DistanceSpeed(insensitive=("easy",)), ("bert", "Easy-Net"))


def test_spread__default_of_two_sockets_is_the_mean_of_its_source() -> None:
    """0.94: mean over the eight measured pairs."""
    assert round(sum(near / far for near, far in SC17) / len(SC17), 2) == DistanceSpeed().node


def test_spread__by_level_over_the_nearest_level() -> None:
    """One island, one node, one leaf, across; a gang of 16 that must be on two nodes is not slowed by that."""
    places = [{0: 0b1001}, {0: 0b100010}, {1: 1, 0: 4}, {1: 2, 2: 1}, {2: 0xFE, 3: 0xFF, 1: 4}, {0: 0xFF, 1: 0xFF}]
    given, held = holding(places)
    given = replace(given, topology=wired("dgx-1v", 4, leaves=[0, 0, 1, 1]))
    speed = DistanceSpeed(node=0.9, leaf=0.5, across=0.25).speed(given, held)
    assert speed.tolist() == [1.0, 1.0, 0.5, 0.25, 0.5, 1.0]


def test_spread__slows_only_who_cares() -> None:
    """Not the models named insensitive, nor jobs with the hint topo=any."""
    far = [{0: 0b100001}]
    cases = [({}, 0.9), ({"name": "ResNet-50"}, 0.9), ({"name": "bvlc_GoogLeNet"}, 1.0),
             ({"comment": "slurmsched: topo=any"}, 1.0)]  # fmt: skip
    physics = DistanceSpeed(node=0.9, insensitive=("googlenet",))
    assert [physics.speed(*holding(far, **job)).tolist() for job, _ in cases] == [[speed] for _, speed in cases]


@pytest.mark.parametrize("levels", [{"node": 1.1}, {"leaf": 0.0}, {"across": 0.8}, {"node": "fast"}])
def test_spread__refuses_levels_that_ascend_or_are_no_share(levels: dict[str, float]) -> None:
    """Farther is not faster."""
    with pytest.raises(ConfigError, match="physics"):
        DistanceSpeed(**levels)


# How far the GPUs of a job are from each other.


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
