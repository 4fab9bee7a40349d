"""`gpus`: which GPUs are free, by type, linked set, node, partition and fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import Output, collect_no_garbage, read_config
from slurmsched.cli.listing import Choice, Column, Listing, listed
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.model import Snapshot
    from slurmsched.observe.survey.gpu_overview import GpuOverview, GpuSum, NodeLine, Stranded
    from slurmsched.resources.node_gpus import MigDevices

SHOWN = 3  # holders of a stranded node


def _ranges(gpus: tuple[int, ...] | None) -> str:
    from slurmsched.topology.gres_nodes import fold_numbers

    return "?" if gpus is None else fold_numbers(gpus) or "-"


LISTING = Listing(
    (
        Column("nodelist nodes", "nodes", "nodes", "N"),
        Column("state", "state", "state", "T"),
        Column("type", "gpu_type", "type"),
        Column("gpus", "gpus", "GPUs", "b", number=True),
        Column("idle free", "free", "idle", number=True),
        Column("linked", "linked", "linked", number=True, text=lambda value: "?" if value is None else str(value)),
        Column("indices", "free_gpus", "idle GPUs", text=_ranges),
        Column("reason", "reason_shown", "reason", "E"),
    ),
    ("nodelist", "state", "type", "gpus", "idle", "linked", "reason"),
)


@framework.examples(
    ("slurmsched gpus", "All GPUs by type, node, partition and cell."),
    ("slurmsched gpus -w 'n[1-4]'", "Which GPUs of these nodes are idle."),
    ("slurmsched gpus --csv --sort=-free", "Nodes with the most idle GPUs first."),
)
@framework.command("gpus")
@click.option("-w", "--nodelist", "node", metavar="HOSTLIST", default="",
              help='Only these nodes, such as "n[1-4]"; also shows which GPUs.')  # fmt: skip
@click.option("--type", "gpu_type", metavar="TYPE", default="", help="Only GPUs of this type, by Slurm's name.")
@click.option(
    "-p",
    "--partition",
    metavar="NAME",
    default="",
    shell_complete=completers.partitions,
    help="Only nodes of this partition.",
)
@listed(LISTING)
def command(out: Output, node: str, gpu_type: str, partition: str, choice: Choice) -> None:
    """Show idle, allocated, draining and down GPUs.

    Idle GPUs are listed by linked set, and stranded GPUs with the cause. A linked set is a set of GPUs that NVLink or
    XGMI connects: "2x4" means that two nodes have an idle linked set of four GPUs. With --format, --sort or --csv only
    the nodes are listed.

    Needs no more rights than squeue and sinfo. Reads only.
    """
    collect_no_garbage()
    from slurmsched.observe.survey.gpu_overview import gpu_overview
    from slurmsched.slurm.reader import read_cluster_once

    snapshot = read_cluster_once(read_config(), waiting=False)
    found = gpu_overview(snapshot, _filter(snapshot, node, gpu_type, partition))
    if out.as_json:
        out.json({"cluster": snapshot.site.cluster, "now_s": snapshot.now_s, **_record(found),
                  "warnings": snapshot.warnings}, schema="gpus")  # fmt: skip
        return
    if choice.plain or choice.sort:
        LISTING.show(out, found.nodes, choice)
        out.notes((), snapshot.warnings, plain=True)
        return
    _print(out, found, indices=bool(node))
    for warning in snapshot.warnings:
        out.line(f"warning: {warning}", "warning")


def _filter(snapshot: Snapshot, node: str, gpu_type: str, partition: str) -> Any:
    """The filter of the options. Raises InputError for a name that the cluster does not know."""
    from slurmsched.observe.survey.gpu_overview import GpuFilter
    from slurmsched.observe.survey.sbatch_request import check_name, check_nodes, named_hosts
    from slurmsched.resources.node_gpus import gpu_types

    names = frozenset(named_hosts("--nodelist", node)) if node else None
    check_nodes("--nodelist", names or (), snapshot.nodes.name)
    check_name("--partition", partition, snapshot.partitions.name)
    check_name("--type", gpu_type, gpu_types(snapshot))
    return GpuFilter(names, gpu_type, partition)


def _record(found: GpuOverview) -> dict[str, Any]:
    return {
        "types": found.types, "nodes": found.nodes, "partitions": found.partitions, "fabric": found.fabric,
        "mig": [{"node": node, "type": one.gpu_type, "devices": one.devices, "free": one.free}
                for node, one in found.mig],
        "stranded": found.stranded,
    }  # fmt: skip


def _print(out: Output, found: GpuOverview, *, indices: bool) -> None:
    if not found.types and not found.mig:
        out.line("no GPUs there")
        return
    _print_sums(out, "type", found.types, sets=True)
    out.line()
    _print_nodes(out, found.nodes, indices=indices)
    for name, sums in (("partition", found.partitions), ("cell", found.fabric)):
        if len(sums) > 1:
            out.line()
            _print_sums(out, name, sums)
    _print_mig(out, found.mig)
    for one in found.stranded:
        _print_stranded(out, one)


def _print_sums(out: Output, name: str, sums: tuple[GpuSum, ...], *, sets: bool = False) -> None:
    last = "linked sets" if sets else "whole nodes>"
    boot, unread = (any(getattr(one, key) for one in sums) for key in ("boot", "unread"))
    columns = (name, "GPUs>", "idle>", *["after a boot>"] * boot, "stranded>", "allocated>", "draining>", "down>",
               *["unknown>"] * unread, last)  # fmt: skip
    rows = [(one.name, one.gpus, one.free, *[one.boot] * boot, one.stranded, one.used, one.drained, one.down,
             *[one.unread] * unread, _sets(one) if sets else one.whole) for one in sums]  # fmt: skip
    out.table(columns, rows)


def _sets(one: GpuSum) -> str:
    """ "2x8, 1x4, 3 nodes unknown"; "-" where none is free."""
    known = [f"{nodes}x{gpus}" for gpus, nodes in one.sets.items()]
    return ", ".join([*known, *([f"{pluralize(one.unknown, 'node')} unknown"] if one.unknown else [])]) or "-"


def _print_nodes(out: Output, lines: tuple[NodeLine, ...], *, indices: bool) -> None:
    from slurmsched.observe.survey.gpu_overview import merged_lines

    columns = ("nodes", "state", "type", "GPUs>", "idle>", "linked>", "idle GPUs" if indices else "", "reason")
    shown = lines if indices else merged_lines(lines)
    rows = [(one.nodes, one.state, one.gpu_type or "-", one.gpus, one.free, "?" if one.linked is None else one.linked,
             _indices(one) if indices else "", one.reason or one.why) for one in shown]  # fmt: skip
    keep = [at for at, name in enumerate(columns) if name]
    out.table([columns[at] for at in keep], [[row[at] for at in keep] for row in rows])


def _indices(one: NodeLine) -> str:
    return _ranges(one.free_gpus)


def _print_mig(out: Output, mig: tuple[tuple[str, MigDevices], ...]) -> None:
    from slurmsched.observe.survey.gpu_overview import mig_sums

    if rows := mig_sums(mig):
        out.line()
        out.table(("MIG type", "devices>", "idle>", "nodes"), rows)


def _print_stranded(out: Output, one: Stranded) -> None:
    taken = f"{one.cause} is taken" if one.cause == "memory" else f"{one.cause} are taken"
    hidden = "" if one.holders else " by jobs that are not shown"
    out.line()
    out.line(f"stranded: {pluralize(one.gpus, 'free GPU')} of {one.node}, whose {taken}{hidden}", "warn")
    for job in one.holders[:SHOWN]:
        out.line(f"  job {job.job_id} of {job.user}: {job.cpus:g} CPUs, {job.memory_mib / 1024:.1f} GiB, "
                 f"{pluralize(job.gpus, 'GPU')}")  # fmt: skip
    if len(one.holders) > SHOWN:
        out.line(f"  and {len(one.holders) - SHOWN} more")
