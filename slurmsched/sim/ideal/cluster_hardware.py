"""What a replayed cluster is made of: its nodes, and how their GPUs are wired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Nodes
from slurmsched.model.gpu_topology import Fabric, SiteTopology
from slurmsched.sim.cluster_layout import NodeSpec
from slurmsched.sim.ideal.ideal_snapshot import NodeArrays
from slurmsched.topology.fabrics import NamedFabric
from slurmsched.topology.gpu_links import machines
from slurmsched.topology.site_topology import TopologyFacts, site_topology
from slurmsched.topology.topology_files import NodeClass
from slurmsched.topology.topology_text import hosts_or_none

if TYPE_CHECKING:
    from slurmsched.config import TopologyClassConfig, TopologyConfig

KEY = "topology"
MOST_GPUS = 63  # of one node: the bits of a mask


@dataclass(frozen=True, slots=True, eq=False)
class ClusterHardware:
    """Nodes as a cluster model takes them, and their wiring, empty where nothing is known."""

    nodes: Nodes
    topology: SiteTopology = field(default_factory=SiteTopology)

    @classmethod
    def of(cls, listed: Sequence[NodeSpec], topology: str = "", *, cpus_known: bool = False) -> ClusterHardware:
        """Those of the listed nodes that have GPUs, by name. topology: as topology_of takes it. cpus_known: whether
        their CPUs were given. Raises as it does, and ConfigError for a node of more than 63 GPUs."""
        chosen = sorted((node for node in listed if node.gpus), key=lambda node: node.name)
        gpus = [node.gpus for node in chosen]
        if max(gpus, default=0) > MOST_GPUS:
            message = f"physics and wiring look at single GPUs, at most {MOST_GPUS} a node, not {max(gpus)}"
            raise ConfigError(message, key="cluster")
        types = [node.gpu_types or f"gpu:{node.gpus}" for node in chosen]
        plain = NodeArrays.of(np.array(gpus, np.int64)).nodes
        nodes = plain.with_columns(name=[node.name for node in chosen], gpu_types=types)
        cpus = [node.cpus * cpus_known for node in chosen]
        nodes = nodes.with_columns(cpus=cpus, memory_mib=[node.memory_mib for node in chosen])
        return cls(nodes, topology_of(topology, nodes))


def topology_of(text: str, nodes: Nodes) -> SiteTopology:
    """The wiring of these nodes: "" = unknown; a machine's name, all nodes are such; or a TOML file.

    The file holds [topology] as the configuration does (docs/topology.md); `file` of a class may be a machine's name
    too, and files are looked for beside it. Raises ConfigError or InputError for what cannot be read, or does not fit.
    """
    if not text:
        return SiteTopology()
    known = machines()
    if text in known:
        sources, where = TopologyFacts((NodeClass(known[text]),)), text
    elif Path(text).is_file():
        sources, where = _sources(Path(text)), text
    else:
        names = ", ".join(known)
        raise ConfigError(f"{text!r} is no TOML file and no machine known by name ({names})", key=KEY)
    made, warnings = site_topology(nodes, sources)
    if warnings:
        raise ConfigError(warnings[0], key=KEY, source=where)
    return made


def _sources(path: Path) -> TopologyFacts:
    """What the [topology] of a file says."""
    from slurmsched.config_file import parse_config, read_toml
    from slurmsched.model import Site
    from slurmsched.slurm.topology_sources import default_fabric, read_classes, read_file

    tree: Mapping[str, Any] = read_toml(path)
    settings = parse_config({KEY: tree.get(KEY, {})}, source=str(path)).topology
    own, others = _split_settings(settings, path.parent)
    warnings: list[str] = []
    read = read_classes(others, Site(), warnings)
    if warnings:
        raise ConfigError(warnings[0], key=KEY, source=str(path))
    fabric = default_fabric(read_file(Path(others.fabric))) if others.fabric else NamedFabric(Fabric())
    return TopologyFacts((*own, *read), fabric)


def _split_settings(settings: TopologyConfig, folder: Path) -> tuple[list[NodeClass], TopologyConfig]:
    """Classes of known machines, and the settings of what is in files, whose paths begin at the folder."""
    known = machines()
    mine = [one for one in settings.classes if str(one.file) in known]
    rest = [one.model_copy(update={"file": folder / one.file}) for one in settings.classes if one not in mine]
    paths = {name: str(folder / value) for name in ("gres_conf", "fabric") if (value := getattr(settings, name))}
    return [_machine(one) for one in mine], settings.model_copy(update={"classes": tuple(rest), **paths})


def _machine(one: TopologyClassConfig) -> NodeClass:
    nodes = hosts_or_none(one.nodes)
    if not nodes:
        raise ConfigError(f"{one.name}: nodes = {one.nodes!r} is no hostlist", key="topology.classes")
    return NodeClass(replace(machines()[str(one.file)], name=one.name), nodes)
