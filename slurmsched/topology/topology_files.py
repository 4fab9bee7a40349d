"""Reads one file of any known kind into classes of node and fabrics. The content decides the kind.

The reader of a kind is loaded with the first file of that kind, so that a cycle from cron starts quickly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from slurmsched.errors import InputError
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.plain_text import pluralize
from slurmsched.topology.topology_text import clean, fold_names, unquoted

if TYPE_CHECKING:
    from slurmsched.topology.fabrics import NamedFabric
    from slurmsched.topology.gpu_links import GpuDevice
    from slurmsched.topology.slurm_conf import Include


@dataclass(frozen=True, slots=True)
class NodeClass:
    """A class of node. nodes: () = the file names none. devices: in the order of Slurm's indices, if known."""

    topology: GpuTopology
    nodes: tuple[str, ...] = ()
    devices: tuple[GpuDevice, ...] = ()
    autodetect: str = ""


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """What one file contains.

    kind: one of KINDS, "" = none of them.
    gpus: node -> number of GPUs, for files with nothing else.
    nodes: all nodes that slurm.conf names.
    nic_names: label in the matrix -> device.
    warnings: what is damaged or left out.
    notes: other remarks.
    """

    kind: str
    classes: tuple[NodeClass, ...] = ()
    fabrics: tuple[NamedFabric, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    nic_names: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


_MARKS = {
    "ibnetdiscover": r'^\s*(?:switchguid=|caguid=|# Topology file: generated)|^\s*(?:Switch|Ca)\s+\d+\s+"[SH]-',
    "rocm-smi": r"ROCm System Management|\(Topology\) (?:Numa|Link type)|between two GPUs(?: =|.*===|$)|"
                r"^(?:WEIGHT|HOPS|LINK TYPE) TABLE:",
    "nccl": r"<system\s+version\s*=|<cpu\s[^>]*\bnumaid\s*=",
    "slurmd-log": r"GRES\[gpu\]\s+Type:|Gres Name=gpu\s",
    "scontrol": r"^\s*(?:SwitchName=\S+\s+Level=|BlockName=\S+\s+BlockIndex=|AggregatedBlock=|RingName=|TorusName=)",
    "topology.conf": r"^\s*(?:SwitchName|BlockName|BlockSizes|BlockLevels)\s*=",
    "topology.yaml": r"^[\s\[{,-]*[\"']?topology[\"']?\s*:(?=\s|$)",
    "slurm.conf": r"^\s*(?:ClusterName|SlurmctldHost|ControlMachine|PartitionName|SelectType|GresTypes)\s*=|"
                  r"^\s*NodeName\s*=[^\n#]*\s(?:Gres|RealMemory|Boards|Sockets\w*|CoresPerSocket|State|Features?)\s*=",
    "nvidia-smi": r"^[ \t]*GPU\d+(?:\s*GPU\d+|\s*CPU Affinity|\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\s)",
    "gres.conf": r"^\s*AutoDetect\s*=|^[^#\n]*(?<!\w)(?:Name|AutoDetect)\s*=",
}  # fmt: skip
KINDS = tuple(_MARKS)
_OF_SLURMS_OWN = ("topology.conf", "topology.yaml", "slurm.conf", "gres.conf")  # only with their own words
_ELSE = r"\A\s*<[?!a-zA-Z]|^\s*\[{1,2}[\w.\"' -]+\]{1,2}\s*(?:#.*)?$"  # XML or HTML; a section of TOML or INI
_LIST = r"^[ \t]*GPU \d+: .*\(UUID"  # `nvidia-smi -L` alone


def kind_of_text(text: str) -> str:
    """The kind of a text; "" if it is none of KINDS."""
    text = unquoted(clean(text))
    other = re.search(_ELSE, text, re.MULTILINE) is not None
    marked = (kind for kind, mark in _MARKS.items() if re.search(mark, text, re.MULTILINE | re.IGNORECASE))
    found = (
        kind for kind in marked if not (other and kind in _OF_SLURMS_OWN) and (kind != "gres.conf" or _gres_lines(text))
    )
    return next(found, "nvidia-smi" if re.search(_LIST, text, re.MULTILINE) else "")


def _gres_lines(text: str) -> bool:
    """Whether most non-empty lines are Key=Value pairs of gres.conf."""
    from slurmsched.topology.gres_conf import is_gres_line

    lines = [bare for line in text.split("\n") if (bare := line.partition("#")[0].strip().rstrip("\\"))]
    return 2 * sum(map(is_gres_line, lines)) > len(lines)


def read_topology_text(
    text: str, kind: str = "", name: str = "", gpu_type: str = "", include: Include | None = None,
    cluster: Collection[str] = (),
) -> TopologyFile:  # fmt: skip
    """Read the text as this kind, or as the kind of its content.

    name: name of the class of node, if the text has none.
    gpu_type: see the readers.
    include: see gres_conf.
    cluster: names of Slurm's nodes, see ibnetdiscover.
    """
    kind = kind or kind_of_text(text)
    if kind == "ibnetdiscover":
        return _infiniband(text, cluster)
    if kind in _WIRED:
        return _wired(kind, text, name, gpu_type)
    if kind in _OF_SLURM:
        return _OF_SLURM[kind](text, include)
    return TopologyFile("", warnings=(f"none of the kinds that can be read: {', '.join(KINDS)}",))


def checked_kind(found: TopologyFile, text: str) -> TopologyFile:
    """The file as read, or one of no kind if nothing could be read.

    That is so if the content is of another kind or none, or if nothing of a matrix, log or tree is readable."""
    bare = found.kind == "nvidia-smi"  # of a matrix in which no link can be read its labels alone are left
    wired = any(one.nodes or one.autodetect or _says(one.topology, bare=bare) for one in found.classes)
    if wired or found.gpus or found.notes or any(one.fabric.node or one.kind for one in found.fabrics):
        return found
    if (kind_of := kind_of_text(text)) == found.kind and found.kind in _OF_SLURMS_OWN:
        return found
    other = f"; its content is that of {kind_of}" if kind_of not in ("", found.kind) else ""
    return TopologyFile("", warnings=(f"nothing in it can be read as {found.kind}{other}", *found.warnings))


def _says(node: GpuTopology, *, bare: bool) -> bool:
    """Whether anything is known of these GPUs. bare: the number of several GPUs alone does not count."""
    return node.gpus == 1 or (node.gpus > 1 and (not bare or node.known or bool(node.gpu_type)))


def _wired(kind: str, text: str, name: str, gpu_type: str) -> TopologyFile:
    node: GpuTopology = _reader(*_WIRED[kind])(text, name, gpu_type)
    names = _reader("nvidia_smi", "nic_names")(text) if kind == "nvidia-smi" else {}
    devices = _reader("slurmd_log", "slurmd_devices")(text) if kind == "slurmd-log" else ()
    return TopologyFile(kind, (NodeClass(node, devices=devices),), nic_names=names, warnings=node.warnings)


def _reader(module: str, name: str) -> Callable[..., Any]:
    """A function of a module of this package."""
    found: Callable[..., Any] = getattr(import_module(f"slurmsched.topology.{module}"), name)
    return found


def _gres(text: str, include: Include | None) -> TopologyFile:
    from slurmsched.topology.gres_conf import detected, read_gres_conf

    conf = read_gres_conf(text, include)
    found = conf.classes()
    classes = [NodeClass(one.topology, one.nodes, one.devices, one.autodetect) for one in found]
    warnings = [f"{one.topology.name}: {text}" for one in found for text in one.topology.warnings]
    notes = [f"{one.topology.name}: {text}" for one in found for text in one.notes]
    if gaps := [f"{one.topology.name}: {one.renumbered}" for one in found if one.renumbered]:
        others = f" (so on {pluralize(len(gaps) - 1, 'more kind')} of node)" if len(gaps) > 1 else ""
        notes.append(f"{gaps[0]}{others}")
    if not found and conf.autodetect not in ("", "off"):
        notes.append(detected(conf.autodetect))
    return TopologyFile("gres.conf", tuple(classes), warnings=(*conf.warnings, *warnings), notes=tuple(notes))


def _fabric(kind: str) -> Callable[[str, Include | None], TopologyFile]:
    def read(text: str, include: Include | None) -> TopologyFile:
        from slurmsched.topology.fabric_files import read_topology

        found = read_topology(text, include)
        return TopologyFile(kind, fabrics=(found,), warnings=found.warnings)

    return read


def _yaml(text: str, include: Include | None) -> TopologyFile:
    from slurmsched.topology.fabric_files import read_topology_yaml

    found, warnings = read_topology_yaml(text)
    return TopologyFile(
        "topology.yaml", fabrics=found, warnings=(*warnings, *(w for one in found for w in one.warnings))
    )


def _infiniband(text: str, cluster: Collection[str]) -> TopologyFile:
    from slurmsched.topology.fabric_files import read_ibnetdiscover

    found = read_ibnetdiscover(text, cluster)
    rails = {leaf: nodes for leaf, nodes in found.leaves.items() if leaf not in found.fabric.cell.names}
    notes = (f"{fold_names(rails)}: one cell, since nodes are on several of them by their rails",) if rails else ()
    return TopologyFile("ibnetdiscover", fabrics=(found,), warnings=found.warnings, notes=(*notes, *found.notes))


def _slurm(text: str, include: Include | None) -> TopologyFile:
    from slurmsched.topology.slurm_conf import read_slurm_conf

    found = read_slurm_conf(text, include)
    return TopologyFile("slurm.conf", gpus=found.gpus, nodes=found.nodes, warnings=found.warnings, notes=found.notes)


_WIRED = {
    "nvidia-smi": ("nvidia_smi", "read_topo"),
    "rocm-smi": ("rocm_smi", "read_showtopo"),
    "nccl": ("nccl_xml", "read_nccl_xml"),
    "slurmd-log": ("slurmd_log", "read_slurmd_log"),
}
_OF_SLURM: Mapping[str, Callable[[str, Include | None], TopologyFile]] = {
    "gres.conf": _gres, "topology.conf": _fabric("topology.conf"), "scontrol": _fabric("scontrol"),
    "topology.yaml": _yaml, "slurm.conf": _slurm,
}  # fmt: skip


def node_class_of(node: str | None, classes: Sequence[NodeClass]) -> NodeClass:
    """The class of a node, or the only class. Raises InputError when that is none or not one."""
    if node is None and len(classes) == 1:
        return classes[0]
    if node is None:
        raise InputError(
            f"name a node or a class; classes: {', '.join(one.topology.name for one in classes) or 'none'}"
        )
    for one in classes:
        if node in one.nodes or node == one.topology.name:
            return one
    hint = "configure topology.classes, or import its `nvidia-smi topo -m`"
    anywhere = [one for one in classes if not one.nodes]
    if len(anywhere) == 1:
        return anywhere[0]
    raise InputError(f"the GPUs of node {node} are unknown; check its name in slurm.conf. If it is right, {hint}")
