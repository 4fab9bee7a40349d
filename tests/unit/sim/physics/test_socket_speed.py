"""The SC '17 model: distance and jobs beside."""

from __future__ import annotations

import pytest

from slurmsched.errors import ConfigError
from slurmsched.sim.physics.interconnect_speed import SocketSpeed
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import Place, holding

# Seconds of AlexNet, batch size 1, on 2 P100: alone on one socket and on two; beside AlexNet and GoogLeNet of batch
# size 1, 4, 64, 128. Source: gpu-topo-aware 8125c2875ad9, prof_from_experiments.json (Apache-2.0).
ONE_SOCKET, TWO_SOCKETS = 127.415, 159.115
BESIDE = (167.87, 172.08, 158.12, 156.29, 157.87, 154.52, 154.17, 155.74)


def test_topology_aware__conforms() -> None:
    """The rules of all physics."""
    check_physics(SocketSpeed(), ("alexnet", "GoogLeNet"))


def test_topology_aware__defaults_are_those_of_the_profile() -> None:
    """Two sockets 0.80 of one; beside another program 0.80 of alone, the mean over eight."""
    beside = sum(ONE_SOCKET / seconds for seconds in BESIDE) / len(BESIDE)
    physics = SocketSpeed()
    assert (round(ONE_SOCKET / TWO_SOCKETS, 2), round(beside, 2)) == (physics.across_sockets, physics.beside)


@pytest.mark.parametrize(
    ("machine", "places", "speeds"),
    [
        ("dgx-1v", [{0: 0b1001}], [1.0]),  # NVLink
        ("dgx-1v", [{0: 0b100001}], [0.5]),  # over two sockets: the worst pair
        ("dgx-1v", [{0: 0b1001}, {0: 0b10}], [0.5, 1.0]),  # a job beside; one GPU talks to nobody
        ("dgx-1v", [{0: 0b1001}, {0: 0b10000}], [1.0, 1.0]),  # on the other socket
        ("dgx-1v", [{0: 0b1001}, {1: 0b10}], [1.0, 1.0]),  # on another node
        ("dgx-1v", [{0: 0b100001}, {0: 0b1100}], [0.25, 0.5]),  # both
        ("dgx-1v", [{0: 1, 1: 1}], [0.5]),  # fits on one node
        ("dgx-1v", [{0: 0xFF, 1: 1}], [1.0]),  # does not
        ("", [{0: 0b1001}, {0: 0b10}], [0.5, 1.0]),  # a node of unknown wiring is one socket, without distances
    ],
)
def test_topology_aware__speed(machine: str, places: list[Place], speeds: list[float]) -> None:
    """Half as fast at the largest cost, and half as fast again beside another job."""
    speed = SocketSpeed(across_sockets=0.5, beside=0.5).speed(*holding(places, machine=machine))
    assert speed.tolist() == pytest.approx(speeds)


def test_topology_aware__between_the_nearest_and_the_worst_set() -> None:
    """Three GPUs of a socket joined by NVLink, and with one of them across: run time follows the cost."""
    speeds = [SocketSpeed().speed(*holding([{0: mask}])).tolist()[0] for mask in (0b111, 0b10011, 0b100001 | 0b100)]
    assert speeds[0] == 1.0
    assert speeds[0] > speeds[1] > speeds[2] >= 0.8 - 1e-9


def test_topology_aware__insensitive_models_mind_neighbours_only() -> None:
    """GoogLeNet's run time does not depend on the socket, but on who is beside."""
    given = holding([{0: 0b100001}, {0: 0b10}], name="bvlc_googlenet")
    assert SocketSpeed(beside=0.5).speed(*given).tolist() == [0.5, 1.0]


def test_topology_aware__refuses_what_is_no_share() -> None:
    """Above 0, at most 1."""
    with pytest.raises(ConfigError, match=r"physics\.beside"):
        SocketSpeed(beside=1.5)
