"""Classes of nodes by gres.conf, with their true links and hardware: the cases of `topology check` and `compile`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurmsched.config import Config
from slurmsched.errors import InputError
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.model.hostlists import fold_hostlist
from slurmsched.plain_text import pluralize
from slurmsched.resources.gpu_sets import SetRanks, set_ranks, unknown_links
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.topology_sources import files_beside, read_text
from slurmsched.topology.gres_compiler import JOB_SUBMIT, CompiledLinks, compile_links, type_groups, typed_lines
from slurmsched.topology.gres_conf import MARK, NewGresConf, wiring_comment
from slurmsched.topology.gres_nodes import conf_lines, slurm_node, true_links
from slurmsched.topology.selection_quality import (
    CHECKED,
    SHAPED,
    SelectionQuality,
    rate_selection,
    rate_shaped_selection,
    states_of,
)
from slurmsched.topology.slurm_selection import GpuOption, SlurmNode, read_version
from slurmsched.topology.topology_files import NodeClass, kind_of_text, node_class_of, read_topology_text
from slurmsched.topology.topology_text import hosts_or_none


@dataclass(frozen=True, slots=True)
class TopologyFiles:
    """What the options name.

    gres_conf: a gres.conf, or what `slurmd -G` printed.
    node: a node or several; "" = all classes.
    links: a file of the true links; None = the Links of gres.conf.
    gpu_type: "" = as the files say.
    named: whether the names of the nodes are needed.
    """

    gres_conf: Path
    node: str = ""
    links: Path | None = None
    gpu_type: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class TopologyCase:
    """One class of nodes with all that Slurm's choice of GPUs depends on."""

    one: NodeClass
    node: SlurmNode
    wiring: GpuTopology
    ranks: SetRanks
    version: tuple[int, ...]
    cores_per_gpu: int
    file: GresFile


@dataclass(frozen=True, slots=True)
class GresFile:
    """The gres.conf of the classes.

    text: "" = what `slurmd -G` printed instead.
    named: whether lines without NodeName become lines of nodes by name.
    """

    path: Path
    text: str
    named: bool = False


def version_of(config: Config, text: str) -> tuple[int, ...]:
    """ "24.11.5" -> (24, 11, 5); "" asks the site's Slurm. Raises InputError outside 21.08 to 26.05."""
    text = text or open_commands(config.slurm).run("sinfo", "--version")
    version = read_version(text)
    if not (21, 8) <= version[:2] <= (26, 5):
        raise InputError(f"Slurm {text.strip()!r}: unknown version; name one from 21.08 to 26.05 with --slurm")
    return version


def topology_cases(config: Config, files: TopologyFiles, hardware: str, version: tuple[int, ...], cores_per_gpu: int,
                   warn: Callable[[str], None]) -> list[TopologyCase]:  # fmt: skip
    """The classes of the files. hardware: as "2x32x1"; "" asks Slurm. warn: is given each warning.

    A class that cannot be described is left out with a warning. Raises InputError if none can be described.
    """
    found: list[TopologyCase] = []
    why: list[InputError] = []
    for file, one, wiring in wired_classes(files, warn):
        first = next(iter(hosts_or_none(files.node) or one.nodes), "")
        try:
            _nameable(one, named=files.named)
            slurm = slurm_node(one, shape_of(config, hardware, first))
            found.append(TopologyCase(one, slurm, wiring, set_ranks(wiring), version, cores_per_gpu, file))
        except InputError as error:
            why.append(error)
    if why and not found:
        raise why[0]
    for problem in why:
        warn(f"left as it is: {problem}")
    return found


def _nameable(one: NodeClass, *, named: bool) -> None:
    """Raises InputError for nodes without a name whose GPUs slurmd detects: AutoDetect=off needs one."""
    if named and not one.nodes and one.autodetect not in ("", "off"):
        text = f"AutoDetect={one.autodetect} holds for lines without NodeName, and only lines with one can turn it off"
        raise InputError(f"{text}; name the nodes: --node n[1-4]")


