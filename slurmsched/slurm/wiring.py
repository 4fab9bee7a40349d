"""What a site's own files and slurmctld say of its topology, read once and given to every snapshot."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from slurmsched.config import Topology
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError
from slurmsched.model.nodes import Nodes
from slurmsched.model.snapshot import Site, Snapshot
from slurmsched.model.topology import UNDERSTOOD, Fabric, SiteTopology
from slurmsched.slurm.commands import Commands
from slurmsched.topology.cells import NamedFabric
from slurmsched.topology.conf_lines import Include
from slurmsched.topology.plain import decoded, hosts
from slurmsched.topology.reading import NodeClass, Reading, read_any
from slurmsched.topology.site import Sources, site_topology

T = TypeVar("T")
RELOAD_S = 3600.0  # files and Slurm's topology are read again after this long
FLAT = ("", "flat", "default", "none")  # plugins without a fabric
YAML_SINCE = (25, 5)  # Slurm's release
LARGEST_BYTES = 32 << 20


class Wiring:
    """Gives snapshots their topology. Sources are read at the first snapshot and again every hour.

    Where one cannot be read any more, what it said last is kept; Slurm that could not be asked yet is asked at each
    snapshot. A reload of the daemon begins anew.
    """

    def __init__(self, settings: Topology, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._commands, self._clock = settings, commands, clock
        self._read_s = float("-inf")
        self._sources = Sources(slurm_known=False)
        self._nodes: Nodes | None = None
        self._made: tuple[SiteTopology, tuple[str, ...]] = (SiteTopology(), ())

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its topology; what could not be read is told among its warnings."""
        if not self._sources.slurm_known or self._clock() - self._read_s > RELOAD_S:
            cluster = tuple(snapshot.nodes.name)
            self._sources = read_sources(self._settings, self._commands, snapshot.site, cluster, self._sources)
            self._read_s, self._nodes = self._clock(), None
        if self._nodes is None or not _alike(self._nodes, snapshot.nodes):
            self._made = site_topology(snapshot.nodes, self._sources)
            self._nodes = snapshot.nodes
        topology, warnings = self._made
        told = tuple(f"topology: {text}" for text in (*self._sources.warnings, *warnings))
        return replace(snapshot, topology=topology, warnings=(*snapshot.warnings, *told))


def read_sources(
    settings: Topology, commands: Commands, site: Site, cluster: Sequence[str] = (), last: Sources | None = None
) -> Sources:  # fmt: skip
    """Classes by configuration, then by gres.conf; the fabric by its file or by Slurm. Never raises.

    cluster: names of Slurm's nodes. last: what was read before, kept in the place of what cannot be read now.
    """
    last = last or Sources(slurm_known=False)
    warnings: list[str] = []
    classes = read_classes(settings, site, warnings, last.classes)
    own = _attempt(partial(slurm_fabric, commands, site), warnings)
    told = _attempt(partial(file_fabric, Path(settings.fabric), cluster), warnings) if settings.fabric else own
    known = own is not None or last.slurm_known
    for of, one in (("Slurm's topology", own), (settings.fabric, told if told is not own else None)):
        warnings += [f"{of}: {text}" for text in one.warnings] if one else []
    return Sources(classes, told or last.fabric, own or last.slurm_fabric, known, tuple(warnings))


def read_classes(
    settings: Topology, site: Site, warnings: list[str], last: Sequence[NodeClass] = ()
) -> tuple[NodeClass, ...]:
    """Classes by configuration, then by gres.conf; those of `last` that cannot be read now. Adds to warnings."""
    configured = tuple(_configured(settings, warnings))
    gres = _attempt(partial(read_gres, settings, site), warnings)
    classes = (*configured, *(gres.classes if gres else ()))
    if not warnings:
        return classes
    known = {one.topology.name for one in classes}
    return (*classes, *(one for one in last if one.topology.name not in known))


