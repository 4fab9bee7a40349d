"""The topology of a site, from its files and from slurmctld; and where the two differ."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from slurmsched.config import TopologyConfig
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError
from slurmsched.model.gpu_topology import MODELLED_FABRICS, Fabric, SiteTopology
from slurmsched.model.nodes import Nodes
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.scontrol_tables import parse_nodes
from slurmsched.slurm.site import make_site, read_settings
from slurmsched.topology.fabrics import NamedFabric
from slurmsched.topology.site_topology import (
    TopologyDifference,
    TopologyFacts,
    class_rows,
    fabric_differences,
    gpu_differences,
    site_topology,
)
from slurmsched.topology.slurm_conf import Include
from slurmsched.topology.topology_files import NodeClass, TopologyFile, read_topology_text
from slurmsched.topology.topology_text import decoded, hosts_or_none

T = TypeVar("T")
RELOAD_S = 3600.0  # after this time files and Slurm's topology are read again
NO_FABRIC_PLUGINS = ("", "flat", "default", "none")  # topology plugins without a fabric
SHOW_TOPOLOGY = ("scontrol", "show", "topology")
YAML_SINCE = (25, 5)  # the first release with topology.yaml
LARGEST_BYTES = 32 << 20


class SnapshotTopology:
    """Adds the topology to snapshots. Sources are read at the first snapshot and again every hour.

    If a source can no longer be read, its last content is kept. If Slurm has not answered yet, it is asked at each
    snapshot. A reload of the daemon starts again from nothing.
    """

    def __init__(
        self, settings: TopologyConfig, commands: Commands, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._commands, self._clock = settings, commands, clock
        self._read_s = float("-inf")
        self._sources = TopologyFacts(slurm_known=False)
        self._nodes: Nodes | None = None
        self._made: tuple[SiteTopology, tuple[str, ...]] = (SiteTopology(), ())

    def begin(self) -> None:
        """Ask Slurm now, while it is read. Raises SlurmUnreachableError if there is no scontrol."""
        self._commands.begin(*SHOW_TOPOLOGY)

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its topology; warnings name what could not be read."""
        if not self._sources.slurm_known or self._clock() - self._read_s > RELOAD_S:
            cluster = tuple(snapshot.nodes.name)
            self._sources = read_sources(self._settings, self._commands, snapshot.site, cluster, self._sources)
            self._read_s, self._nodes = self._clock(), None
            self._commands.close()  # what `begin` asked in vain
        if self._nodes is None or not _same_nodes(self._nodes, snapshot.nodes):
            self._made = site_topology(snapshot.nodes, self._sources)
            self._nodes = snapshot.nodes
        topology, warnings = self._made
        texts = tuple(f"topology: {text}" for text in (*self._sources.warnings, *warnings))
        return replace(snapshot, topology=topology, warnings=(*snapshot.warnings, *texts))


def read_sources(
    settings: TopologyConfig,
    commands: Commands,
    site: Site,
    cluster: Sequence[str] = (),
    last: TopologyFacts | None = None,
) -> TopologyFacts:
    """Classes of the configuration, then of gres.conf; the fabric of a file or of Slurm. Never raises.

    cluster: names of Slurm's nodes.
    last: what was read before; it replaces what cannot be read now.
    """
    last = last or TopologyFacts(slurm_known=False)
    warnings: list[str] = []
    classes = read_classes(settings, site, warnings, last.classes)
    own = _attempt(partial(slurm_fabric, commands, site), warnings)
    file_or_slurm = _attempt(partial(file_fabric, Path(settings.fabric), cluster), warnings) if settings.fabric else own
    known = own is not None or last.slurm_known
    for of, one in (("Slurm's topology", own), (settings.fabric, file_or_slurm if file_or_slurm is not own else None)):
        warnings += [f"{of}: {text}" for text in one.warnings] if one else []
    return TopologyFacts(classes, file_or_slurm or last.fabric, own or last.slurm_fabric, known, tuple(warnings))


def read_classes(
    settings: TopologyConfig, site: Site, warnings: list[str], last: Sequence[NodeClass] = ()
) -> tuple[NodeClass, ...]:
    """Classes of the configuration, then of gres.conf, and those of `last` that cannot be read now."""
    configured = tuple(_configured(settings, warnings))
    gres = _attempt(partial(read_gres, settings, site), warnings)
    classes = (*configured, *(gres.classes if gres else ()))
    if not warnings:
        return classes
    known = {one.topology.name for one in classes}
    return (*classes, *(one for one in last if one.topology.name not in known))


def read_gres(settings: TopologyConfig, site: Site) -> TopologyFile:
    """gres.conf as configured, else the one beside slurm.conf; empty if neither can be read on this host.

    Raises InputError for a configured file that cannot be read.
    """
    conf = site.settings.get("SLURM_CONF", "")
    path = Path(settings.gres_conf) if settings.gres_conf else Path(conf).parent / "gres.conf"
    if not settings.gres_conf and (not conf or not path.is_file()):
        return TopologyFile("gres.conf")
    return read_file(path, "gres.conf")


def file_fabric(path: Path, cluster: Sequence[str]) -> NamedFabric:
    """The default fabric of a file, with all warnings. cluster: see ibnetdiscover. Raises InputError."""
    found = read_file(path, cluster=cluster)
    return replace(default_fabric(found), warnings=found.warnings)


