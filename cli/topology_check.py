"""`topology check`: how often Slurm picks the best free GPUs.

Also the options of `topology compile`: classes of gres.conf, their true links, their hardware, and Slurm's version.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, read_config
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.model.gpu_topology import GpuTopology
    from slurmsched.resources.gpu_sets import SetRanks
    from slurmsched.topology.selection_quality import SelectionQuality
    from slurmsched.topology.slurm_selection import SlurmNode
    from slurmsched.topology.topology_files import NodeClass


NODE = (
    "Only the class of this node. If the lines name no nodes, or with the output of `slurmd -G`: the "
    "nodes, such as n[1-4]."
)
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class TopologyCase:
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


# Over 30 lines: one decorator for each option.
def with_case(function: Callable[..., Any], *, named: bool = False) -> Callable[..., Any]:
    """Options that say which nodes, which Slurm and which jobs. named: the nodes' names are needed."""

    @click.option(
        "--gres-conf",
        type=FILE,
        default="/etc/slurm/gres.conf",
        show_default=True,
        help="gres.conf, or the output of `slurmd -G` on a node that detects its GPUs.",
    )
    @click.option("--node", default="", help=NODE)
    @click.option(
        "--links",
        type=FILE,
        help="True links: output of `nvidia-smi topo -m` or `rocm-smi --showtopo` on such a node. Default: "
        "the Links of gres.conf.",
    )
    @click.option(
        "--gpu-type", default="", metavar="MODEL", help="GPU model, such as v100. Default: as in --links or gres.conf."
    )
    @click.option(
        "--slurm", default="", metavar="VERSION", help="Version of Slurm, such as 24.11.5. Default: the site's."
    )
    @click.option(
        "--hardware", default="", metavar="SxCxT", help="Sockets, cores and threads of a node. Default: as in Slurm."
    )
    @click.option(
        "--cores-per-gpu", type=click.IntRange(0), default=1, show_default=True, help="Cores that jobs request per GPU."
    )
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
    from slurmsched.topology.slurm_selection import read_version

    text = text or commands_run("sinfo", "--version")
    version = read_version(text)
    if not (21, 8) <= version[:2] <= (26, 5):
        raise InputError(f"Slurm {text.strip()!r}: unknown version; name one from 21.08 to 26.05 with --slurm")
    return version


def cases(path: Path, node: str, links: Path | None, gpu_type: str, hardware: str, version: tuple[int, ...],
          cores_per_gpu: int, *, named: bool = False) -> Iterator[TopologyCase]:  # fmt: skip
    """As wired_classes, with all that picks depend on."""
    from slurmsched.cli.framework import complain
    from slurmsched.errors import InputError
    from slurmsched.resources.gpu_sets import set_ranks
    from slurmsched.topology.gres_nodes import slurm_node
    from slurmsched.topology.topology_text import hosts_or_none

    found, why = 0, list[InputError]()
    for file, one, wiring in wired_classes(path, node, links, gpu_type, named=named):
        first = next(iter(hosts_or_none(node) or one.nodes), "")
        try:
            _nameable(one, named=named)
            slurm = slurm_node(one, shape_of(hardware, first))
            yield TopologyCase(one, slurm, wiring, set_ranks(wiring), version, cores_per_gpu, file)
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
    from slurmsched.cli.framework import complain
    from slurmsched.errors import InputError
    from slurmsched.resources.gpu_sets import unknown_links
    from slurmsched.slurm.topology_sources import read_text
    from slurmsched.topology.gres_nodes import true_links

    text = read_text(links) if links else ""  # once: it may be a pipe
    file, classes = _listed(path, node, named=named)
    for one in classes:
        wiring = true_links(one, _told(text, links, gpu_type, one.topology.gpu_type) if links else None)
        for warning in wiring.warnings:
            complain(f"{links or path}: {warning}")
        if named and wiring.bandwidth_gb_per_s.any() and (pairs := unknown_links(wiring)):
            problem = f"the link between GPU{pairs[0][0]} and GPU{pairs[0][1]} is not told"
            others = f", nor {pluralize(len(pairs) - 1, 'other')}" if len(pairs) > 1 else ""
            raise InputError(f"{problem}{others}; the true links of all pairs are needed", source=str(links or path))
        yield file, one, wiring


def _listed(path: Path, node: str, *, named: bool) -> tuple[GresFile, Sequence[NodeClass]]:
    """The file, and the classes of a gres.conf, or that of `node`; of what `slurmd -G` printed that of those nodes.

    The file is read once: it may be a pipe. Raises InputError for a file of another kind or that lists no GPUs.
    """
    from slurmsched.cli.topology_show import class_of
    from slurmsched.errors import InputError
    from slurmsched.slurm.topology_sources import files_beside, read_text
    from slurmsched.topology.topology_files import kind_of_text, read_topology_text
    from slurmsched.topology.topology_text import hosts_or_none

    text = read_text(path)
    kind = kind_of_text(text)
    printed = kind == "slurmd-log"
    found = read_topology_text(text, "slurmd-log" if printed else "gres.conf", path.stem, include=files_beside(path))
    if not any(one.devices for one in found.classes):
        why = "; ".join((*found.warnings, *found.notes)) or "it lists no GPU"
        other = f"no gres.conf (its content is that of {kind})" if kind not in ("gres.conf", "slurmd-log", "") else why
        raise InputError(f"{other}; name what `slurmd -G` prints there with --gres-conf", source=str(path))
    if printed:
        return GresFile(path, ""), [_of_nodes(one, node, path, named=named) for one in found.classes if one.devices]
    if not (wanted := hosts_or_none(node) or ()):
        return GresFile(path, text), found.classes
    one = class_of(wanted[0], found.classes)
    if astray := [host for host in wanted if class_of(host, found.classes) is not one]:
        raise InputError(f"{astray[0]} has other GPUs than {wanted[0]}; name nodes that are alike", source=str(path))
    by_name = not one.nodes and named and one.autodetect not in ("", "off")
    return GresFile(path, text, by_name), [replace(one, nodes=wanted) if by_name else one]


