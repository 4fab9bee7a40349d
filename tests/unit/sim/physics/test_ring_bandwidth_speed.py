"""Run time by predicted bandwidth."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.errors import ConfigError
from slurmsched.placements.mapa import predicted_gb_per_s
from slurmsched.sim.physics.interconnect_speed import RingBandwidthSpeed
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import Place, holding

DOUBLE, SINGLE, PCIE = (predicted_gb_per_s(*links) for links in ((2, 0, 0), (0, 2, 0), (0, 0, 2)))


def test_mapa__conforms() -> None:
    """The rules of all physics."""
    check_physics(RingBandwidthSpeed(), ("vgg16", "googlenet"))


def test_mapa__default_share_gives_the_paper_s_worst_case() -> None:
    """A pair on PCIe instead of a double NVLink: its run time falls by 35 % on the better pair."""
    share = RingBandwidthSpeed().communication_share
    assert round(1 - 1 / (1 + share * (DOUBLE / PCIE - 1)), 2) == 0.35


@pytest.mark.parametrize(
    ("machine", "place", "got"),
    [
        ("dgx-1v", {0: 0b1001}, DOUBLE), ("dgx-1v", {0: 0b11}, SINGLE), ("dgx-1v", {0: 0b100001}, PCIE),
        ("dgx-1v", {0: 1, 1: 1}, 12.5), ("dgx-1v", {0: 1}, DOUBLE),  # one GPU talks to nobody
        ("", {0: 0b100001}, DOUBLE), ("dgx-2", {0: 0b11}, DOUBLE),  # unknown; no prediction for 16 GPUs
    ],
)  # fmt: skip
def test_mapa__speed_goes_with_the_ring_s_bandwidth(machine: str, place: Place, got: float) -> None:
    """Half of the run time is communication at the best pair."""
    nodes = "2x16" if machine == "dgx-2" else "2x8"
    speed = RingBandwidthSpeed(communication_share=0.5).speed(*holding([place], nodes, machine))
    assert speed.tolist() == pytest.approx([1 / (0.5 + 0.5 * DOUBLE / got)])


def test_mapa__a_gang_that_no_node_holds_is_as_recorded() -> None:
    """Its recorded run time was between nodes too."""
    assert RingBandwidthSpeed().speed(*holding([{0: 0xFF, 1: 0xF}])).tolist() == [1.0]


def test_mapa__insensitive_models_run_anywhere() -> None:
    """CaffeNet and GoogLeNet are the paper's."""
    far: list[Place] = [{0: 0b100001}]
    speeds = [
        RingBandwidthSpeed().speed(*holding(far, name=name)).tolist()[0] for name in ("caffenet", "GoogLeNet", "vgg16")
    ]
    assert (speeds[:2], speeds[2] < 1) == ([1.0, 1.0], True)


@pytest.mark.parametrize("words", [{"communication_share": 1.0}, {"between_nodes_gb_per_s": 0.0}])
def test_mapa__refuses_what_is_no_share_or_bandwidth(words: dict[str, Any]) -> None:
    """The setting is named."""
    with pytest.raises(ConfigError, match=f"physics.{next(iter(words))}"):
        RingBandwidthSpeed(**words)
