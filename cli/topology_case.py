"""What `topology check` and `compile` work on: classes of gres.conf, their true links and hardware, Slurm's version."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.model.topology import GpuTopology
    from slurmsched.placements.set_ranks import SetRanks
    from slurmsched.topology.reading import NodeClass
    from slurmsched.topology.slurm_node import SlurmNode

NODE = (
    "Only the class of this node; where lines name none, or with what `slurmd -G` printed: its nodes, such as n[1-4]."
)
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Case:
    """One class of nodes with all that its picks depend on."""

    one: NodeClass
    node: SlurmNode
    wiring: GpuTopology
    ranks: SetRanks
    version: tuple[int, ...]
    cores_per_gpu: int
    file: GresFile


@dataclass(frozen=True)
class GresFile:
    """The gres.conf that the classes are of. text: "" = what `slurmd -G` printed instead. named: whether its lines
    without NodeName become lines of nodes by name."""

    path: Path
    text: str
    named: bool = False


def with_case(function: Callable[..., Any], *, named: bool = False) -> Callable[..., Any]:
    """Options that say which nodes, which Slurm and which jobs. named: the nodes' names are needed."""

    @click.option("--gres-conf", type=FILE, default="/etc/slurm/gres.conf", show_default=True,
                  help="Or what `slurmd -G` prints on a node that detects its GPUs.")  # fmt: skip
    @click.option("--node", default="", help=NODE)
    @click.option("--links", type=FILE, help="True links: `nvidia-smi topo -m` or `rocm-smi --showtopo` of such a "
                  "node; default: the Links of gres.conf.")  # fmt: skip
    @click.option("--gpu-type", default="", metavar="MODEL", help="GPU model of --links, such as v100; default: as "
                  "that or gres.conf tells.")  # fmt: skip
    @click.option("--slurm", default="", metavar="VERSION", help="Such as 24.11.5; default: the site's own.")
    @click.option("--hardware", default="", metavar="SxCxT", help="Sockets, cores, threads; default: as Slurm says.")
    @click.option("--cores-per-gpu", type=click.IntRange(0), default=1, show_default=True,
                  help="Cores that jobs ask for with each GPU.")  # fmt: skip
    @functools.wraps(function)
    def wrapped(gres_conf: Path, node: str, links: Path | None, gpu_type: str, slurm: str, hardware: str,
                cores_per_gpu: int, **values: Any) -> Any:  # fmt: skip
        version = version_of(slurm)
        found = cases(gres_conf, node, links, gpu_type, hardware, version, cores_per_gpu, named=named)
        return function(cases=list(found), version=version, **values)

    return wrapped


def version_of(text: str) -> tuple[int, ...]:
    """ "24.11.5" -> (24, 11, 5); "" asks the site's Slurm. Raises InputError outside 21.08 to 26.05."""
    from slurmsched.errors import InputError
    from slurmsched.topology.picker import read_version

    text = text or commands_run("sinfo", "--version")
    version = read_version(text)
    if not (21, 8) <= version[:2] <= (26, 5):
        raise InputError(f"Slurm {text.strip()!r}: known is how 21.08 to 26.05 pick GPUs; name one with --slurm")
    return version


def cases(path: Path, node: str, links: Path | None, gpu_type: str, hardware: str, version: tuple[int, ...],
          cores_per_gpu: int, *, named: bool = False) -> Iterator[Case]:  # fmt: skip
    """As wired_classes, with all that picks depend on."""
    from slurmsched.cli.output import complain
    from slurmsched.errors import InputError
    from slurmsched.placements.set_ranks import set_ranks
    from slurmsched.topology.plain import hosts
    from slurmsched.topology.slurm_site import slurm_node

    found, why = 0, list[InputError]()
    for file, one, wiring in wired_classes(path, node, links, gpu_type, named=named):
        first = next(iter(hosts(node) or one.nodes), "")
        try:
            _nameable(one, named=named)
            slurm = slurm_node(one, shape_of(hardware, first))
            yield Case(one, slurm, wiring, set_ranks(wiring), version, cores_per_gpu, file)
            found += 1
        except InputError as error:
            why.append(error)
    for one_error in why:
        if not found:
            raise one_error
        complain(f"left as it is: {one_error}")


def _nameable(one: NodeClass, *, named: bool) -> None:
    """Raises InputError for nodes without a name whose GPUs slurmd detects: AutoDetect=off needs one."""
    from slurmsched.errors import InputError

    if named and not one.nodes and one.autodetect not in ("", "off"):
        text = f"AutoDetect={one.autodetect} holds for lines without NodeName, and only lines with one can turn it off"
        raise InputError(f"{text}; name the nodes: --node n[1-4]")


