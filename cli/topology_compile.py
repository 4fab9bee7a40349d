"""`topology compile` and `topology rings`: a gres.conf that makes Slurm's picks the best, and ranks in ring order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, complain
from slurmsched.cli.topology_check import FILE, NODE, with_case
from slurmsched.errors import InputError

if TYPE_CHECKING:
    from slurmsched.slurm.doctor.topology_cases import TopologyCase


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
    from slurmsched.slurm.doctor import compiled_gres
    from slurmsched.topology.slurm_selection import GpuOption

    made = [(case, compiled_gres.compiled_links(case, GpuOption(form), reorder, most)) for case in cases]
    if out.as_json:
        out.json([compiled_gres.compiled_record(case, best) for case, best in made])
        return
    parts = [(case, list(compiled_gres.compiled_lines(case, best, GpuOption(form)))) for case, best in made]
    for line in compiled_gres.whole_gres_conf(parts):
        out.line(line)
    if short := [case for case, best in made if best.best_states < best.states]:
        for line in compiled_gres.other_means(short):
            click.echo(line, err=True)


def _print_typed_files(out: Output, cases: Sequence[TopologyCase]) -> None:
    """Files with Types."""
    from slurmsched.slurm.doctor.compiled_gres import typed_gres_conf, typed_lines_of

    made = [(case, typed_lines_of(case)) for case in cases]
    if out.as_json:
        out.json([{"class": case.one.topology.name, "lines": lines} for case, lines in made])
        return
    for line in typed_gres_conf(made):
        out.line(line)
