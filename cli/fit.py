"""`fit`: the largest request that starts now, or whether and where a given one does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import ANSWER_NO, Output, collect_no_garbage, read_config
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmsched.observe.survey.fit import Fit, GivenSet, LargestRequest
    from slurmsched.observe.survey.sbatch_request import SbatchRequest

_NO_LIMIT = re.compile(r"0+[smhdw]?|(?:0+-)?0+(?::0+){0,2}|-1|infinite|unlimited", re.IGNORECASE)
COUNT = click.IntRange(1)


@framework.examples(
    ("slurmsched fit", "The largest request that can start now."),
    ("slurmsched fit --gpus-per-node a100:4 -N 2 -t 1-00:00:00", "Whether this job can start now."),
)
@framework.command("fit")
@click.option("--gpus-per-node", metavar="[TYPE:]N", default="", help="GPUs per node, as in sbatch.")
@click.option("--gres", metavar="gpu:[TYPE:]N", default="", help="GPUs per node: the same as --gpus-per-node.")
@click.option("--gpus", "-G", metavar="[TYPE:]N", default="", help="GPUs of the whole job, as in sbatch.")
@click.option("--nodes", "-N", type=COUNT, help="Number of nodes. Default: as many as needed.")
@click.option(
    "--partition",
    "-p",
    shell_complete=completers.partitions,
    metavar="NAMES",
    default="",
    help="Partitions, separated by commas; the first in which the job can start is used. Default: Slurm's "
    "default partition.",
)
@click.option("--cpus-per-task", "-c", type=COUNT, default=1, show_default=True, help="CPUs per task.")
@click.option("--cpus-per-gpu", type=COUNT, help="CPUs per GPU. Default: the partition's.")
@click.option(
    "--mem", metavar="SIZE", default="", help="Memory per node, such as 64G; 0: all memory. Default: the partition's."
)
@click.option("--mem-per-gpu", metavar="SIZE", default="", help="Memory per GPU.")
@click.option("--mem-per-cpu", metavar="SIZE", default="", help="Memory per CPU.")
@click.option("--constraint", "-C", metavar="FEATURES", default="", help="Features that nodes must have, as in sbatch.")
@click.option(
    "--time",
    "-t",
    "time_",
    metavar="TIME",
    default="",
    help="Time limit: 2h, 90m, 1-12:00:00; 0: no limit. Default: the partition's.",
)
@click.option("--nodelist", "-w", metavar="HOSTLIST", default="", help="Nodes that the job must get.")
@click.option("--exclude", "-x", metavar="HOSTLIST", default="", help="Nodes that the job must not get.")
@click.option("--exclusive", is_flag=True, help="Whole nodes.")
def command(out: Output, **options: Any) -> int:
    """Show the largest request that can start now, by GPU type.

    With --gpus-per-node, --gres or --gpus: show whether this request can start now.

    If it can: where, and on which GPUs. If it cannot: why it would wait, and which similar requests could start. If
    only nodes that Slurm has powered down have room, it starts after they boot. Exit code 10: the request would wait.

    The order of pending jobs and the limits of accounts and QOS are not considered. Needs no more rights than squeue
    and sinfo. Reads only.
    """
    collect_no_garbage()
    from slurmsched.observe.fit_selection import fit_with_selection
    from slurmsched.observe.survey.fit import by_partition, first_start, fit, largest_requests
    from slurmsched.observe.survey.sbatch_request import check_nodes
    from slurmsched.slurm.reader import read_cluster_once

    request, tree = _request(options), read_config()
    snapshot = read_cluster_once(tree, reservations=True)
    for option, names in (("--nodelist", request.node_list), ("--exclude", request.excluded)):
        check_nodes(option, names, snapshot.nodes.name)
    for warning in snapshot.warnings:
        click.echo(f"slurmsched: {warning}", err=True)
    each = by_partition(snapshot, request)
    if not request.gpus and not request.gpus_per_node:
        _print_largest(out, [found for one in each for found in largest_requests(snapshot, one)], several=len(each) > 1)
        return 0
    answers = [fit(snapshot, one) for one in each]
    at = first_start(answers)
    answer, unknown = fit_with_selection(tree, snapshot, each[at], answers[at])
    if out.as_json:
        out.json({"fit": answer, "pick_unknown": unknown, "waits_in": _reasons(answers)}, schema="fit")
    else:
        _print(out, answer, unknown, _reasons(answers), several=len(each) > 1)
    return 0 if answer.starts else ANSWER_NO


def _request(options: dict[str, Any]) -> SbatchRequest:
    """The request of the options. Raises InputError for a value that is none, or for two ways to ask for GPUs."""
    from slurmsched.errors import InputError
    from slurmsched.observe.survey.sbatch_request import SbatchRequest, named_hosts

    ways = [options[name] for name in ("gpus", "gpus_per_node", "gres") if options[name]]
    if len(ways) > 1:
        raise InputError("only one of --gpus, --gpus-per-node and --gres may be given")
    if options["gres"] and not options["gres"].startswith("gpu:"):
        raise InputError(f"--gres {options['gres']!r}: write gpu:N or gpu:TYPE:N; other GRES are not supported")
    kind, count = _gpus(ways[0].removeprefix("gpu:")) if ways else ("", 0)
    return SbatchRequest(
        nodes=options["nodes"] or 0,
        gpus_per_node=0 if options["gpus"] else count,
        gpus=count if options["gpus"] else 0,
        gpu_type=kind,
        partition=options["partition"],
        cpus_per_task=options["cpus_per_task"],
        cpus_per_gpu=options["cpus_per_gpu"],
        memory_mib=_size("--mem", options["mem"]),
        memory_per_gpu_mib=_size("--mem-per-gpu", options["mem_per_gpu"]),
        memory_per_cpu_mib=_size("--mem-per-cpu", options["mem_per_cpu"]),
        time_s=_time(options["time_"]),
        constraint=options["constraint"],
        node_list=named_hosts("--nodelist", options["nodelist"]),
        excluded=named_hosts("--exclude", options["exclude"]),
        exclusive=options["exclusive"],
    )


def _gpus(text: str) -> tuple[str, int]:
    from slurmsched.errors import InputError

    kind, _, count = text.rpartition(":")
    if not (count.isascii() and count.isdecimal() and len(count) < 10 and int(count)):
        raise InputError(f"GPUs {text!r}: write N or TYPE:N, such as a100:4")
    return kind, int(count)


def _size(option: str, text: str) -> float | None:
    from slurmsched.errors import InputError, UnreadableError
    from slurmsched.model.slurm_text import memory_mib

    try:
        return memory_mib(text) if text else None
    except UnreadableError as error:
        raise InputError(f"{option} {text!r}: write a size such as 64G or 800M") from error


def _time(text: str) -> float | None:
    """Seconds; 0 is no limit, as in Slurm. Raises InputError."""
    from slurmsched.errors import InputError
    from slurmsched.model.durations import duration_s

    if _NO_LIMIT.fullmatch(text):
        return float("inf")
    try:
        minutes = text.isascii() and text.isdecimal() and len(text) < 9
        return 60.0 * int(text) if minutes else duration_s(text) if text else None
    except ValueError as error:
        raise InputError(f"--time {text!r} {error}") from error


def _reasons(answers: Sequence[Fit]) -> dict[str, str]:
    """Partition -> why it does not start there."""
    return {answer.partition: answer.why for answer in answers if not answer.starts}


def _print_largest(out: Output, found: Sequence[LargestRequest], several: bool) -> None:
    if out.as_json:
        out.json({"largest": found}, schema="largest")
        return
    boot = any(one.after_boot for one in found)
    rows = [(*[one.partition] * several, one.gpu_type or "-", one.one_node, *[one.after_boot] * boot,
             "?" if one.linked is None else one.linked,
             ", ".join(f"{nodes}x{gpus}" for gpus, nodes in one.shapes.items()) or "-") for one in found]  # fmt: skip
    out.table(
        (*["partition"] * several, "type", "on one node>", *["after a boot>"] * boot, "linked>", "nodes x GPUs"), rows
    )


def _print(out: Output, answer: Fit, unknown: str, reasons: dict[str, str], several: bool) -> None:
    if not answer.starts:
        _print_waiting(out, answer, reasons if several else {})
        return
    where = f"{answer.needs} of these nodes" if answer.needs else "one or more of these nodes"
    within = f" of {answer.partition}" if several else ""
    when = "starts after a boot" if answer.boot else "starts now"
    out.line(f"{answer.request}: {when} on {where}{within}; Slurm chooses", "warn" if answer.boot else "ok")
    if answer.boot:
        out.line("no nodes that are up have room for it; Slurm boots nodes for it")
    _print_places(out, answer)
    if unknown:
        out.line(f"what Slurm picks: {unknown}")
    for unseen in answer.unseen:
        out.line(f"not looked at: {unseen}")
    if answer.ahead:
        wait = pluralize(answer.ahead, "job of the partition waits", "jobs of the partition wait")
        out.line(f"{wait}; those ahead of it go first")


def _print_waiting(out: Output, answer: Fit, reasons: dict[str, str]) -> None:
    """Why the request would wait, and what could start in its place. reasons: by partition."""
    out.line(f"{answer.request}: waits; {answer.why}", "warn")
    for unseen in answer.unseen:
        out.line(f"not looked at: {unseen}")
    for partition, why in reasons.items():
        out.line(f"  {partition}: {why}")
    for why, nodes in answer.lacking.items():
        out.line(f"  {nodes}: {why}")
    if answer.nearest:
        out.line("starts now instead:")
        width = max(len(one.change) for one in answer.nearest)
        for one in answer.nearest:
            out.line(f"  {one.change:{width}}  {one.meaning}")


def _print_places(out: Output, answer: Fit) -> None:
    """A row for each kind of nodes that could take the request. The column `boots` only if some are down."""
    columns = ("nodes", *["boots"] * answer.boot, "GPUs>", "Slurm picks", "GB/s>", "best free", "GB/s>",
               "if empty GB/s>")  # fmt: skip
    boots = {False: ((), ()), True: (("no",), ("yes",))}[answer.boot]
    out.table(columns, [(place.nodes, *boots[place.boot], place.gpus, *_cells(place.picked), *_cells(place.best),
                         _cells(place.ideal)[1]) for place in answer.places])  # fmt: skip


def _cells(given: GivenSet | None) -> tuple[str, str]:
    from slurmsched.topology.gres_nodes import fold_numbers

    if given is None:
        return "?", "?"
    speed = f"{given.gb_per_s:g}" if given.gb_per_s else "-" if len(given.gpus) < 2 else "?"
    return fold_numbers(given.gpus) or "-", speed