def wired_classes(path: Path, node: str, links: Path | None, gpu_type: str, *,
                  named: bool) -> Iterator[tuple[GresFile, NodeClass, GpuTopology]]:  # fmt: skip
    """The file, and its classes or that of `node`, each with its true links. named: as for with_case.

    Raises InputError, if `named`, for true links that are not told of every pair.
    """
    from slurmsched.cli.output import complain
    from slurmsched.errors import InputError
    from slurmsched.placements.set_ranks import unshown
    from slurmsched.slurm.wiring import read_text
    from slurmsched.topology.slurm_site import wiring_of

    text = read_text(links) if links else ""  # once: it may be a pipe
    file, classes = _listed(path, node, named=named)
    for one in classes:
        wiring = wiring_of(one, _told(text, links, gpu_type, one.topology.gpu_type) if links else None)
        for warning in wiring.warnings:
            complain(f"{links or path}: {warning}")
        if named and wiring.bandwidth_gb_per_s.any() and (pairs := unshown(wiring)):
            told = f"the link between GPU{pairs[0][0]} and GPU{pairs[0][1]} is not told"
            others = f", nor {some(len(pairs) - 1, 'other')}" if len(pairs) > 1 else ""
            raise InputError(f"{told}{others}; the true links of all pairs are needed", source=str(links or path))
        yield file, one, wiring


def _listed(path: Path, node: str, *, named: bool) -> tuple[GresFile, Sequence[NodeClass]]:
    """The file, and the classes of a gres.conf, or that of `node`; of what `slurmd -G` printed that of those nodes.

    The file is read once: it may be a pipe. Raises InputError for a file of another kind or that lists no GPUs.
    """
    from slurmsched.cli.topology_show import class_of
    from slurmsched.errors import InputError
    from slurmsched.slurm.wiring import beside, read_text
    from slurmsched.topology.plain import hosts
    from slurmsched.topology.reading import read_any, recognised

    text = read_text(path)
    kind = recognised(text)
    printed = kind == "slurmd-log"
    found = read_any(text, "slurmd-log" if printed else "gres.conf", path.stem, include=beside(path))
    if not any(one.devices for one in found.classes):
        why = "; ".join((*found.warnings, *found.notes)) or "it lists no GPU"
        other = f"no gres.conf (its content is that of {kind})" if kind not in ("gres.conf", "slurmd-log", "") else why
        raise InputError(f"{other}; name what `slurmd -G` prints there with --gres-conf", source=str(path))
    if printed:
        return GresFile(path, ""), [_of_nodes(one, node, path, named=named) for one in found.classes if one.devices]
    if not (wanted := hosts(node) or ()):
        return GresFile(path, text), found.classes
    one = class_of(wanted[0], found.classes)
    if astray := [host for host in wanted if class_of(host, found.classes) is not one]:
        raise InputError(f"{astray[0]} has other GPUs than {wanted[0]}; name nodes that are alike", source=str(path))
    by_name = not one.nodes and named and one.autodetect not in ("", "off")
    return GresFile(path, text, by_name), [replace(one, nodes=wanted) if by_name else one]


def _of_nodes(one: NodeClass, node: str, path: Path, *, named: bool) -> NodeClass:
    """What a slurmd printed holds for its own node and those like it, not for every node that reads the new file."""
    from slurmsched.errors import InputError
    from slurmsched.topology.plain import hosts

    nodes = hosts(node)
    if nodes is None or (named and not nodes):
        raise InputError("is of the node where `slurmd -G` ran; say which, and those like it: --node n[1-4]",
                         source=str(path))  # fmt: skip
    return replace(one, nodes=nodes)


def _told(text: str, path: Path, gpu_type: str, otherwise: str) -> GpuTopology:
    """The class of node that a file of links shows. otherwise: the model where neither gpu_type nor the file tells one.

    Raises InputError for a file that shows none, or several.
    """
    from slurmsched.cli.topology_show import class_of
    from slurmsched.errors import InputError
    from slurmsched.slurm.wiring import beside
    from slurmsched.topology.reading import read_any

    found = read_any(text, "", path.stem, gpu_type, beside(path))
    if not found.classes:
        raise InputError("; ".join(found.warnings) or f"{found.kind} tells no links of GPUs", source=str(path))
    shown = class_of(None, found.classes).topology
    return shown if shown.gpu_type or not otherwise else _told(text, path, otherwise, "")


def shape_of(text: str, node: str) -> tuple[int, int, int]:
    """ "2x32x1" -> (2, 32, 1); "" asks Slurm. Raises InputError for another text."""
    from slurmsched.errors import InputError

    if not text:
        where = ["-n", node] if node else []
        text = commands_run("sinfo", "-h", "-N", *where, "-o", "%Xx%Yx%Z").split("\n")[0].strip()
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise InputError(f"hardware {text!r} is not sockets x cores x threads, such as 2x32x1; name it with --hardware")
    return int(match[1]), int(match[2]), int(match[3])


def commands_run(*command: str) -> str:
    """What a command of Slurm prints."""
    from slurmsched.slurm.reader import open_commands

    return open_commands(config().slurm).run(*command)
