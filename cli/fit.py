"""`fit`: the largest request that starts now, or whether and where a given one does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmsched.survey.fit import Fit, Given, Largest, Picker
    from slurmsched.survey.request import Request

_NO_LIMIT = re.compile(r"0+[smhdw]?|(?:0+-)?0+(?::0+){0,2}|-1|infinite|unlimited", re.IGNORECASE)
COUNT = click.IntRange(1)
WAITS = 3  # exit code of a request that does not start now


@output.command("fit")
@click.option("--gpus-per-node", metavar="[TYPE:]N", default="", help="As sbatch.")
@click.option("--gres", metavar="gpu:[TYPE:]N", default="", help="As sbatch, GPUs only: the same as --gpus-per-node.")
@click.option("--gpus", "-G", metavar="[TYPE:]N", default="", help="GPUs of the whole job, as sbatch.")
@click.option("--nodes", "-N", type=COUNT, help="Default: as many as it takes.")
@click.option("--partition", "-p", metavar="NAMES", default="",
              help="Several by commas: the first that it starts in. Default: Slurm's default partition.")  # fmt: skip
@click.option("--cpus-per-task", "-c", type=COUNT, default=1, show_default=True)
@click.option("--cpus-per-gpu", type=COUNT, help="Default: the partition's.")
@click.option("--mem", metavar="SIZE", default="", help="Of each node, such as 64G; 0 = all. Default: the partition's.")
@click.option("--mem-per-gpu", metavar="SIZE", default="")
@click.option("--mem-per-cpu", metavar="SIZE", default="")
@click.option("--constraint", "-C", metavar="FEATURES", default="", help="As sbatch.")
@click.option(
    "--time",
    "-t",
    "time_",
    metavar="TIME",
    default="",
    help="2h, 90m, 1-12:00:00; 0: no limit; default: the partition's.",
)
@click.option("--nodelist", "-w", metavar="HOSTLIST", default="")
@click.option("--exclude", "-x", metavar="HOSTLIST", default="")
@click.option("--exclusive", is_flag=True)
def command(out: Output, **options: Any) -> int:
    """Show the largest request that starts now, by GPU type; or, with --gpus-per-node or --gpus, tell of that one
    where it would start and on which GPUs, or why it would wait and what near it would not.

    Where only nodes that Slurm has powered down have room, the answer is that it starts after a boot. Exit code 3 for a
    request that waits. Who goes first among pending jobs, and limits of accounts and
    QOS, are not looked at. Needs no rights beyond those of squeue and sinfo; reads only.
    """
    from slurmsched.slurm.look import look
    from slurmsched.survey.fit import by_partition, first_start, fit, largest
    from slurmsched.survey.names import check_nodes

    request = _request(options)
    snapshot = look(config(), reservations=True)
    for option, names in (("--nodelist", request.node_list), ("--exclude", request.excluded)):
        check_nodes(option, names, snapshot.nodes.name)
    for warning in snapshot.warnings:
        click.echo(f"slurmsched: {warning}", err=True)
    each = by_partition(snapshot, request)
    if not request.gpus and not request.gpus_per_node:
        _print_largest(out, [found for one in each for found in largest(snapshot, one)], several=len(each) > 1)
        return 0
    answers = [fit(snapshot, one) for one in each]
    at = first_start(answers)
    request, answer = each[at], answers[at]
    unknown = ""
    if answer.starts and answer.needs == 1:
        pick, unknown = _picker(snapshot, request, answer)
        answer = fit(snapshot, request, pick)
    elif answer.starts:
        unknown = "told of jobs of one node" + ("" if answer.needs else ", such as by --nodes=1")
    if out.as_json:
        out.json({"fit": answer, "pick_unknown": unknown, "waits_in": _reasons(answers)})
    else:
        _print(out, answer, unknown, _reasons(answers), several=len(each) > 1)
    return 0 if answer.starts else WAITS


def _picker(snapshot: Any, request: Request, answer: Fit) -> tuple[Picker | None, str]:
    """What tells Slurm's choice on the nodes that can take it, and why it is not known."""
    from slurmsched.model.hostlist import expand
    from slurmsched.slurm.picks import read_picks
    from slurmsched.survey.request import needs
    from slurmsched.survey.room import with_partition
    from slurmsched.topology.slurm_node import Form, GpuRequest

    if request.exclusive or needs(snapshot, with_partition(snapshot, request)).cpus_per_gpu:
        return None, "not known with --exclusive, and with CPUs by GPU (--cpus-per-gpu, DefCpuPerGPU)"
    names = [name for place in answer.places for name in expand(place.nodes)]
    picks = read_picks(config(), snapshot, names)
    form = Form.PER_NODE if request.gpus_per_node else Form.PER_JOB
    return picks(GpuRequest(form, 1, cpus_per_task=request.cpus_per_task)), picks.why


