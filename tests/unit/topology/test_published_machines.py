"""Machines for tests have the links their makers publish."""

from __future__ import annotations

import pytest

from slurmsched.model.gpu_topology import LinkKind
from slurmsched.topology.gpu_links import machines

LANES = {"dgx-1v": 6, "dgx-1p": 4, "summit": 4, "dgx-a100": 84, "hgx-a100-4": 12, "bridged-pairs": 4, "dgx-2": 90}


@pytest.mark.parametrize(("name", "lanes"), LANES.items())
def test_machines__have_the_nvlink_lanes_of_a_gpu(name: str, lanes: int) -> None:
    """Lanes to all peers; on a switch the lanes to each peer are counted."""
    assert set(machines()[name].lanes.sum(axis=1).tolist()) == {lanes}


def test_machines__without_nvlink_meet_in_switch_node_or_beyond() -> None:
    """GPUs 0 and 1 share a switch, 2 the NUMA node, 4 neither."""
    one = machines()["pcie-two-sockets"]
    kinds = [LinkKind(int(one.kind[0, g])) for g in (1, 2, 4)]
    assert kinds == [LinkKind.PIX, LinkKind.NODE, LinkKind.SYS]
    assert (one.bandwidth_gb_per_s[0, 1:] > 0).all()
