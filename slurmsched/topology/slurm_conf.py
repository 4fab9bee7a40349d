"""slurm.conf, as far as it tells of GPUs: how many each node has, and whether Slurm accounts for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import count_gpus, count_mig, parse_gres
from slurmsched.topology.conf_lines import ConfLine, Include, Lines
from slurmsched.topology.plain import hosts, parts


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """gpus: node -> GPUs (MIG devices counted as GPUs) by its Gres, nodes without left out.

    nodes: every node that it names.
    topology: TopologyPlugin without its "topology/". accounted: whether AccountingStorageTRES has gres/gpu.
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    topology: str = ""
    accounted: bool = False
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_slurm_conf(text: str, include: Include | None = None) -> SlurmConf:
    """What the file says. A line that cannot be read is left out with a warning."""
    lines = Lines(include)
    gpus: dict[str, int] = {}
    settings: dict[str, str] = {}
    default, nodes = "", list[str]()
    for line in lines.read(text):
        if name := line.get("nodename"):
            gres = line.values.get("gres", default)
            if name.upper() == "DEFAULT":
                default = gres
            else:
                nodes += hosts(name) or ()
                gpus.update(_gpus(line, gres, lines.warnings))
        else:
            settings.update({key: value for key, value in line.values.items() if key not in settings})
    tres = parts(settings.get("accountingstoragetres", "").lower())
    accounted = any(part == "gres/gpu" for part in tres)
    plugin = settings.get("topologyplugin", "").rpartition("/")[2]
    return SlurmConf(
        gpus, tuple(dict.fromkeys(nodes)), plugin, accounted, tuple(lines.warnings), _notes(gpus, accounted)
    )


def _gpus(line: ConfLine, gres: str, warnings: list[str]) -> dict[str, int]:
    names = hosts(line.get("nodename"))
    try:
        entries = parse_gres(gres)
    except UnreadableError as error:
        names, entries = None, ()
        warnings.append(f"{line.where}: {error}; the line is left out")
    count = count_gpus(entries) + count_mig(entries)
    return dict.fromkeys(names or (), count) if count else {}


def _notes(gpus: Mapping[str, int], accounted: bool) -> tuple[str, ...]:
    if accounted or not gpus:
        return ()
    return ("AccountingStorageTRES lacks gres/gpu: sacct and fair share do not see GPUs",)
