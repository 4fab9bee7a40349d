"""`topology compile` and `topology rings`: a gres.conf that makes Slurm's picks the best, and ranks in ring order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.topology_case import FILE, NODE, Case, wired_classes, with_case
from slurmsched.cli.topology_check import checked
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.topology.slurm_compile import Compiled
    from slurmsched.topology.slurm_node import Form


def register(group: click.Group) -> None:
    """Add both commands to `topology`."""

    @output.with_command(group, "compile")
    @partial(with_case, named=True)
    @click.option("--form", type=click.Choice(["gpus-per-node", "gpus"]), default="gpus-per-node", show_default=True,
                  help="The form of request to serve; --gres=gpu:N counts as gpus-per-node.")  # fmt: skip
    @click.option("--reorder", is_flag=True, help="Lines may change places; only with ConstrainDevices=yes.")
    @click.option("--most", type=click.IntRange(1), default=6000, show_default=True, help="Files to try.")
    @click.option("--types", is_flag=True, help="Instead, a GRES Type for each island or GPU, for placement.retype.")
    def compile_(out: Output, cases: Sequence[Case], version: tuple[int, ...], **how: Any) -> None:
        """Write a gres.conf under which Slurm's own pick is the best set as often as can be.

        Links (and with --reorder the order of lines) are chosen for the site's Slurm version: compile again after an
        upgrade. The new file goes to stdout, whole: only the lines of these GPUs change, and each turns AutoDetect off
        for its nodes. Its comments tell what it reaches, which lines it replaces, and the true links, which slurmsched
        reads from there. Where a file cannot be the best in every state, two other means go to stderr: GRES Types,
        and one form of request for all.
        """
        _typed(out, cases) if how.pop("types") else _linked(out, cases, **how)

    @output.with_command(group, "rings")
    @click.option("--gres-conf", type=FILE, default="/etc/slurm/gres.conf", show_default=True)
    @click.option("--node", default="", help=NODE)
    @click.option("--links", type=FILE, help="True links, as for `check`.")
    @click.option("--gpu-type", default="", metavar="MODEL", help="GPU model of --links, as for `check`.")
    def rings(out: Output, gres_conf: Path, node: str, links: Path | None, gpu_type: str) -> None:
        """Write the table of best rings that plugin/task_prolog reads: for each set of GPUs its order on the ring."""
        from slurmsched.placements.set_ranks import ring_table

        classes = wired_classes(gres_conf, node, links, gpu_type, named=True)
        tables = [(one.nodes, ring_table(wiring)) for _, one, wiring in classes]
        if out.as_json:
            out.json([{"nodes": nodes, "rings": [[*pair] for pair in table.items()]} for nodes, table in tables])
            return
        for nodes, table in tables:
            out.line(" ".join(("nodes", *(nodes or ("*",)))))
            for pair in table.items():
                out.line(" ".join(("ring", *(",".join(map(str, gpus)) for gpus in pair))))


def _linked(out: Output, cases: Sequence[Case], form: str, reorder: bool, most: int) -> None:
    """Files with other Links, and what is left where they are not the best in every state."""
    from slurmsched.topology.slurm_node import Form

    made = [(case, compiled(case, Form(form), reorder, most)) for case in cases]
    if out.as_json:
        out.json([record(case, best) for case, best in made])
        return
    for line in whole_file([(case, list(text_of(case, best, Form(form)))) for case, best in made]):
        out.line(line)
    if short := [case for case, best in made if best.best_states < best.states]:
        for line in other_means(short):
            click.echo(line, err=True)


def _typed(out: Output, cases: Sequence[Case]) -> None:
    """Files with Types."""
    from slurmsched.topology.compiled_file import MARK

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


def wiring_of_case(case: Case, order: Any = None) -> list[str]:
    """The true links as comments. order: of lines, None = as they are."""
    from slurmsched.topology.compiled_file import wiring_comment

    return wiring_comment(case.one.nodes, case.wiring, range(case.node.gpus) if order is None else order)


def whole_file(made: Sequence[tuple[Case, list[str]]]) -> Iterator[str]:
    """The gres.conf with the new lines in place of the old ones; the lines alone where slurmd printed the GPUs."""
    from slurmsched.model.hostlist import fold
    from slurmsched.slurm.wiring import beside
    from slurmsched.topology.compiled_file import MARK, NewFile

    file = made[0][0].file
    new = NewFile([(case.one.nodes, lines) for case, lines in made], beside(file.path), file.named)
    if not file.text:
        nodes = fold([node for case, _ in made for node in case.one.nodes])
        yield f"# {MARK} add these lines to gres.conf for {nodes}; keep its other lines, such as those of shard and mps"
        yield from new.finish()
        return
    new.write(file.text)
    lines = new.finish()
    yield f"# {MARK} takes the place of {file.path.name} as a whole; changed: {new.changes()}"
    if file.named:
        yield f"# {MARK} lines without NodeName are now those of {fold(made[0][0].one.nodes)} alone"
    yield from (line for line in lines if not line.startswith((f"# {MARK} takes the place", f"# {MARK} lines without")))


def typed(case: Case) -> list[str]:
    """The lines of one class with a Type for each island or GPU."""
    from slurmsched.topology.other_means import type_groups, typed_lines

    return typed_lines(case.one, case.node, type_groups(case.wiring, case.ranks.rank))


def compiled(case: Case, form: Form, reorder: bool, most: int) -> Compiled:
    from slurmsched.topology.slurm_check import states_of
    from slurmsched.topology.slurm_compile import compile_links

    states = states_of(case.node, case.ranks, form, case.cores_per_gpu)
    return compile_links(case.node, case.wiring, case.ranks, states, form, case.version, reorder=reorder, most=most)


def text_of(case: Case, best: Compiled, form: Form) -> Iterator[str]:
    """The lines, under comments that tell what they reach."""
    from slurmsched.topology.compiled_file import MARK
    from slurmsched.topology.slurm_site import conf_lines

    version = "{}.{:02}".format(*case.version)
    yield f"# {MARK} {case.one.topology.name}: for Slurm {version} and --{form}, by slurmsched topology compile"
    before, after = checked(case), checked(case, best.node, best.order)
    for old, new in zip(before, after, strict=True):
        if new.states:
            yield f"# {MARK} --{new.form}: best set in {new.best_share:.1%} of states, before {old.best_share:.1%}"
    reach = "no file can do better" if best.proven else f"no file can exceed {best.bound / best.states:.1%}"
    sets = some(after[0].drawn, "set")
    drawn = f", in states of {sets} of free GPUs that were drawn, not of all" if after[0].drawn else ""
    yield f"# {MARK} {reach}; {best.tried} tried{drawn}"
    yield from wiring_of_case(case, best.order)
    yield from conf_lines(case.one, best.node, best.order)


def other_means(short: Sequence[Case]) -> Iterator[str]:
    """What is left where the compiled file is not the best in every state, with the lines to write."""
    from slurmsched.topology.other_means import JOB_SUBMIT

    yield "# Another means: a GRES Type for each island or GPU; jobs that ask for gpu:N take any, and the daemon"
    yield "# rewrites the requests of those it places (placement.retype). gres.conf then, as by `compile --types`:"
    for case in short:
        yield from typed(case)
    yield "# Another means: one form of request; --gpus=N of a one-node job becomes --gpus-per-node=N."
    yield "# slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside it:"
    yield JOB_SUBMIT.rstrip()


def record(case: Case, best: Compiled) -> dict[str, Any]:
    """A compiled class as JSON."""
    from slurmsched.topology.slurm_site import conf_lines

    return {"class": case.one.topology.name, "slurm": case.version, "states": best.states, "best": best.best_states,
            "bound": best.bound, "tried": best.tried, "proven": best.proven,
            "before": checked(case), "after": checked(case, best.node, best.order),
            "lines": conf_lines(case.one, best.node, best.order)}  # fmt: skip
