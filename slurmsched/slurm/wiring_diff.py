"""Files and configuration held against what Slurm says now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurmsched.config import Topology
from slurmsched.model.nodes import Nodes
from slurmsched.model.snapshot import Rights, Site
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.node_text import parse_nodes
from slurmsched.slurm.site import make_site, read_settings
from slurmsched.slurm.wiring import file_fabric, read_classes, read_sources, slurm_fabric
from slurmsched.topology.cells import NamedFabric
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.site import Difference, class_rows, fabric_differences, gpu_differences

BESIDE = ("topology.yaml", "topology.conf")  # of slurm.conf; the first that is there is what Slurm reads


def known_classes(settings: Topology, commands: Commands) -> tuple[tuple[NodeClass, ...], NamedFabric, tuple[str, ...]]:
    """The classes of the nodes that Slurm has, each with those nodes; the fabric; warnings. Raises SlurmError."""
    site, nodes, warnings = _now(commands)
    sources = read_sources(settings, commands, site, tuple(nodes.name))
    having = [name for name, gpus in zip(nodes.name, nodes.gpus.tolist(), strict=True) if gpus]
    rows = class_rows(having, sources.classes)
    classes = []
    for row, one in enumerate(sources.classes):
        of = tuple(name for name in having if rows.get(name) == row)
        if of or one.nodes:
            classes.append(replace(one, nodes=of or one.nodes))
    return tuple(classes), sources.fabric, (*sources.warnings, *warnings)


def differences(
    settings: Topology, commands: Commands, fabric: Path | None = None
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """Every difference, and warnings about what could not be read and so not compared.

    fabric: a file in the place of the configured one. Raises SlurmError, and InputError for a given file that cannot
    be read.
    """
    site, nodes, warnings = _now(commands)
    classes = read_classes(settings, site, warnings)
    found = list(gpu_differences(nodes, classes)) if classes else []
    if not classes:
        warnings.append("no class of node is known, so no number of GPUs is compared")
    if path := fabric or _fabric_file(settings, site):
        told = file_fabric(path, tuple(nodes.name))
        warnings += [f"{path}: {text}" for text in told.warnings]
        found += fabric_differences(told.fabric, slurm_fabric(commands, site).fabric)
    return tuple(found), tuple(warnings)


def _fabric_file(settings: Topology, site: Site) -> Path | None:
    """The configured file, else the one that Slurm itself reads, if it can be read from here."""
    if settings.fabric:
        return Path(settings.fabric)
    folder = Path(site.settings.get("SLURM_CONF", "")).parent
    return next((folder / name for name in BESIDE if (folder / name).is_file()), None)


def _now(commands: Commands) -> tuple[Site, Nodes, list[str]]:
    """Slurm's settings and nodes, and warnings about the latter. Raises SlurmError."""
    warnings: list[str] = []
    site = make_site(read_settings(commands), Rights.NONE)
    nodes = parse_nodes(commands.run("scontrol", "-o", "-d", "show", "node"), warnings)
    return site, nodes, warnings
