"""A reading as plain values, for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurmsched.model.topology import GpuTopology
from slurmsched.topology.cells import NamedFabric, nodes_under
from slurmsched.topology.links import links_of
from slurmsched.topology.plain import fold
from slurmsched.topology.reading import NodeClass, Reading


def record(reading: Reading) -> dict[str, Any]:
    """Kind, warnings and notes, and what of these the file tells: the GPUs of a node, classes of nodes, fabrics.

    A file with one class of node has that class's values (see class_record) beside its kind.
    """
    found: dict[str, Any] = {"kind": reading.kind or "unknown"}
    if len(reading.classes) == 1:
        found |= class_record(reading.classes[0])
    else:
        found |= {"gpus": None, "links": [], "numa": [], "pcie_groups": [], "nics": []}
    if len(reading.classes) > 1:
        found["classes"] = [class_record(one) for one in reading.classes]
    if reading.fabrics:
        found["fabrics"] = [fabric_record(one) for one in reading.fabrics]
    if reading.gpus:
        found["gpus_by_node"] = dict(reading.gpus)
    if reading.nic_names:
        found["nic_names"] = dict(reading.nic_names)
    return found | {"warnings": list(reading.warnings), "notes": list(reading.notes)}


def class_record(one: NodeClass) -> dict[str, Any]:
    """As topology_record, with the nodes and, by index, the device files that Slurm has."""
    found = topology_record(one.topology)
    if one.nodes:
        found["nodes"] = fold(one.nodes)
    if one.autodetect:
        found["autodetect"] = one.autodetect
    if one.devices:
        found["devices"] = [list(device.files) for device in one.devices]
    return found


def topology_record(node: GpuTopology) -> dict[str, Any]:
    """The class: links as [i, j, kind, lanes] of each known pair; numa with null for unknown; pcie_groups as lists of
    GPUs; nics by GPU, name -> kind, nearest first; bandwidths as [i, j, GB/s one way] where the model is known."""
    switches = node.pcie_group.tolist()
    kinds = node.nic_kinds or tuple(() for _ in node.nics)
    return {
        "name": node.name,
        "gpus": node.gpus,
        "gpu_type": node.gpu_type,
        "links": [[i, j, kind.name, lanes] for i, j, kind, lanes in links_of(node)],
        "bandwidths": [[i, j, float(node.bandwidth_gb_per_s[i, j])] for i, j, _, _ in links_of(node)
                       if node.bandwidth_gb_per_s[i, j]],
        "numa": [None if number < 0 else number for number in node.numa.tolist()],
        "pcie_groups": [[i for i, of in enumerate(switches) if of == group] for group in sorted(set(switches) - {-1})],
        "nics": [{nic: kind.name for nic, kind in zip(*of_gpu, strict=False)} for of_gpu in
                 zip(node.nics, kinds, strict=True)],
        "off_fabric": [i for i, on in enumerate(node.on_fabric.tolist()) if not on],
        "mig": [i for i, cut in enumerate(node.mig.tolist()) if cut],
    }  # fmt: skip


def fabric_record(one: NamedFabric) -> dict[str, Any]:
    """The cells, lowest level first, each with its level, the cell above it and the nodes under it."""
    fabric = one.fabric
    under = nodes_under(fabric)
    names = list(fabric.cell)
    cells = [
        {
            "name": name,
            "level": int(level),
            "parent": names[parent] if parent >= 0 else None,
            "nodes": fold(under[name]),
        }
        for name, level, parent in zip(names, fabric.level.tolist(), fabric.parent.tolist(), strict=True)
    ]
    found: dict[str, Any] = {"name": one.name, "kind": one.kind, "default": one.default, "cells": cells}
    more: Mapping[str, Any] = {"block_sizes": list(fabric.block_sizes), "domains": dict(one.domains),
                               "leaves": {leaf: fold(nodes) for leaf, nodes in one.leaves.items()}}  # fmt: skip
    return found | {key: value for key, value in more.items() if value}
