"""GPU topologies of machines that are in wide use: links as their makers publish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slurmsched.model.topology import GpuTopology, LinkKind

Pairs = Sequence[tuple[int, int]]
_PCIE = {LinkKind.SYS: 8.0, LinkKind.NODE: 9.0, LinkKind.PHB: 10.0, LinkKind.PXB: 11.0, LinkKind.PIX: 12.0}
_CUBE_DOUBLE: Pairs = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_CUBE_SINGLE: Pairs = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))


def machine(
    name: str, numa: Sequence[int], lanes: Mapping[int, Pairs], *, lane_gb_per_s: float, pcie_group: Sequence[int] = ()
) -> GpuTopology:
    """A class from its NVLink pairs by number of lanes; GPUs not so linked meet in a switch, a NUMA node or beyond.

    numa, pcie_group: for each GPU. lane_gb_per_s: one lane, one direction [GB/s].
    """
    gpus, node, switch = len(numa), np.array(numa), np.array(pcie_group or range(len(numa)))
    kind = np.where(node[:, None] == node, LinkKind.NODE, LinkKind.SYS)
    kind[switch[:, None] == switch] = LinkKind.PIX
    count = np.zeros((gpus, gpus), np.int16)
    for number, pairs in lanes.items():
        for a, b in pairs:
            count[a, b] = count[b, a] = number
    kind[count > 0] = LinkKind.NVLINK
    speed = np.where(count > 0, count * lane_gb_per_s, np.vectorize(lambda k: _PCIE.get(k, 0.0), [float])(kind))
    for matrix in (kind, speed):
        np.fill_diagonal(matrix, 0)
    return GpuTopology.build(
        name, gpus, kind=kind, lanes=count, bandwidth_gb_per_s=speed, numa=node, pcie_group=switch
    )  # fmt: skip


def all_pairs(gpus: Sequence[int]) -> Pairs:
    return [(a, b) for i, a in enumerate(gpus) for b in gpus[i + 1 :]]


def machines() -> dict[str, GpuTopology]:
    """Classes by name: mesh, quads, triangles, switch, bridged pairs, plain PCIe."""
    halves, four = (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 1)
    quads = [*all_pairs(range(4)), *all_pairs(range(4, 8)), (0, 4), (1, 5), (2, 6), (3, 7)]
    triangles = [*all_pairs(range(3)), *all_pairs(range(3, 6))]
    bridges = ((0, 1), (2, 3), (4, 5), (6, 7))
    uneven = {1: ((0, 3), (1, 2), (2, 3)), 2: ((0, 1), (0, 2), (1, 3))}
    pairs = tuple(g // 2 for g in range(16))
    made = (
        machine("dgx-1v", halves, {2: _CUBE_DOUBLE, 1: _CUBE_SINGLE}, lane_gb_per_s=25, pcie_group=pairs[:8]),
        machine("dgx-1p", halves, {1: quads}, lane_gb_per_s=20, pcie_group=pairs[:8]),
        machine("summit", (0, 0, 0, 1, 1, 1), {2: triangles}, lane_gb_per_s=25),
        machine("dgx-a100", (3, 3, 1, 1, 7, 7, 5, 5), {12: all_pairs(range(8))}, lane_gb_per_s=25),
        machine("hgx-a100-4", four, {4: all_pairs(range(4))}, lane_gb_per_s=25),
        machine("bridged-pairs", halves, {4: bridges}, lane_gb_per_s=14),
        machine("one-bridge", four, {12: ((0, 1),)}, lane_gb_per_s=25),
        machine("pairs-across-numa", (0, 1, 2, 3), {12: ((0, 1), (2, 3))}, lane_gb_per_s=25),
        machine("uneven-v100", (0, 0, 0, 0), uneven, lane_gb_per_s=25),
        machine("pcie-two-sockets", halves, {}, lane_gb_per_s=0, pcie_group=pairs[:8]),
        machine("pcie-no-switches", halves, {}, lane_gb_per_s=0),
        machine("pcie-uneven", (0, 0, 0, 0, 1, 1), {}, lane_gb_per_s=0, pcie_group=pairs[:6]),
        machine("dgx-2", (0,) * 8 + (1,) * 8, {6: all_pairs(range(16))}, lane_gb_per_s=25, pcie_group=pairs),
    )
    return {topology.name: topology for topology in made}
