"""What `slurmsched init` finds out about a site: its release, where its GPUs are, who keeps its accounts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmsched.slurm.commands import Commands
from slurmsched.slurm.site import read_settings

_GPUS = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)")


@dataclass(frozen=True, slots=True)
class GpuPartition:
    """A partition with GPUs. types: names of gres.conf in ascending order, none where it gives none."""

    name: str
    nodes: int
    gpus: int
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FirstLook:
    """version, cluster, slurm_user: of slurm.conf. partitions: those with GPUs, most GPUs first."""

    version: str
    cluster: str
    slurm_user: str
    multifactor: bool
    slurmdbd: bool
    partitions: tuple[GpuPartition, ...]


def first_look(commands: Commands) -> FirstLook:
    """The site as it is. Raises SlurmError when slurmctld does not answer."""
    settings = read_settings(commands)
    return FirstLook(
        settings.get("SLURM_VERSION", ""),
        settings.get("ClusterName", ""),
        settings.get("SlurmUser", "").partition("(")[0],
        "multifactor" in settings.get("PriorityType", ""),
        "slurmdbd" in settings.get("AccountingStorageType", ""),
        gpu_partitions(commands.run("sinfo", "-h", "-a", "-o", "%R|%D|%G")),
    )


def gpu_partitions(text: str) -> tuple[GpuPartition, ...]:
    """Those of `sinfo -o "%R|%D|%G"`, which has a line for every kind of node in a partition."""
    nodes: dict[str, int] = {}
    gpus: dict[str, int] = {}
    types: dict[str, set[str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        count, _, gres = rest.partition("|")
        found = _GPUS.findall(gres)
        if not found or not count.isdigit():
            continue
        nodes[name] = nodes.get(name, 0) + int(count)
        gpus[name] = gpus.get(name, 0) + int(count) * sum(int(each) for _, each in found)
        types.setdefault(name, set()).update(kind for kind, _ in found if kind)
    made = [GpuPartition(name, nodes[name], gpus[name], tuple(sorted(types[name]))) for name in nodes]
    return tuple(sorted(made, key=lambda one: (-one.gpus, one.name)))
