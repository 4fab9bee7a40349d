"""`topology`: how GPUs and nodes are wired, from files and from Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched.cli import output, topology_check, topology_compile, topology_quality
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output, complain
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.topology.cells import NamedFabric
    from slurmsched.topology.reading import NodeClass, Reading

FILE = click.Path(dir_okay=False, path_type=Path)
DIFFERS = 3  # exit code of `diff`


@click.group("topology", cls=Group)
def command() -> None:
    """How GPUs and nodes are wired: show it, read it from files, hold it against Slurm."""


@output.with_command(command, "show")
@click.argument("node", required=False)
@click.option("--file", type=FILE, help="Show what this file says, of a node it names or of its only class; no Slurm.")
@click.option("--svg", type=FILE, help="Also draw the node's GPUs and links, as an SVG picture.")
def show(out: Output, node: str | None, file: Path | None, svg: Path | None) -> None:
    """Show the classes of nodes and the fabric or, of NODE, the matrix of its links, its groups and where it is."""
    from slurmsched.cli.topology_show import class_of, print_class, print_site
    from slurmsched.topology.picture import svg as drawn
    from slurmsched.topology.record import class_record, fabric_record

    classes, fabric, warnings = _of_file(file) if file else _of_slurm()
    for warning in warnings:
        complain(warning)
    if node is None and svg is None and not (file and len(classes) == 1):
        if out.as_json:
            out.json({"classes": [class_record(one) for one in classes], "fabric": fabric_record(fabric)})
        else:
            print_site(out, classes, fabric)
        return
    one = class_of(node, classes)
    if svg:
        _write(svg, drawn(one.topology))
    if out.as_json:
        out.json(class_record(one))
    else:
        print_class(out, node or "", one, fabric)


@output.with_command(command, "import")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--kind", default="", metavar="KIND", help="Of all files; default: told by their content.")
@click.option("--gpu-type", default="", metavar="MODEL", help="GPU model, such as a100, for link bandwidth.")
@click.option("--nodes", default="", metavar="HOSTLIST", help="Of ibnetdiscover, only these hosts; default: the nodes "
              "of a slurm.conf among FILES.")  # fmt: skip
@click.option("--strict", is_flag=True, help="End with 2 if anything was damaged or left out.")
def import_files(out: Output, files: tuple[Path, ...], kind: str, gpu_type: str, nodes: str, strict: bool) -> int:
    """Read FILES: `nvidia-smi topo -m`, `rocm-smi --showtopo`, slurmd's log, gres.conf, ibnetdiscover and more.

    Damaged files give what can still be read, with warnings. Exit code 2 for a file of no known kind, and for one of
    which nothing can be read as of --kind.
    """
    from slurmsched.cli.topology_show import print_reading
    from slurmsched.errors import InputError
    from slurmsched.topology.reading import KINDS
    from slurmsched.topology.record import record

    if kind and kind not in KINDS:
        raise InputError(f"--kind {kind!r} is none of {', '.join(KINDS)}")
    readings = _readings(files, kind, gpu_type, nodes)
    if out.as_json:
        out.json([{"file": str(path), **record(reading)} for path, reading in readings])
    for path, reading in readings:
        if not out.as_json:
            print_reading(out, path, reading)
        for warning in reading.warnings:
            complain(f"{path}: {warning}")
    failed = any(not reading.kind or (strict and reading.warnings) for _, reading in readings)
    return InputError.exit_code if failed else 0


@output.with_command(command, "diff")
@click.option("--fabric", type=FILE, help="topology.conf, topology.yaml or ibnetdiscover; default: as configured, else "
              "the file beside slurm.conf.")  # fmt: skip
def diff(out: Output, fabric: Path | None) -> int:
    """Hold what files and configuration say against what Slurm says now: missing, extra, moved nodes, GPU counts.

    Exit code 3 if anything differs.
    """
    from slurmsched.cli.topology_show import grouped
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.wiring_diff import differences

    found, warnings = differences(config().topology, open_commands(config().slurm), fabric)
    for warning in warnings:
        complain(warning)
    if out.as_json:
        out.json(found)
    elif found:
        out.table(("what", "nodes", "files", "slurm"), grouped(found))
    if not out.as_json:
        out.line(f"{some(len(found), 'difference')}", "warn" if found else "ok")
    return DIFFERS if found else 0


def _readings(files: tuple[Path, ...], kind: str, gpu_type: str, nodes: str) -> list[tuple[Path, Reading]]:
    """Each file once: it may be a pipe. An ibnetdiscover is read again once a slurm.conf tells the cluster's nodes."""
    from slurmsched.errors import InputError
    from slurmsched.slurm.wiring import beside, read_text
    from slurmsched.topology.plain import hosts
    from slurmsched.topology.reading import of_kind, read_any

    if (named := hosts(nodes)) is None:
        raise InputError(f"--nodes {nodes!r} is no list of hosts, such as n[1-4]")
    texts = [(path, read_text(path)) for path in files]
    found = [read_any(text, kind, path.stem, gpu_type, beside(path), named) for path, text in texts]
    known = named or [node for one in found for node in one.nodes]
    again = [read_any(text, one.kind, path.stem, gpu_type, beside(path), known) if one.kind == "ibnetdiscover" else one
             for (path, text), one in zip(texts, found, strict=True)]  # fmt: skip
    return [(path, of_kind(one, text)) for (path, text), one in zip(texts, again, strict=True)]


def _write(path: Path, text: str) -> None:
    from slurmsched.errors import InputError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def _of_file(path: Path) -> tuple[tuple[NodeClass, ...], NamedFabric, tuple[str, ...]]:
    from slurmsched.errors import InputError
    from slurmsched.slurm.wiring import default_fabric, read_file

    reading: Reading = read_file(path, name=path.stem)
    if not reading.kind:
        raise InputError(reading.warnings[0], source=str(path))
    return reading.classes, default_fabric(reading), reading.warnings


def _of_slurm() -> tuple[tuple[NodeClass, ...], NamedFabric, tuple[str, ...]]:
    """The classes of nodes that Slurm has, each with its nodes."""
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.wiring_diff import known_classes

    return known_classes(config().topology, open_commands(config().slurm))


topology_check.register(command)
topology_compile.register(command)
topology_quality.register(command)