def _of_nodes(one: NodeClass, node: str, path: Path, *, named: bool) -> NodeClass:
    """What a slurmd printed holds for its own node and those like it, not for every node that reads the new file."""
    from slurmsched.errors import InputError
    from slurmsched.topology.topology_text import hosts_or_none

    nodes = hosts_or_none(node)
    if nodes is None or (named and not nodes):
        raise InputError("describes the node where `slurmd -G` ran; name it and its like with --node n[1-4]",
                         source=str(path))  # fmt: skip
    return replace(one, nodes=nodes)


def _told(text: str, path: Path, gpu_type: str, otherwise: str) -> GpuTopology:
    """The class of node that a file of links shows. otherwise: the model where neither gpu_type nor the file tells one.

    Raises InputError for a file that shows none, or several.
    """
    from slurmsched.cli.topology_show import class_of
    from slurmsched.errors import InputError
    from slurmsched.slurm.topology_sources import files_beside
    from slurmsched.topology.topology_files import read_topology_text

    found = read_topology_text(text, "", path.stem, gpu_type, files_beside(path))
    if not found.classes:
        raise InputError(
            "; ".join(found.warnings) or f"{found.kind} has no links of GPUs; name another file with --links",
            source=str(path),
        )
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

    return open_commands(read_config(plugins=False).slurm).run(*command)


# `topology check`


def register_check(group: click.Group) -> None:
    """Add it to `topology`."""

    @framework.examples(("slurmsched topology check --links topo.txt", "Slurm's choices with these links."))
    @framework.with_command(group, "check")
    @with_case
    def check(out: Output, cases: Sequence[TopologyCase], version: tuple[int, ...]) -> None:
        """Show how often Slurm picks the best free GPUs.

        Considers every set of free GPUs of a node (of more than nine GPUs, a thousand random sets), and every job of
        two or more GPUs, by form of request. Shows the share of cases in which Slurm picks the best set, the mean
        bandwidth lost, and the three worst cases. --gpus-per-task is checked with one GPU per task,
        --gpus-per-socket with whole sockets. Cases in which Slurm's choice is unknown are counted.
        """
        from slurmsched.topology.slurm_selection import fault_of

        found = [(case, checked(case)) for case in cases]
        if out.as_json:
            out.json([{"class": case.one.topology.name, "slurm": version, "forms": forms} for case, forms in found])
        else:
            _print(out, found)
            if fault := fault_of(version):
                out.line(f"{fault}; only states without held GPUs are judged")


def _print(out: Output, found: Sequence[tuple[TopologyCase, Sequence[SelectionQuality]]]) -> None:
    rows = [(case.one.topology.name, str(one.form), one.states, *quality_cells(one), one.unknown or "")
            for case, forms in found for one in forms]  # fmt: skip
    out.table(("nodes", "form", "states>", "best>", "bandwidth lost>", "unknown>"), rows)
    for case, forms in found:
        for one in forms:
            print_worst(out, case.one.topology.name, one)
    for name, drawn in {case.one.topology.name: forms[0].drawn for case, forms in found}.items():
        if drawn:
            out.line(f"{name}: of {pluralize(drawn, 'set')} of free GPUs that were drawn, not of all")
    for line in remedies([form for _, forms in found for form in forms]):
        out.line(line)


def remedies(forms: Sequence[SelectionQuality]) -> Iterator[str]:
    """What to do where Slurm's picks are not always the best."""
    if any(one.best_states < one.states for one in forms):
        yield "better picks: `slurmsched topology compile`; `compile --types` with placement.retype"
    share = {str(one.form): one.best_share for one in forms if one.states}
    if share.get("gpus", 1.0) < share.get("gpus-per-node", 0.0):
        yield "--gpus=N is worse than --gpus-per-node=N: job_submit.lua can make it that (`compile` prints the lines)"


def checked(case: TopologyCase, node: SlurmNode | None = None, order: Any = None) -> list[SelectionQuality]:
    """Each form of request, by the file as it is or with other Links and order."""
    from slurmsched.topology.selection_quality import CHECKED, SHAPED, rate_selection, rate_shaped_selection, states_of

    node, each = node or case.node, case.cores_per_gpu
    free = [rate_selection(node, case.ranks, form, case.version, states_of(node, case.ranks, form, each), order)
            for form in CHECKED]  # fmt: skip
    return free + [rate_shaped_selection(node, case.ranks, form, case.version, each, order) for form in SHAPED]


def quality_cells(one: SelectionQuality) -> tuple[str, str]:
    """Share of best picks, and of bandwidth lost; "-" where no state is known."""
    return (f"{one.best_share:.1%}", f"{one.lost_share:.1%}") if one.states else ("-", "-")


def print_worst(out: Output, name: str, one: SelectionQuality) -> None:
    """The worst picks: free, picked, best, each as GPU numbers."""
    from slurmsched.model.gpu_masks import mask_members

    for miss in one.worst:
        free, got, best = (",".join(map(str, mask_members(mask))) for mask in (miss.free, miss.picked, miss.best))
        out.line(f"{name} --{one.form}={miss.picked.bit_count()}: free {free}; picked {got}, best {best}, "
                 f"{miss.lost:.0%} of the bandwidth lost")  # fmt: skip