def wired_classes(
    files: TopologyFiles, warn: Callable[[str], None]
) -> Iterator[tuple[GresFile, NodeClass, GpuTopology]]:
    """The file, and its classes or that of the node, each with its true links.

    Raises InputError, if names are needed, for true links that are not known of every pair.
    """
    links = files.links
    text = read_text(links) if links else ""  # once: it may be a pipe
    file, classes = _listed(files.gres_conf, files.node, named=files.named)
    for one in classes:
        wiring = true_links(one, _true_class(text, links, files.gpu_type, one.topology.gpu_type) if links else None)
        for warning in wiring.warnings:
            warn(f"{links or files.gres_conf}: {warning}")
        if files.named and wiring.bandwidth_gb_per_s.any() and (pairs := unknown_links(wiring)):
            problem = f"the link between GPU{pairs[0][0]} and GPU{pairs[0][1]} is not known"
            others = f", nor {pluralize(len(pairs) - 1, 'other')}" if len(pairs) > 1 else ""
            source = str(links or files.gres_conf)
            raise InputError(f"{problem}{others}; the true links of all pairs are needed", source=source)
        yield file, one, wiring


def _listed(path: Path, node: str, *, named: bool) -> tuple[GresFile, Sequence[NodeClass]]:
    """The file, and the classes of a gres.conf, or that of `node`; of what `slurmd -G` printed that of those nodes.

    The file is read once: it may be a pipe. Raises InputError for a file of another kind or that lists no GPUs.
    """
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
    one = node_class_of(wanted[0], found.classes)
    if astray := [host for host in wanted if node_class_of(host, found.classes) is not one]:
        raise InputError(f"{astray[0]} has other GPUs than {wanted[0]}; name nodes that are alike", source=str(path))
    by_name = not one.nodes and named and one.autodetect not in ("", "off")
    return GresFile(path, text, by_name), [replace(one, nodes=wanted) if by_name else one]


def _of_nodes(one: NodeClass, node: str, path: Path, *, named: bool) -> NodeClass:
    """What a slurmd printed holds for its own node and those like it, not for every node that reads the new file."""
    nodes = hosts_or_none(node)
    if nodes is None or (named and not nodes):
        raise InputError("describes the node where `slurmd -G` ran; name it and all nodes like it with --node n[1-4]",
                         source=str(path))  # fmt: skip
    return replace(one, nodes=nodes)


def _true_class(text: str, path: Path, gpu_type: str, otherwise: str) -> GpuTopology:
    """The class of node that a file of links shows. otherwise: the model where neither gpu_type nor the file tells one.

    Raises InputError for a file that shows none, or several.
    """
    found = read_topology_text(text, "", path.stem, gpu_type, files_beside(path))
    if not found.classes:
        raise InputError(
            "; ".join(found.warnings) or f"{found.kind} has no links of GPUs; name another file with --links",
            source=str(path),
        )
    shown = node_class_of(None, found.classes).topology
    return shown if shown.gpu_type or not otherwise else _true_class(text, path, otherwise, "")


def shape_of(config: Config, text: str, node: str) -> tuple[int, int, int]:
    """ "2x32x1" -> (2, 32, 1); "" asks Slurm. Raises InputError for another text."""
    if not text:
        where = ["-n", node] if node else []
        text = open_commands(config.slurm).run("sinfo", "-h", "-N", *where, "-o", "%Xx%Yx%Z").split("\n")[0].strip()
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise InputError(f"hardware {text!r} is not sockets x cores x threads, such as 2x32x1; name it with --hardware")
    return int(match[1]), int(match[2]), int(match[3])


def remedies(forms: Sequence[SelectionQuality]) -> Iterator[str]:
    """What to do where Slurm's picks are not always the best."""
    if any(one.best_states < one.states for one in forms):
        yield "better picks: `slurmsched topology compile`; `compile --types` with placement.retype"
    share = {str(one.form): one.best_share for one in forms if one.states}
    if share.get("gpus", 1.0) < share.get("gpus-per-node", 0.0):
        yield "--gpus=N is worse than --gpus-per-node=N: job_submit.lua can make it that (`compile` prints the lines)"


def check_requests(case: TopologyCase, node: SlurmNode | None = None, order: Any = None) -> list[SelectionQuality]:
    """Each form of request, by the file as it is or with other Links and order."""
    node, each = node or case.node, case.cores_per_gpu
    free = [rate_selection(node, case.ranks, form, case.version, states_of(node, case.ranks, form, each), order)
            for form in CHECKED]  # fmt: skip
    return free + [rate_shaped_selection(node, case.ranks, form, case.version, each, order) for form in SHAPED]


# `topology compile`: a gres.conf with which Slurm picks the best GPUs.


