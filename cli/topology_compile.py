"""`topology compile` and `topology rings`: a gres.conf that makes Slurm's picks the best, and ranks in ring order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, complain
from slurmsched.cli.topology_check import FILE, NODE, with_case
from slurmsched.errors import InputError
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.slurm.doctor.topology_cases import TopologyCase
    from slurmsched.topology.gres_compiler import CompiledLinks
    from slurmsched.topology.slurm_selection import GpuOption


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
            _typed(out, cases)
            return
        from slurmsched.topology.slurm_selection import fault_of

        if fault := fault_of(version):
            raise InputError(f"{fault}; compile for the version that you update to, such as --slurm 25.05.1")
        _linked(out, cases, **how)

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


def _linked(out: Output, cases: Sequence[TopologyCase], form: str, reorder: bool, most: int) -> None:
    """Files with other Links, and what is left where they are not the best in every state."""
    from slurmsched.topology.slurm_selection import GpuOption

    made = [(case, compiled(case, GpuOption(form), reorder, most)) for case in cases]
    if out.as_json:
        out.json([record(case, best) for case, best in made])
        return
    for line in whole_file([(case, list(text_of(case, best, GpuOption(form)))) for case, best in made]):
        out.line(line)
    if short := [case for case, best in made if best.best_states < best.states]:
        for line in other_means(short):
            click.echo(line, err=True)


def _typed(out: Output, cases: Sequence[TopologyCase]) -> None:
    """Files with Types."""
    from slurmsched.topology.gres_conf import MARK

    made = [(case, typed(case)) for case in cases]
    if out.as_json:
        out.json([{"class": case.one.topology.name, "lines": lines} for case, lines in made])
        return
    parts = []
    for case, lines in made:
        head = f"# {MARK} {case.one.topology.name}: GRES Types, by slurmsched topology compile --types"
        parts.append((case, [head, *wiring_of_case(case), *lines]))
    for line in whole_file(parts):
        out.line(line)


def wiring_of_case(case: TopologyCase, order: Any = None) -> list[str]:
    """The true links as comments. order: of lines, None = as they are."""
    from slurmsched.topology.gres_conf import wiring_comment

    return wiring_comment(case.one.nodes, case.wiring, range(case.node.gpus) if order is None else order)


def whole_file(made: Sequence[tuple[TopologyCase, list[str]]]) -> Iterator[str]:
    """The gres.conf with the new lines in place of the old ones; the lines alone where slurmd printed the GPUs."""
    from slurmsched.model.hostlists import fold_hostlist
    from slurmsched.slurm.topology_sources import files_beside
    from slurmsched.topology.gres_conf import MARK, NewGresConf

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


def typed(case: TopologyCase) -> list[str]:
    """The lines of one class with a Type for each island or GPU."""
    from slurmsched.topology.gres_compiler import type_groups, typed_lines

    return typed_lines(case.one, case.node, type_groups(case.wiring, case.ranks.rank))


def compiled(case: TopologyCase, form: GpuOption, reorder: bool, most: int) -> CompiledLinks:
    """The best gres.conf found for the case. most: files to try."""
    from slurmsched.topology.gres_compiler import compile_links
    from slurmsched.topology.selection_quality import states_of

    states = states_of(case.node, case.ranks, form, case.cores_per_gpu)
    return compile_links(case.node, case.wiring, case.ranks, states, form, case.version, reorder=reorder, most=most)


def text_of(case: TopologyCase, best: CompiledLinks, form: GpuOption) -> Iterator[str]:
    """The lines, under comments that tell what they reach."""
    from slurmsched.slurm.doctor.topology_cases import check_requests
    from slurmsched.topology.gres_conf import MARK
    from slurmsched.topology.gres_nodes import conf_lines

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
    from slurmsched.topology.gres_compiler import JOB_SUBMIT

    yield "# Another means: a GRES Type for each island or GPU; jobs that ask for gpu:N take any, and the daemon"
    yield "# rewrites the requests of those it places (placement.retype). gres.conf then, as by `compile --types`:"
    for case in short:
        yield from typed(case)
    yield "# Another means: one form of request; --gpus=N of a one-node job becomes --gpus-per-node=N."
    yield "# slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside it:"
    yield JOB_SUBMIT.rstrip()


def record(case: TopologyCase, best: CompiledLinks) -> dict[str, Any]:
    """A compiled class as JSON."""
    from slurmsched.slurm.doctor.topology_cases import check_requests
    from slurmsched.topology.gres_nodes import conf_lines

    return {"class": case.one.topology.name, "slurm": case.version, "states": best.states, "best": best.best_states,
            "bound": best.bound, "tried": best.tried, "proven": best.proven,
            "before": check_requests(case), "after": check_requests(case, best.node, best.order),
            "lines": conf_lines(case.one, best.node, best.order)}  # fmt: skip
