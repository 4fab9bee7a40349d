"""A cluster as a TOML file: nodes, partitions, limits, slurm.conf values, and what slurm.conf does not tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from slurmsched.config import ConfigSection, Count
from slurmsched.config_file import read_toml
from slurmsched.errors import ConfigError
from slurmsched.model import hostlists
from slurmsched.sim.cluster_description import ClusterDescription
from slurmsched.sim.cluster_layout import DEFAULT_PARTITION, PARENT, ClusterLayout, LimitSpec, NodeSpec, PartitionSpec
from slurmsched.sim.cluster_slurm_conf import billing_weights, licenses_of, settings_of
from slurmsched.sim.slurmctld.slurmctld_settings import checked


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