def slurm_fabric(commands: Commands, site: Site) -> NamedFabric:
    """The fabric of `scontrol show topology`. slurmctld is not asked if it can have no switches or blocks.

    It has them by its topology plugin or, from 25.05 on with any plugin, by topology.yaml. That file need not be on
    this host. Raises SlurmError.
    """
    plugin = site.settings.get("TopologyPlugin", "").rpartition("/")[2].lower()
    found = re.match(r"(\d+)\.(\d+)", site.version)
    flat = plugin not in MODELLED_FABRICS
    none = NamedFabric(Fabric()) if plugin in NO_FABRIC_PLUGINS else _checked_form(NamedFabric(Fabric(), plugin))
    if flat and (not found or (int(found[1]), int(found[2])) < YAML_SINCE):
        return none
    try:
        text = commands.run(*SHOW_TOPOLOGY)
    except SlurmUnreachableError:
        raise
    except SlurmError:
        if flat:
            return none  # Slurm answers with an error if it has no topology
        raise
    return _checked_form(default_fabric(read_topology_text(text, "scontrol"))) if text.strip() else none


def _checked_form(found: NamedFabric) -> NamedFabric:
    """The fabric. If its rule is not modelled, its form and a warning say so; then no gang is pinned."""
    if found.kind in MODELLED_FABRICS:
        return found
    form = found.kind or "fabric of an unknown kind"
    warning = f"Slurm has a {form} topology, whose rule slurmsched does not model: no gang gets nodes or is placed"
    return replace(found, fabric=replace(found.fabric, form=form), warnings=(*found.warnings, warning))


def default_fabric(reading: TopologyFile) -> NamedFabric:
    """The cluster's default topology of a file, else its first one; an empty one if it has none."""
    return next((one for one in reading.fabrics if one.default), next(iter(reading.fabrics), NamedFabric(Fabric())))


def read_file(
    path: Path, kind: str = "", name: str = "", gpu_type: str = "", cluster: Sequence[str] = ()
) -> TopologyFile:  # fmt: skip
    """As read_topology_text, for a file; included files are looked for in its folder. Raises InputError."""
    return read_topology_text(read_text(path), kind, name, gpu_type, files_beside(path), cluster)


def files_beside(path: Path) -> Include:
    """A function that gives the text of files included by this one."""
    return partial(_included, path.parent)


def read_text(path: Path) -> str:
    """The text of the file. Raises InputError."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(f"is larger than {LARGEST_BYTES >> 20} MiB: no topology file", source=str(path))
        return decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error


def _included(folder: Path, name: str) -> str | None:
    """The text of an Include line, whose name may have *, ? and [; None if nothing can be read."""
    path = folder / name
    paths = sorted(path.parent.glob(path.name)) if set(path.name) & set("*?[") else [path]
    found = [text for one in paths if (text := _text_or_none(one)) is not None]
    return "\n".join(found) if found else None


def _text_or_none(path: Path) -> str | None:
    try:
        return read_text(path)
    except InputError:
        return None


def _configured(settings: TopologyConfig, warnings: list[str]) -> Iterator[NodeClass]:
    for one in settings.classes:
        nodes = hosts_or_none(one.nodes)
        if not nodes:
            warnings.append(f"topology.classes: {one.name}: nodes = {one.nodes!r} is no hostlist")
            continue
        found = _attempt(partial(read_file, one.file, "", one.name, one.gpu_type), warnings)
        if found and len(found.classes) == 1:
            yield replace(found.classes[0], nodes=nodes)
        elif found:
            warnings.append(f"{one.file}: shows {len(found.classes)} kinds of node, a class needs one")


def _attempt(read: Callable[[], T], warnings: list[str]) -> T | None:
    try:
        return read()
    except (InputError, SlurmError) as error:
        warnings.append(str(error))
        return None


def _same_nodes(nodes: Nodes, others: Nodes) -> bool:
    """Whether names, GPUs and types are the same; the topology tables depend on nothing else."""
    labels = ((nodes.name, others.name), (nodes.gpu_types, others.gpu_types))
    same = all(a.names == b.names and np.array_equal(a.codes, b.codes) for a, b in labels)
    return same and np.array_equal(nodes.gpus, others.gpus)


# Files and configuration compared with Slurm.

BESIDE = ("topology.yaml", "topology.conf")  # beside slurm.conf; Slurm reads the first that exists


def known_classes(
    settings: TopologyConfig, commands: Commands
) -> tuple[tuple[NodeClass, ...], NamedFabric, tuple[str, ...]]:
    """The classes of Slurm's nodes, each with its nodes; the fabric; warnings. Raises SlurmError."""
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
    settings: TopologyConfig, commands: Commands, fabric: Path | None = None
) -> tuple[tuple[TopologyDifference, ...], tuple[str, ...]]:
    """All differences, and warnings about what could not be compared.

    fabric: a file to use instead of the configured one.
    Raises SlurmError, and InputError if that file cannot be read.
    """
    site, nodes, warnings = _now(commands)
    classes = read_classes(settings, site, warnings)
    found = list(gpu_differences(nodes, classes)) if classes else []
    if not classes:
        warnings.append("no class of node is known, so numbers of GPUs are not compared")
    if path := fabric or _fabric_file(settings, site):
        ours = file_fabric(path, tuple(nodes.name))
        warnings += [f"{path}: {text}" for text in ours.warnings]
        found += fabric_differences(ours.fabric, slurm_fabric(commands, site).fabric)
    return tuple(found), tuple(warnings)


def _fabric_file(settings: TopologyConfig, site: Site) -> Path | None:
    """The configured file, else Slurm's own file if it can be read on this host."""
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
