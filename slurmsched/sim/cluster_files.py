"""The cluster of a replay, from words: NODESxGPUS, auto, or a file that describes one."""

from __future__ import annotations

import math
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from slurmsched.config import ConfigSection, Count
from slurmsched.config_file import read_toml
from slurmsched.errors import ConfigError, InputError
from slurmsched.model import hostlists
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import (
    DEFAULT_PARTITION,
    PARENT,
    ClusterDescription,
    ClusterLayout,
    LimitSpec,
    NodeSpec,
    PartitionSpec,
)
from slurmsched.sim.cluster_slurm_conf import billing_weights, licenses_of, settings_of
from slurmsched.sim.slurmctld.slurmctld_settings import checked

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


# A cluster as a TOML file: nodes, partitions, limits, values of slurm.conf, and what slurm.conf cannot have.


class NodeGroup(ConfigSection):
    """Nodes that are alike: by names, a hostlist, or only that many."""

    names: str = ""
    count: int = Field(1, ge=1)
    gpus: Count
    gpu_type: str = ""
    cpus: Count = 0  # 0 = one for each GPU
    memory_mib: float = Field(0.0, ge=0)  # 0 = not counted
    features: tuple[str, ...] = ()
    weight: Count = 1


class PartitionTable(ConfigSection):
    """A partition; the first is the default one. nodes: a hostlist, empty = all. billing: as TRESBillingWeights."""

    name: str
    nodes: str = ""
    tier: Count = 1
    factor: Count = 1
    max_time_s: float = Field(0.0, ge=0)
    default_time_s: float = Field(0.0, ge=0)
    min_nodes: Count = 0
    max_nodes: Count = 0
    billing: str = ""
    qos: str = ""
    exclusive: bool = False
    preempt_mode: Literal["", "off", "cancel", "requeue"] = ""
    max_cpus_per_node: Count = 0
    grace_s: float = Field(0.0, ge=0)
    least_loaded: bool = False


class LimitsTable(ConfigSection):
    """Of a QOS, an account or a user of one; 0 = none."""

    name: str
    max_jobs_per_user: Count = 0
    max_gpus_per_user: Count = 0
    group_gpus: Count = 0
    group_jobs: Count = 0
    max_gpus_per_job: Count = 0
    max_gpu_s_per_job: float = Field(0.0, ge=0)
    max_wall_s: float = Field(0.0, ge=0)
    group_gpu_s: float = Field(0.0, ge=0)
    group_wall_s: float = Field(0.0, ge=0)
    group_run_gpu_s: float = Field(0.0, ge=0)
    max_submit_per_user: Count = 0
    group_submit: Count = 0


class QosTable(LimitsTable):
    """A QOS: limits, priority, and how its use counts."""

    priority: Count = 0
    usage_factor: float = Field(1.0, ge=0)
    no_decay: bool = False
    over_part_qos: bool = False
    max_jobs_per_account: Count = 0
    max_gpus_per_account: Count = 0
    preempts: tuple[str, ...] = ()
    preempt_mode: Literal["", "off", "cancel", "requeue"] = ""
    grace_s: float = Field(0.0, ge=0)


class AccountTable(LimitsTable):
    """An account, or with `user` one of its users. shares: "parent" or a number. usage: RawUsage at the begin."""

    user: str = ""
    parent: str = ""
    shares: Count | Literal["parent"] = 1
    usage: float = Field(0.0, ge=0)


class ClusterTree(ConfigSection):
    """The whole file. slurm: keys and values of slurm.conf. model: fields of SlurmctldSettings."""

    nodes: tuple[NodeGroup, ...]
    partitions: tuple[PartitionTable, ...] = ()
    qos: tuple[QosTable, ...] = ()
    accounts: tuple[AccountTable, ...] = ()
    slurm: dict[str, str | int | float] = Field(default_factory=dict)
    model: dict[str, str | int | float | bool] = Field(default_factory=dict)


def read_cluster_toml(path: Path) -> ClusterDescription:
    """The cluster of the file. Raises ConfigError naming file and key."""
    try:
        tree = ClusterTree.model_validate(read_toml(path))
        nodes = _nodes(tree.nodes)
        partitions = tuple(_partition(each) for each in tree.partitions)
        qos = tuple(LimitSpec(**each.model_dump()) for each in tree.qos)
        accounts = tuple(_account(each) for each in tree.accounts)
        named = partitions or (PartitionSpec(DEFAULT_PARTITION),)
        layout = ClusterLayout(nodes, named, qos, accounts, licenses=licenses_of(tree.slurm))
        cpus_known = any(group.cpus for group in tree.nodes)
        return ClusterDescription(layout, settings_of(tree.slurm), checked(tree.model), cpus_known=cpus_known)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(_validation_text(first), key=".".join(map(str, first["loc"])), source=str(path)) from None
    except ConfigError as error:
        raise ConfigError(error.message, key=error.key, source=error.source or str(path)) from error


def _partition(table: PartitionTable) -> PartitionSpec:
    fields = table.model_dump() | {"nodes": _hosts(table.nodes, f"partitions.{table.name}")}
    return PartitionSpec(**fields | {"billing": billing_weights(table.billing)})


def _account(table: AccountTable) -> LimitSpec:
    fields = table.model_dump()
    return LimitSpec(**fields | {"shares": PARENT if table.shares == "parent" else table.shares})


def _validation_text(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "is no key of a cluster file; docs/replay.md lists them"
    return f"{error['msg']}, got {error['input']!r}" if error["type"] != "missing" else "is missing; docs/replay.md"


def _nodes(groups: Sequence[NodeGroup]) -> tuple[NodeSpec, ...]:
    """The nodes of all groups; those without names are numbered. Raises ConfigError for a name used twice."""
    total, made = sum(group.count for group in groups if not group.names), list[NodeSpec]()
    width, unnamed = len(str(total)), 0
    for place, group in enumerate(groups):
        names = _hosts(group.names, f"nodes.{place}.names")
        if not names:
            names = tuple(f"node{n:0{width}d}" for n in range(unnamed + 1, unnamed + group.count + 1))
            unnamed += group.count
        cpus = group.cpus or max(group.gpus, 1)
        kind = f"gpu:{group.gpu_type}:{group.gpus}" if group.gpu_type and group.gpus else ""
        more = (group.memory_mib, kind, group.features, group.weight)
        made += [NodeSpec(name, group.gpus, cpus, *more) for name in names]
    for name, uses in Counter(node.name for node in made).items():
        if uses > 1:
            raise ConfigError(f"{name} is named {uses} times", key="nodes")
    return tuple(made)


def _hosts(text: str, key: str) -> tuple[str, ...]:
    try:
        return hostlists.expand_hostlist(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is {error}", key=key) from error