def _request(options: dict[str, Any]) -> Request:
    """The request of the options. Raises InputError for a value that is none, or for two ways to ask for GPUs."""
    from slurmsched.errors import InputError
    from slurmsched.survey.names import hosts
    from slurmsched.survey.request import Request

    ways = [options[name] for name in ("gpus", "gpus_per_node", "gres") if options[name]]
    if len(ways) > 1:
        raise InputError("--gpus, --gpus-per-node and --gres: give one of them")
    if options["gres"] and not options["gres"].startswith("gpu:"):
        raise InputError(f"--gres {options['gres']!r}: write gpu:N or gpu:TYPE:N; nothing but GPUs is looked at")
    kind, count = _gpus(ways[0].removeprefix("gpu:")) if ways else ("", 0)
    return Request(
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
        node_list=hosts("--nodelist", options["nodelist"]),
        excluded=hosts("--exclude", options["exclude"]),
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
    from slurmsched.slurm.text import memory_mib

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


def _print_largest(out: Output, found: Sequence[Largest], several: bool) -> None:
    if out.as_json:
        out.json(found)
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
        out.line(f"{answer.request}: waits; {answer.why}", "warn")
        for unseen in answer.unseen:
            out.line(f"not looked at: {unseen}")
        for partition, why in reasons.items() if several else ():
            out.line(f"  {partition}: {why}")
        for why, nodes in answer.lacking.items():
            out.line(f"  {nodes}: {why}")
        if answer.nearest:
            out.line("starts now instead:")
            width = max(len(one.change) for one in answer.nearest)
            for one in answer.nearest:
                out.line(f"  {one.change:{width}}  {one.meaning}")
        return
    where = f"{answer.needs} of these nodes" if answer.needs else "one or more of these nodes"
    within = f" of {answer.partition}" if several else ""
    when = "starts after a boot" if answer.boot else "starts now"
    out.line(f"{answer.request}: {when} on {where}{within}; Slurm chooses", "warn" if answer.boot else "ok")
    if answer.boot:
        out.line("no nodes that are up have room for it; Slurm boots nodes for it")
    columns = (
        "nodes",
        *["boots"] * answer.boot,
        "GPUs>",
        "Slurm picks",
        "GB/s>",
        "best free",
        "GB/s>",
        "if empty GB/s>",
    )
    boots = {False: ((), ()), True: (("no",), ("yes",))}[answer.boot]
    out.table(columns, [(place.nodes, *boots[place.boot], place.gpus, *_cells(place.picked), *_cells(place.best),
                         _cells(place.ideal)[1]) for place in answer.places])  # fmt: skip
    if unknown:
        out.line(f"what Slurm picks: {unknown}")
    for unseen in answer.unseen:
        out.line(f"not looked at: {unseen}")
    if answer.ahead:
        wait = some(answer.ahead, "job of the partition waits", "jobs of the partition wait")
        out.line(f"{wait}; those ahead of it go first")


def _cells(given: Given | None) -> tuple[str, str]:
    from slurmsched.topology.slurm_site import ranges

    if given is None:
        return "?", "?"
    speed = f"{given.gb_per_s:g}" if given.gb_per_s else "-" if len(given.gpus) < 2 else "?"
    return ranges(given.gpus) or "-", speed
