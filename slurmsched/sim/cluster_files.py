"""The cluster of a replay, from words: NODESxGPUS, auto, or a file that describes one."""

from __future__ import annotations

import math
import re
import zipfile
from pathlib import Path

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_description import ClusterDescription
from slurmsched.sim.cluster_layout import DEFAULT_PARTITION, ClusterLayout, LimitSpec, NodeSpec, PartitionSpec

AUTO_NODE_GPUS, AUTO_LOAD = 8, 0.8
_GROUP = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,3})(?::([A-Za-z0-9_.-]+))?")
_OUT_OF_RANGE = re.compile(r"\d+x\d+(:|$)")
FORM = ("write NODESxGPUS (20x8, 2x4:v100+4x4:p100), auto, or name a TOML file, a slurm.conf, a folder with one, "
        "or a saved snapshot")  # fmt: skip


def cluster_of(text: str, trace: Trace) -> ClusterDescription:
    """The cluster of "20x8" or "2x4:v100+4x4:p100", of a file or folder, or for "auto".

    auto: nodes of 8 GPUs, as many as the trace keeps 80 % busy while jobs come, and enough for its largest job.
    Raises InputError for anything else, InputError or ConfigError for a file that describes none.
    """
    if all(groups := [_GROUP.fullmatch(part) for part in text.split("+")]):
        rows = [(int(m[2]), m[3] or "") for m in groups if m for _ in range(int(m[1]))]
        return ClusterDescription(ClusterLayout.of_gpus([gpus for gpus, _ in rows], [kind for _, kind in rows]))
    if text == "auto":
        return ClusterDescription(ClusterLayout.of_gpus(_smallest_cluster(trace)))
    made = _of_file(Path(text))
    if not made.gpus:
        raise InputError(f"needs nodes with at least one GPU; {FORM}", source=text)
    return made


def _smallest_cluster(trace: Trace) -> tuple[int, ...]:
    span_s = max(float(np.ptp(trace.submit_s)), float(trace.duration_s.max(initial=1.0)))
    busy = float((trace.gpus * trace.duration_s).sum()) / span_s / AUTO_LOAD
    return (AUTO_NODE_GPUS,) * math.ceil(max(busy, int(trace.gpus.max(initial=1))) / AUTO_NODE_GPUS)


def _of_file(path: Path) -> ClusterDescription:
    from slurmsched.sim.cluster_slurm_conf import read_slurm_site
    from slurmsched.sim.cluster_toml import read_cluster_toml  # late, with pydantic and Slurm's grammars

    if not path.exists():
        if any(_OUT_OF_RANGE.match(part) for part in str(path).split("+")):
            raise InputError(f"is no cluster: 1 to 999999 nodes of 1 to 9999 GPUs; {FORM}", source=str(path))
        raise InputError(f"is no cluster and no file; {FORM}", source=str(path))
    if path.is_dir() or path.suffix == ".conf":
        return read_slurm_site(path)
    if zipfile.is_zipfile(path):
        return _of_snapshot(path)
    return read_cluster_toml(path)


def _of_snapshot(path: Path) -> ClusterDescription:
    """The cluster of `snapshot save`: nodes as they were, closed ones too. Raises InputError."""
    from slurmsched.observe.snapshot_file import read_snapshot

    held = read_snapshot(path).snapshot
    nodes, listed = held.nodes, held.partitions
    columns = (nodes.name, nodes.gpus.tolist(), nodes.cpus.tolist(), nodes.memory_mib.tolist(), nodes.gpu_types)
    made = tuple(
        NodeSpec(name, gpus, cpus, memory, kind) for name, gpus, cpus, memory, kind in zip(*columns, strict=True)
    )
    order = sorted(range(len(listed)), key=lambda row: not listed.default[row])
    partitions = tuple(
        PartitionSpec(
            listed.name[row],
            members,
            int(listed.priority_tier[row]),
            max_time_s=_limit_or_none(listed.max_time_s[row]),
            default_time_s=_limit_or_none(listed.default_time_s[row]),
            max_cpus_per_node=int(_limit_or_none(listed.max_cpus_per_node[row])),
        )
        for row in order
        if (
            members := tuple(
                name for name, of in zip(nodes.name, nodes.partitions, strict=True) if listed.name[row] in of.split(",")
            )
        )
    )
    accounts = tuple(LimitSpec(name, shares=round(1_000 * shares)) for name, shares in held.shares.items())
    layout = ClusterLayout(made, partitions or (PartitionSpec(DEFAULT_PARTITION),), accounts=accounts)
    return ClusterDescription(layout, held.site.settings, cpus_known=True)


def _limit_or_none(most: float) -> float:
    """A limit of a partition, 0 = none."""
    return float(most) if math.isfinite(most) else 0.0
