"""`topology check`: how often Slurm picks the best free GPUs. `topology compile`: a gres.conf with which it does.

Both have options for classes of gres.conf, their true links, their hardware, and Slurm's version.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import FILE, Output, complain, read_config
from slurmsched.errors import InputError
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.slurm.doctor.topology_cases import TopologyCase
    from slurmsched.topology.selection_quality import SelectionQuality

NODE = (
    "Only the class of this node. If the lines name no nodes, or with the output of `slurmd -G`: the "
    "nodes, such as n[1-4]."
)


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
        from slurmsched.slurm.doctor.topology_cases import TopologyFiles, topology_cases, version_of

        config = read_config(plugins=False)
        version = version_of(config, slurm)
        files = TopologyFiles(gres_conf, node, links, gpu_type, named=named)
        found = topology_cases(config, files, hardware, version, cores_per_gpu, complain)
        return function(cases=found, version=version, **values)

    return wrapped


# `topology check`


def register_check(group: click.Group) -> None:
    """Add it to `topology`."""

    @framework.examples(("slurmsched topology check --links topo.txt", "Slurm's choices with these links."))
    @framework.with_command(group, "check")
    @with_case
    def check(out: Output, cases: Sequence[TopologyCase], version: tuple[int, ...]) -> None:
        """Show how often Slurm picks the best free GPUs.

        Considers every set of free GPUs of a node, and every job of two or more GPUs, by form of request. Of a node of
        more than nine GPUs it considers a thousand random sets. Shows the share of cases in which Slurm picks the best
        set, the mean bandwidth lost, and the three worst cases. --gpus-per-task is checked with one GPU per task,
        --gpus-per-socket with whole sockets. Cases in which Slurm's choice is unknown are counted.
        """
        from slurmsched.slurm.doctor.topology_cases import check_requests
        from slurmsched.topology.slurm_selection import fault_of

        found = [(case, check_requests(case)) for case in cases]
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
    from slurmsched.slurm.doctor.topology_cases import remedies

    for line in remedies([form for _, forms in found for form in forms]):
        out.line(line)


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


# `topology compile` and `topology rings`: a gres.conf that makes Slurm's picks the best, and ranks in ring order.


# Over 30 lines: two commands with their options and help.
def register_compile(group: click.Group) -> None:
    """Add both commands to `topology`."""

    @framework.examples(("slurmsched topology compile --links topo.txt > gres.conf", "A new gres.conf."))
    @framework.with_command(group, "compile")
    @partial(with_case, named=True)
    @click.option("--form", type=click.Choice(["gpus-per-node", "gpus"]), default="gpus-per-node", show_default=True,
                  help="The form of request to optimise; --gres=gpu:N is gpus-per-node.")  # fmt: skip
    @click.option("--reorder", is_flag=True, help="Also change the order of lines; only with ConstrainDevices=yes.")
    @click.option("--most", type=click.IntRange(1), default=6000, show_default=True, help="Most files to try.")
    @click.option(
        "--types", is_flag=True, help="Instead, write a GRES Type for each linked set or GPU, for placement.retype."
    )
    def compile_(out: Output, cases: Sequence[TopologyCase], version: tuple[int, ...], **how: Any) -> None:
        """Write a gres.conf with which Slurm picks the best GPUs.

        Chooses Links (and with --reorder the order of lines) for the site's version of Slurm. Compile again after an
        upgrade. The whole new file is printed to stdout. Only the lines of these GPUs change, and each of them turns
        AutoDetect off for its nodes. Comments in the file say what it achieves, which lines it replaces, and the true
        links, which slurmsched reads from there.

        If no file is best in all cases, two alternatives are printed to stderr: GRES Types, and one form of request for
        all jobs.
        """
        if how.pop("types"):
            _print_typed_files(out, cases)
            return
        from slurmsched.topology.slurm_selection import fault_of

        if fault := fault_of(version):
            raise InputError(f"{fault}; compile for the version that you update to, such as --slurm 25.05.1")
        _print_linked_files(out, cases, **how)

    @framework.examples(("slurmsched topology rings > rings.txt", "The table of rings."))
    @framework.with_command(group, "rings")
    @click.option("--gres-conf", type=FILE, default="/etc/slurm/gres.conf", show_default=True, help="gres.conf file.")
    @click.option("--node", default="", help=NODE)
    @click.option("--links", type=FILE, help="True links, as in `check`.")
    @click.option("--gpu-type", default="", metavar="MODEL", help="GPU model, as in `check`.")
    def rings(out: Output, gres_conf: Path, node: str, links: Path | None, gpu_type: str) -> None:
        """Write the table of best rings for plugin/task_prolog.

        The table gives the order on the ring for each set of GPUs.
        """
        from slurmsched.resources.gpu_sets import ring_table
        from slurmsched.slurm.doctor.topology_cases import TopologyFiles, wired_classes

        classes = wired_classes(TopologyFiles(gres_conf, node, links, gpu_type, named=True), complain)
        tables = [(one.nodes, ring_table(wiring)) for _, one, wiring in classes]
        if out.as_json:
            out.json([{"nodes": nodes, "rings": [[*pair] for pair in table.items()]} for nodes, table in tables])
            return
        for nodes, table in tables:
            out.line(" ".join(("nodes", *(nodes or ("*",)))))
            for pair in table.items():
                out.line(" ".join(("ring", *(",".join(map(str, gpus)) for gpus in pair))))


def _print_linked_files(out: Output, cases: Sequence[TopologyCase], form: str, reorder: bool, most: int) -> None:
    """Files with other Links, and what is left where they are not the best in every state."""
    from slurmsched.slurm.doctor import topology_cases
    from slurmsched.topology.slurm_selection import GpuOption

    made = [(case, topology_cases.compiled_links(case, GpuOption(form), reorder, most)) for case in cases]
    if out.as_json:
        out.json([topology_cases.compiled_record(case, best) for case, best in made])
        return
    parts = [(case, list(topology_cases.compiled_lines(case, best, GpuOption(form)))) for case, best in made]
    for line in topology_cases.whole_gres_conf(parts):
        out.line(line)
    if short := [case for case, best in made if best.best_states < best.states]:
        for line in topology_cases.other_means(short):
            click.echo(line, err=True)


def _print_typed_files(out: Output, cases: Sequence[TopologyCase]) -> None:
    """Files with Types."""
    from slurmsched.slurm.doctor.topology_cases import typed_gres_conf, typed_lines_of

    made = [(case, typed_lines_of(case)) for case in cases]
    if out.as_json:
        out.json([{"class": case.one.topology.name, "lines": lines} for case, lines in made])
        return
    for line in typed_gres_conf(made):
        out.line(line)
