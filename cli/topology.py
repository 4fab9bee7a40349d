"""`topology`: show, import and compare how GPUs and nodes are connected; quality of placements."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework, topology_check
from slurmsched.cli.framework import ANSWER_NO, FILE, CommandGroup, Output, complain, read_config
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.db.ledger_queries import PlacementFacts, PlacementQuality
    from slurmsched.topology.fabrics import NamedFabric
    from slurmsched.topology.topology_files import NodeClass, TopologyFile


def register_quality(group: click.Group) -> None:
    """Add the command to `topology`."""

    @framework.examples(("slurmsched topology quality --since 7d", "Placements of the last week."))
    @framework.with_command(group, "quality")
    @click.option(
        "--since", default="1d", show_default=True, metavar="DURATION", help="Jobs that started within this time."
    )
    @click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True,
                  help="Most rows to show; 0: all.")  # fmt: skip
    def quality(out: Output, since: str, limit: int) -> None:
        """Show how good the GPUs of started jobs were.

        Compares their bandwidth with the best that was possible at the start. Reads the ledger of a running daemon.
        Jobs of one GPU and jobs on nodes of unknown topology are not included.
        """
        from slurmsched.db.ledger_queries import placement_quality, placements_since

        rows = placements_since(read_config(plugins=False).ledger.address, time.time() - _seconds(since))
        missed = [row for row in rows if row.note]
        shown = missed[:limit] if limit else missed
        if out.as_json:
            out.json({"since_s": _seconds(since), "jobs": placement_quality(rows), "missed": shown}, schema="quality")
            return
        heads = ("jobs of", "pinned", "jobs>", "best>", "mean ratio>", "worst>")
        out.table(heads, [_cells(row) for row in placement_quality(rows)])
        if shown:
            out.table(("job>", "started", "nodes", "GPUs>", "ratio>", "missed"), [_missed(row) for row in shown])
        if len(shown) < len(missed):
            out.line(f"... and {len(missed) - len(shown)} more (--limit 0 shows all)")


def _cells(row: PlacementQuality) -> tuple[Any, ...]:
    return (pluralize(row.gpus, "GPU"), "yes" if row.pinned else "no", row.jobs, f"{row.best_share:.1%}",
            f"{row.mean_ratio:.3f}", f"{row.worst_ratio:.3f}")  # fmt: skip


def _missed(row: PlacementFacts) -> tuple[Any, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.start_s))
    return row.job_id, started, row.nodes, row.gpus, f"{row.ratio:.3f}", row.note


def _seconds(text: str) -> float:
    from slurmsched.errors import InputError
    from slurmsched.model.durations import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise InputError(f"--since {text} {error}") from None


# `topology show`, `import` and `diff`


@click.group("topology", cls=CommandGroup)
def command() -> None:
    """Show, import, compare and compile the topology of GPUs and nodes."""


@framework.examples(("slurmsched topology show n1 --svg n1.svg", "The links of node n1, also as a picture."))
@framework.with_command(command, "show")
@click.argument("node", required=False, shell_complete=completers.nodes)
@click.option("--file", type=FILE, help="Show the contents of this file; do not ask Slurm.")
@click.option("--svg", type=FILE, help="Also draw the node's GPUs and links to this SVG file.")
def show(out: Output, node: str | None, file: Path | None, svg: Path | None) -> None:
    """Show the classes of nodes and the fabric, or one NODE.

    For NODE: the matrix of its links, its linked sets and its place in the fabric.
    """
    from slurmsched.cli.topology_show import print_class, print_site
    from slurmsched.topology.site_topology import class_record, fabric_record
    from slurmsched.topology.site_topology import topology_svg as drawn
    from slurmsched.topology.topology_files import node_class_of

    classes, fabric, warnings = _of_file(file) if file else _slurm_node_classes()
    for warning in warnings:
        complain(warning)
    if node is None and svg is None and not (file and len(classes) == 1):
        if out.as_json:
            out.json({"classes": [class_record(one) for one in classes], "fabric": fabric_record(fabric)})
        else:
            print_site(out, classes, fabric)
        return
    one = node_class_of(node, classes)
    if svg:
        _write(svg, drawn(one.topology))
    if out.as_json:
        out.json(class_record(one))
    else:
        print_class(out, node or "", one, fabric)


@framework.examples(("slurmsched topology import topo.txt --gpu-type a100", "The contents of a file of nvidia-smi."))
@framework.with_command(command, "import")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--kind", default="", metavar="KIND", help="Kind of all files. Default: detected.")
@click.option("--gpu-type", default="", metavar="MODEL", help="GPU model, for the bandwidth of links, such as a100.")
@click.option(
    "-w",
    "--nodelist",
    "nodes",
    default="",
    metavar="HOSTLIST",
    help="Only these hosts of ibnetdiscover. Default: the nodes of a slurm.conf among FILES.",
)
@click.option("--strict", is_flag=True, help="Exit code 2 if anything was damaged or skipped.")
def import_files(out: Output, files: tuple[Path, ...], kind: str, gpu_type: str, nodes: str, strict: bool) -> int:
    """Read topology files and show what they contain.

    FILES: `nvidia-smi topo -m`, `rocm-smi --showtopo`, slurmd's log, gres.conf, ibnetdiscover and more. Damaged files
    are read as far as possible, with warnings. Exit code 2: a file is of no known kind, or nothing in it can be read
    as --kind.
    """
    from slurmsched.cli.topology_show import print_reading
    from slurmsched.errors import InputError
    from slurmsched.topology.site_topology import topology_file_record
    from slurmsched.topology.topology_files import KINDS

    if kind and kind not in KINDS:
        raise InputError(f"--kind {kind!r} is unknown; known: {', '.join(KINDS)}")
    readings = _readings(files, kind, gpu_type, nodes)
    if out.as_json:
        out.json([{"file": str(path), **topology_file_record(reading)} for path, reading in readings])
    for path, reading in readings:
        if not out.as_json:
            print_reading(out, path, reading)
        for warning in reading.warnings:
            complain(f"{path}: {warning}")
    failed = any(not reading.kind or (strict and reading.warnings) for _, reading in readings)
    return InputError.exit_code if failed else 0


@framework.examples(("slurmsched topology diff", "Differences between files and Slurm."))
@framework.with_command(command, "diff")
@click.option(
    "--fabric",
    type=FILE,
    help="topology.conf, topology.yaml or ibnetdiscover file. Default: as configured, else the file beside slurm.conf.",
)
def diff(out: Output, fabric: Path | None) -> int:
    """Compare files and configuration with Slurm.

    Shows missing, extra and moved nodes, and GPU counts that differ. Exit code 10: there are differences.
    """
    from slurmsched.cli.topology_show import difference_rows
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.topology_sources import differences

    found, warnings = differences(
        read_config(plugins=False).topology, open_commands(read_config(plugins=False).slurm), fabric
    )
    for warning in warnings:
        complain(warning)
    if out.as_json:
        out.json(found)
    elif found:
        out.table(("what", "nodes", "files", "slurm"), difference_rows(found))
    if not out.as_json:
        out.line(f"{pluralize(len(found), 'difference')}", "warn" if found else "ok")
    return ANSWER_NO if found else 0


def _readings(files: tuple[Path, ...], kind: str, gpu_type: str, nodes: str) -> list[tuple[Path, TopologyFile]]:
    """Each file once: it may be a pipe. An ibnetdiscover is read again once a slurm.conf tells the cluster's nodes."""
    from slurmsched.errors import InputError
    from slurmsched.slurm.topology_sources import files_beside, read_text
    from slurmsched.topology.topology_files import checked_kind, read_topology_text
    from slurmsched.topology.topology_text import hosts_or_none

    if (named := hosts_or_none(nodes)) is None:
        raise InputError(f"--nodelist {nodes!r} is not a list of hosts such as n[1-4]")
    texts = [(path, read_text(path)) for path in files]
    found = [read_topology_text(text, kind, path.stem, gpu_type, files_beside(path), named) for path, text in texts]
    known = named or [node for one in found for node in one.nodes]
    again = [
        read_topology_text(text, one.kind, path.stem, gpu_type, files_beside(path), known)
        if one.kind == "ibnetdiscover"
        else one
        for (path, text), one in zip(texts, found, strict=True)
    ]
    return [(path, checked_kind(one, text)) for (path, text), one in zip(texts, again, strict=True)]


def _write(path: Path, text: str) -> None:
    from slurmsched.errors import InputError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def _of_file(path: Path) -> tuple[tuple[NodeClass, ...], NamedFabric, tuple[str, ...]]:
    from slurmsched.errors import InputError
    from slurmsched.slurm.topology_sources import default_fabric, read_file

    reading: TopologyFile = read_file(path, name=path.stem)
    if not reading.kind:
        raise InputError(reading.warnings[0], source=str(path))
    return reading.classes, default_fabric(reading), reading.warnings


def _slurm_node_classes() -> tuple[tuple[NodeClass, ...], NamedFabric, tuple[str, ...]]:
    """The classes of nodes that Slurm has, each with its nodes."""
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.topology_sources import known_classes

    return known_classes(read_config(plugins=False).topology, open_commands(read_config(plugins=False).slurm))


topology_check.register_check(command)
topology_check.register_compile(command)
register_quality(command)
