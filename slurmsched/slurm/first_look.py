"""What `slurmsched init` finds out about a site: its release, where its GPUs are, who keeps its accounts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import count_gpus, count_mig, parse_gres
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.site import read_settings


@dataclass(frozen=True, slots=True)
class GpuPartition:
    """A partition with GPUs. nodes: those that have some. gpus: whole ones. mig: MIG devices. types: names of gres.conf
    in ascending order, none where it gives none. unread: nodes whose gres cannot be read."""

    name: str
    nodes: int
    gpus: int
    types: tuple[str, ...] = ()
    mig: int = 0
    unread: int = 0


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
    found: dict[str, GpuPartition] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        count, _, gres = rest.partition("|")
        if count.isdecimal() and "gpu" in gres:
            found[name] = _with(found.get(name, GpuPartition(name, 0, 0)), int(count), gres)
    made = [one for one in found.values() if one.nodes or one.unread]
    return tuple(sorted(made, key=lambda one: (-one.gpus, -one.mig, one.name)))


def _with(one: GpuPartition, nodes: int, gres: str) -> GpuPartition:
    """The partition with so many more nodes of this gres."""
    try:
        entries = [entry for entry in parse_gres(gres) if entry.kind == "gpu"]
    except UnreadableError:
        return replace(one, unread=one.unread + nodes)
    if not entries:
        return one
    types = {*one.types, *(entry.type for entry in entries if entry.type)}
    return GpuPartition(one.name, one.nodes + nodes, one.gpus + nodes * count_gpus(entries), tuple(sorted(types)),
                        one.mig + nodes * count_mig(entries), one.unread)  # fmt: skip