def wiring_of_case(case: TopologyCase, order: Any = None) -> list[str]:
    """The true links as comments. order: of lines, None = as they are."""
    return wiring_comment(case.one.nodes, case.wiring, range(case.node.gpus) if order is None else order)


def whole_gres_conf(made: Sequence[tuple[TopologyCase, list[str]]]) -> Iterator[str]:
    """The gres.conf with the new lines in place of the old ones; the lines alone where slurmd printed the GPUs."""
    file = made[0][0].file
    new = NewGresConf([(case.one.nodes, lines) for case, lines in made], files_beside(file.path), file.named)
    if not file.text:
        nodes = fold_hostlist([node for case, _ in made for node in case.one.nodes])
        yield f"# {MARK} add these lines to gres.conf for {nodes}; keep its other lines, such as those of shard and mps"
        yield from new.finish()
        return
    new.write(file.text)
    lines = new.finish()
    yield f"# {MARK} takes the place of {file.path.name} as a whole; changed: {new.changes()}"
    if file.named:
        yield f"# {MARK} lines without NodeName are now those of {fold_hostlist(made[0][0].one.nodes)} alone"
    yield from (line for line in lines if not line.startswith((f"# {MARK} takes the place", f"# {MARK} lines without")))


def typed_lines_of(case: TopologyCase) -> list[str]:
    """The lines of one class with a Type for each island or GPU."""
    return typed_lines(case.one, case.node, type_groups(case.wiring, case.ranks.rank))


def typed_gres_conf(made: Sequence[tuple[TopologyCase, list[str]]]) -> Iterator[str]:
    """The gres.conf with these lines with Types, one class of nodes each, under their true links."""
    parts = []
    for case, lines in made:
        head = f"# {MARK} {case.one.topology.name}: GRES Types, by slurmsched topology compile --types"
        parts.append((case, [head, *wiring_of_case(case), *lines]))
    return whole_gres_conf(parts)


def compiled_links(case: TopologyCase, form: GpuOption, reorder: bool, most: int) -> CompiledLinks:
    """The best gres.conf found for the case. most: files to try."""
    states = states_of(case.node, case.ranks, form, case.cores_per_gpu)
    return compile_links(case.node, case.wiring, case.ranks, states, form, case.version, reorder=reorder, most=most)


def compiled_lines(case: TopologyCase, best: CompiledLinks, form: GpuOption) -> Iterator[str]:
    """The lines, under comments that tell what they reach."""
    version = "{}.{:02}".format(*case.version)
    yield f"# {MARK} {case.one.topology.name}: for Slurm {version} and --{form}, by slurmsched topology compile"
    before, after = check_requests(case), check_requests(case, best.node, best.order)
    for old, new in zip(before, after, strict=True):
        if new.states:
            yield f"# {MARK} --{new.form}: best set in {new.best_share:.1%} of states, before {old.best_share:.1%}"
    reach = "no file can do better" if best.proven else f"no file can exceed {best.bound / best.states:.1%}"
    sets = pluralize(after[0].drawn, "set")
    drawn = f", in states of {sets} of free GPUs that were drawn, not of all" if after[0].drawn else ""
    yield f"# {MARK} {reach}; {best.tried} tried{drawn}"
    yield from wiring_of_case(case, best.order)
    yield from conf_lines(case.one, best.node, best.order)


def other_means(short: Sequence[TopologyCase]) -> Iterator[str]:
    """What is left where the compiled file is not the best in every state, with the lines to write."""
    yield "# Another means: a GRES Type for each island or GPU; jobs that ask for gpu:N take any, and the daemon"
    yield "# rewrites the requests of those it places (placement.retype). gres.conf then, as by `compile --types`:"
    for case in short:
        yield from typed_lines_of(case)
    yield "# Another means: one form of request; --gpus=N of a one-node job becomes --gpus-per-node=N."
    yield "# slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside it:"
    yield JOB_SUBMIT.rstrip()


def compiled_record(case: TopologyCase, best: CompiledLinks) -> dict[str, Any]:
    """A compiled class as JSON."""
    return {"class": case.one.topology.name, "slurm": case.version, "states": best.states, "best": best.best_states,
            "bound": best.bound, "tried": best.tried, "proven": best.proven,
            "before": check_requests(case), "after": check_requests(case, best.node, best.order),
            "lines": conf_lines(case.one, best.node, best.order)}  # fmt: skip
