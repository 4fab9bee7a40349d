"""What `slurmsched init` reads of a site: its release, its partitions with GPUs, its accounting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import count_gpus, count_mig, parse_gres
from slurmsched.model.snapshot import Site
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.site import read_settings


@dataclass(frozen=True, slots=True)
class GpuPartition:
    """A partition with GPUs.

    nodes: nodes with GPUs.
    gpus: whole GPUs.
    types: their types, ascending.
    mig: MIG devices.
    unread: nodes whose gres cannot be read.
    """

    name: str
    nodes: int
    gpus: int
    types: tuple[str, ...] = ()
    mig: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class DiscoveredSite:
    """A site.

    version, cluster, slurm_user: of slurm.conf.
    partitions: those with GPUs, most GPUs first.
    settings: keys of slurm.conf that begin with Priority.
    """

    version: str
    cluster: str
    slurm_user: str
    multifactor: bool
    slurmdbd: bool
    partitions: tuple[GpuPartition, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


def discover_site(commands: Commands) -> DiscoveredSite:
    """Read the site. Raises SlurmError if slurmctld does not answer."""
    settings = read_settings(commands)
    return DiscoveredSite(
        settings.get("SLURM_VERSION", ""),
        settings.get("ClusterName", ""),
        settings.get("SlurmUser", "").partition("(")[0],
        "multifactor" in settings.get("PriorityType", ""),
        Site(settings=settings).accounts_in_slurmdbd,
        gpu_partitions(commands.run("sinfo", "-h", "-a", "-o", "%R|%D|%G")),
        {key: value for key, value in settings.items() if key.startswith("Priority")},
    )


def gpu_partitions(text: str) -> tuple[GpuPartition, ...]:
    """Partitions with GPUs, from `sinfo -o "%R|%D|%G"`: one line for each kind of node in a partition."""
    found: dict[str, GpuPartition] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        count, _, gres = rest.partition("|")
        if count.isdecimal() and "gpu" in gres:
            found[name] = _with(found.get(name, GpuPartition(name, 0, 0)), int(count), gres)
    made = [one for one in found.values() if one.nodes or one.unread]
    return tuple(sorted(made, key=lambda one: (-one.gpus, -one.mig, one.name)))


def _with(one: GpuPartition, nodes: int, gres: str) -> GpuPartition:
    """The partition with this many more nodes of this gres."""
    try:
        entries = [entry for entry in parse_gres(gres) if entry.kind == "gpu"]
    except UnreadableError:
        return replace(one, unread=one.unread + nodes)
    if not entries:
        return one
    types = {*one.types, *(entry.type for entry in entries if entry.type)}
    return GpuPartition(one.name, one.nodes + nodes, one.gpus + nodes * count_gpus(entries), tuple(sorted(types)),
                        one.mig + nodes * count_mig(entries), one.unread)  # fmt: skip