def read_gres(settings: Topology, site: Site) -> Reading:
    """gres.conf, as configured or beside slurm.conf. Empty where none is configured and none can be read from here.

    Raises InputError for a configured file that cannot be read.
    """
    conf = site.settings.get("SLURM_CONF", "")
    path = Path(settings.gres_conf) if settings.gres_conf else Path(conf).parent / "gres.conf"
    if not settings.gres_conf and (not conf or not path.is_file()):
        return Reading("gres.conf")
    return read_file(path, "gres.conf")


def file_fabric(path: Path, cluster: Sequence[str]) -> NamedFabric:
    """The default fabric of a file, with all its warnings. cluster: as for ibnetdiscover. Raises InputError."""
    found = read_file(path, cluster=cluster)
    return replace(default_fabric(found), warnings=found.warnings)


def slurm_fabric(commands: Commands, site: Site) -> NamedFabric:
    """What slurmctld's `scontrol show topology` says; it is not asked where it has no switches or blocks.

    Those come by its plugin or, from 25.05 on whatever the plugin, by topology.yaml, which this host need not have.
    Raises SlurmError.
    """
    plugin = site.settings.get("TopologyPlugin", "").rpartition("/")[2].lower()
    found = re.match(r"(\d+)\.(\d+)", site.version)
    flat = plugin not in UNDERSTOOD
    none = NamedFabric(Fabric()) if plugin in FLAT else _understood(NamedFabric(Fabric(), plugin))
    if flat and (not found or (int(found[1]), int(found[2])) < YAML_SINCE):
        return none
    try:
        text = commands.run("scontrol", "show", "topology")
    except SlurmUnreachableError:
        raise
    except SlurmError:
        if flat:
            return none  # Slurm answers, and refuses to tell of what it has not
        raise
    return _understood(default_fabric(read_any(text, "scontrol"))) if text.strip() else none


def _understood(found: NamedFabric) -> NamedFabric:
    """Of a fabric whose rule is not modelled the form says so, and a warning: then no gang is pinned."""
    if found.kind in UNDERSTOOD:
        return found
    form = found.kind or "fabric of an unknown kind"
    told = f"Slurm keeps jobs to a {form}, whose rule slurmsched does not know: no gang gets nodes or is placed"
    return replace(found, fabric=replace(found.fabric, form=form), warnings=(*found.warnings, told))


def default_fabric(reading: Reading) -> NamedFabric:
    """The cluster's default of a file's topologies, else the first; an empty one if there is none."""
    return next((one for one in reading.fabrics if one.default), next(iter(reading.fabrics), NamedFabric(Fabric())))


def read_file(
    path: Path, kind: str = "", name: str = "", gpu_type: str = "", cluster: Sequence[str] = ()
) -> Reading:  # fmt: skip
    """As reading.read_any, of a file; files that it includes are looked for beside it. Raises InputError."""
    return read_any(read_text(path), kind, name, gpu_type, beside(path), cluster)


def beside(path: Path) -> Include:
    """Gives the text of a file that this one includes."""
    return partial(_included, path.parent)


def read_text(path: Path) -> str:
    """The file's text, by plain.decoded. Raises InputError."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InputError(f"is larger than {LARGEST_BYTES >> 20} MiB: no topology file", source=str(path))
        return decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error


def _included(folder: Path, name: str) -> str | None:
    """What an Include line brings in; a file's name may have *, ? and [. None: nothing that can be read."""
    path = folder / name
    paths = sorted(path.parent.glob(path.name)) if set(path.name) & set("*?[") else [path]
    found = [text for one in paths if (text := _text_or_none(one)) is not None]
    return "\n".join(found) if found else None


def _text_or_none(path: Path) -> str | None:
    try:
        return read_text(path)
    except InputError:
        return None


def _configured(settings: Topology, warnings: list[str]) -> Iterator[NodeClass]:
    for one in settings.classes:
        nodes = hosts(one.nodes)
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


def _alike(nodes: Nodes, others: Nodes) -> bool:
    """Whether rows, names, GPUs and types are the same, which is all that the tables are made from."""
    labels = ((nodes.name, others.name), (nodes.gpu_types, others.gpu_types))
    same = all(a.names == b.names and np.array_equal(a.codes, b.codes) for a, b in labels)
    return same and np.array_equal(nodes.gpus, others.gpus)
