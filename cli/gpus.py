"""`gpus`: which GPUs are free, by type, linked set, node, partition and fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.model import Snapshot
    from slurmsched.survey.overview import NodeLine, Overview, Sum
    from slurmsched.survey.stock import Mig
    from slurmsched.survey.stranded import Stranded

SHOWN = 3  # holders of a stranded node


@output.command("gpus")
@click.option("--node", metavar="HOSTLIST", default="", help='Only these nodes, such as "n[1-4]"; shows which GPUs.')
@click.option("--type", "gpu_type", metavar="TYPE", default="", help="Only GPUs of this type, as Slurm names it.")
@click.option("--partition", "-p", metavar="NAME", default="", help="Only nodes of this partition.")
def command(out: Output, node: str, gpu_type: str, partition: str) -> None:
    """Show free, used, drained and down GPUs, the free ones by linked set, and stranded ones with the cause.

    A linked set is what NVLink or XGMI joins: "2x4" means two nodes have four such free GPUs at most. Needs no rights
    beyond those of squeue and sinfo; reads only.
    """
    from slurmsched.slurm.look import look
    from slurmsched.survey.overview import overview

    snapshot = look(config())
    found = overview(snapshot, _filter(snapshot, node, gpu_type, partition))
    if out.as_json:
        out.json({"cluster": snapshot.site.cluster, "now_s": snapshot.now_s, **_record(found),
                  "warnings": snapshot.warnings})  # fmt: skip
        return
    _print(out, found, indices=bool(node))
    for warning in snapshot.warnings:
        out.line(f"warning: {warning}", "warning")


def _filter(snapshot: Snapshot, node: str, gpu_type: str, partition: str) -> Any:
    """The filter of the options. Raises InputError for a name that the cluster does not know."""
    from slurmsched.survey.names import check_name, check_nodes, hosts
    from slurmsched.survey.overview import Filter
    from slurmsched.survey.stock import gpu_types

    names = frozenset(hosts("--node", node)) if node else None
    check_nodes("--node", names or (), snapshot.nodes.name)
    check_name("--partition", partition, snapshot.partitions.name)
    check_name("--type", gpu_type, gpu_types(snapshot))
    return Filter(names, gpu_type, partition)


def _record(found: Overview) -> dict[str, Any]:
    return {
        "types": found.types, "nodes": found.nodes, "partitions": found.partitions, "fabric": found.fabric,
        "mig": [{"node": node, "type": one.gpu_type, "devices": one.devices, "free": one.free}
                for node, one in found.mig],
        "stranded": found.stranded,
    }  # fmt: skip


def _print(out: Output, found: Overview, *, indices: bool) -> None:
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


def _print_sums(out: Output, name: str, sums: tuple[Sum, ...], *, sets: bool = False) -> None:
    last = "linked sets" if sets else "whole nodes>"
    boot, unread = (any(getattr(one, key) for one in sums) for key in ("boot", "unread"))
    columns = (name, "GPUs>", "free>", *["after a boot>"] * boot, "stranded>", "used>", "drained>", "down>",
               *["unknown>"] * unread, last)  # fmt: skip
    rows = [(one.name, one.gpus, one.free, *[one.boot] * boot, one.stranded, one.used, one.drained, one.down,
             *[one.unread] * unread, _sets(one) if sets else one.whole) for one in sums]  # fmt: skip
    out.table(columns, rows)


def _sets(one: Sum) -> str:
    """ "2x8, 1x4, 3 nodes unknown"; "-" where none is free."""
    known = [f"{nodes}x{gpus}" for gpus, nodes in one.sets.items()]
    return ", ".join([*known, *([f"{some(one.unknown, 'node')} unknown"] if one.unknown else [])]) or "-"


def _print_nodes(out: Output, lines: tuple[NodeLine, ...], *, indices: bool) -> None:
    columns = ("nodes", "state", "type", "GPUs>", "free>", "linked>", "free GPUs" if indices else "", "reason")
    rows = [(one.nodes, one.state, one.gpu_type or "-", one.gpus, one.free, "?" if one.linked is None else one.linked,
             _indices(one) if indices else "", one.reason or one.why) for one in _merged(lines, indices)]  # fmt: skip
    keep = [at for at, name in enumerate(columns) if name]
    out.table([columns[at] for at in keep], [[row[at] for at in keep] for row in rows])


def _merged(lines: tuple[NodeLine, ...], indices: bool) -> list[NodeLine]:
    """Where indices are not shown, lines that differ in them alone are one."""
    from dataclasses import replace

    from slurmsched.model.hostlist import expand, fold

    if indices:
        return list(lines)
    alike: dict[NodeLine, list[str]] = {}
    for one in lines:
        alike.setdefault(replace(one, nodes="", free_gpus=None), []).extend(expand(one.nodes))
    return [replace(one, nodes=fold(names)) for one, names in alike.items()]


def _indices(one: NodeLine) -> str:
    from slurmsched.topology.slurm_site import ranges

    return "?" if one.free_gpus is None else ranges(one.free_gpus) or "-"


def _print_mig(out: Output, mig: tuple[tuple[str, Mig], ...]) -> None:
    from slurmsched.model.hostlist import fold

    of: dict[str, list[tuple[str, Mig]]] = {}
    for node, one in mig:
        of.setdefault(one.gpu_type, []).append((node, one))
    rows = [(name, sum(one.devices for _, one in some), sum(one.free for _, one in some),
             fold(node for node, _ in some)) for name, some in of.items()]  # fmt: skip
    if rows:
        out.line()
        out.table(("MIG type", "devices>", "free>", "nodes"), rows)


def _print_stranded(out: Output, one: Stranded) -> None:
    taken = f"{one.cause} is taken" if one.cause == "memory" else f"{one.cause} are taken"
    hidden = "" if one.holders else " by jobs that are not shown"
    out.line()
    out.line(f"stranded: {some(one.gpus, 'free GPU')} of {one.node}, whose {taken}{hidden}", "warn")
    for job in one.holders[:SHOWN]:
        out.line(f"  job {job.job_id} of {job.user}: {job.cpus:g} CPUs, {job.memory_mib / 1024:.1f} GiB, "
                 f"{some(job.gpus, 'GPU')}")  # fmt: skip
    if len(one.holders) > SHOWN:
        out.line(f"  and {len(one.holders) - SHOWN} more")
