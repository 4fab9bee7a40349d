"""`topology check` and `topology compile`: which GPUs Slurm itself picks, and a gres.conf that makes them the best."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config

if TYPE_CHECKING:
    from slurmsched.model.topology import GpuTopology
    from slurmsched.placements.set_ranks import SetRanks
    from slurmsched.topology.reading import NodeClass
    from slurmsched.topology.slurm_check import Checked
    from slurmsched.topology.slurm_compile import Compiled
    from slurmsched.topology.slurm_node import Form, SlurmNode

FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Case:
    """One class of nodes with all that its picks depend on."""

    one: NodeClass
    node: SlurmNode
    wiring: GpuTopology
    ranks: SetRanks
    version: tuple[int, int]
    cores_per_gpu: int


def with_case(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which nodes, which Slurm and which jobs."""

    @click.option("--gres-conf", type=FILE, default="/etc/slurm/gres.conf", show_default=True)
    @click.option("--node", default="", help="Only the class of this node.")
    @click.option("--links", type=FILE, help="True links: `nvidia-smi topo -m` or `rocm-smi --showtopo` of such a "
                  "node; default: the Links of gres.conf.")  # fmt: skip
    @click.option("--gpu-type", default="", metavar="MODEL", help="GPU model of --links, such as v100.")
    @click.option("--slurm", default="", metavar="VERSION", help="Such as 24.11; default: the site's own.")
    @click.option("--hardware", default="", metavar="SxCxT", help="Sockets, cores, threads; default: as Slurm says.")
    @click.option("--cores-per-gpu", type=click.IntRange(0), default=1, show_default=True,
                  help="Cores that jobs ask for with each GPU.")  # fmt: skip
    @functools.wraps(function)
    def wrapped(gres_conf: Path, node: str, links: Path | None, gpu_type: str, slurm: str, hardware: str,
                cores_per_gpu: int, **values: Any) -> Any:  # fmt: skip
        version = version_of(slurm)
        found = cases(gres_conf, node, links, gpu_type, hardware, version, cores_per_gpu)
        return function(cases=list(found), version=version, **values)

    return wrapped


def register(group: click.Group) -> None:
    """Add both commands to `topology`."""

    @output.with_command(group, "check")
    @with_case
    def check(out: Output, cases: Sequence[Case], version: tuple[int, int]) -> None:
        """Tell how often the GPUs that Slurm picks are the best free ones.

        For every set of free GPUs of a node and every job of two or more, by form of request: the share in which
        the pick is the best set, the mean bandwidth lost, and the three worst cases. For --gpus-per-task and
        --gpus-per-socket, one GPU a task and whole sockets; states in which Slurm's choice is not known are counted.
        """
        found = [(case, checked(case)) for case in cases]
        if out.as_json:
            out.json([{"class": case.one.topology.name, "slurm": version, "forms": forms} for case, forms in found])
            return
        rows = [(case.one.topology.name, str(one.form), one.states, *told(one), one.unknown or "")
                for case, forms in found for one in forms]  # fmt: skip
        out.table(("nodes", "form", "states>", "best>", "bandwidth lost>", "unknown>"), rows)
        for case, forms in found:
            for one in forms:
                print_worst(out, case.one.topology.name, one)

    @output.with_command(group, "compile")
    @with_case
    @click.option("--form", type=click.Choice(["gpus-per-node", "gpus"]), default="gpus-per-node", show_default=True,
                  help="The form of request to serve; --gres=gpu:N counts as gpus-per-node.")  # fmt: skip
    @click.option("--reorder", is_flag=True, help="Lines may change places; only with ConstrainDevices=yes.")
    @click.option("--most", type=click.IntRange(1), default=6000, show_default=True, help="Files to try.")
    def compile_(
        out: Output, cases: Sequence[Case], version: tuple[int, int], form: str, reorder: bool, most: int
    ) -> None:
        """Write a gres.conf under which Slurm's own pick is the best set as often as can be.

        Links (and with --reorder the order of lines) are chosen for the site's Slurm version: try it again after an
        upgrade. Cores stay as they are. Goes to stdout; what it reaches is told in its comments. Where that is not
        every state, two other means go to stderr: a GRES Type for each island, and one form of request for all.
        """
        from slurmsched.topology.slurm_node import Form

        made = [(case, compiled(case, Form(form), reorder, most)) for case in cases]
        if out.as_json:
            out.json([record(case, best) for case, best in made])
            return
        for case, best in made:
            for line in text_of(case, best, Form(form)):
                out.line(line)
        if short := [case for case, best in made if best.best_states < best.states]:
            for line in other_means(short):
                click.echo(line, err=True)

    @output.with_command(group, "rings")
    @click.option("--gres-conf", type=FILE, default="/etc/slurm/gres.conf", show_default=True)
    @click.option("--links", type=FILE, help="True links, as for `check`.")
    @click.option("--gpu-type", default="", metavar="MODEL", help="GPU model of --links, such as v100.")
    def rings(out: Output, gres_conf: Path, links: Path | None, gpu_type: str) -> None:
        """Write the table of best rings that plugin/task_prolog reads: for each set of GPUs its order on the ring."""
        from slurmsched.placements.set_ranks import ring_table

        tables = [(one.nodes, ring_table(wiring)) for one, wiring in wired_classes(gres_conf, "", links, gpu_type)]
        if out.as_json:
            out.json([{"nodes": nodes, "rings": [[*pair] for pair in table.items()]} for nodes, table in tables])
            return
        for nodes, table in tables:
            out.line(" ".join(("nodes", *(nodes or ("*",)))))
            for pair in table.items():
                out.line(" ".join(("ring", *(",".join(map(str, gpus)) for gpus in pair))))


def version_of(text: str) -> tuple[int, int]:
    """ "24.11.5" -> (24, 11); "" asks the site's Slurm. Raises InputError outside 21.08 to 26.05."""
    from slurmsched.errors import InputError

    text = text or commands_run("sinfo", "--version")
    match = re.search(r"(\d\d)\.(\d\d)", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (21, 8) <= version <= (26, 5):
        raise InputError(f"Slurm {text.strip()!r}: known is how 21.08 to 26.05 pick GPUs; name one with --slurm")
    return version


def cases(path: Path, node: str, links: Path | None, gpu_type: str, hardware: str, version: tuple[int, int],
          cores_per_gpu: int) -> Iterator[Case]:  # fmt: skip
    """The classes of gres.conf, or that of `node`."""
    from slurmsched.placements.set_ranks import set_ranks
    from slurmsched.topology.slurm_site import slurm_node

    for one, wiring in wired_classes(path, node, links, gpu_type):
        shape = shape_of(hardware, node or (one.nodes[0] if one.nodes else ""))
        yield Case(one, slurm_node(one, shape), wiring, set_ranks(wiring), version, cores_per_gpu)


def wired_classes(path: Path, node: str, links: Path | None, gpu_type: str) -> Iterator[tuple[NodeClass, GpuTopology]]:
    """The classes of gres.conf, or that of `node`, each with its true links."""
    from slurmsched.cli.topology_show import class_of
    from slurmsched.slurm.wiring import read_file
    from slurmsched.topology.slurm_site import wiring_of

    classes = read_file(path, "gres.conf", path.stem).classes
    told = class_of(None, read_file(links, name=links.stem, gpu_type=gpu_type).classes).topology if links else None
    for one in [class_of(node, classes)] if node else classes:
        yield one, wiring_of(one, told)


def shape_of(text: str, node: str) -> tuple[int, int, int]:
    """ "2x32x1" -> (2, 32, 1); "" asks Slurm. Raises InputError for another text."""
    from slurmsched.errors import InputError

    if not text:
        where = ["-n", node] if node else []
        text = commands_run("sinfo", "-h", "-N", *where, "-o", "%Xx%Yx%Z").split("\n")[0].strip()
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise InputError(f"hardware {text!r} is not sockets x cores x threads, such as 2x32x1; name it with --hardware")
    return int(match[1]), int(match[2]), int(match[3])


def commands_run(*command: str) -> str:
    """What a command of Slurm prints."""
    from slurmsched.slurm.reader import open_commands

    return open_commands(config().slurm).run(*command)


def checked(case: Case, node: SlurmNode | None = None, order: Any = None) -> list[Checked]:
    """Each form of request, by the file as it is or with other Links and order."""
    from slurmsched.topology.slurm_check import CHECKED, SHAPED, check, check_shaped, states_of

    node, each = node or case.node, case.cores_per_gpu
    free = [check(node, case.ranks, form, case.version, states_of(node, case.ranks, form, each), order)
            for form in CHECKED]  # fmt: skip
    return free + [check_shaped(node, case.ranks, form, case.version, each, order) for form in SHAPED]


def compiled(case: Case, form: Form, reorder: bool, most: int) -> Compiled:
    from slurmsched.topology.slurm_check import states_of
    from slurmsched.topology.slurm_compile import compile_links

    states = states_of(case.node, case.ranks, form, case.cores_per_gpu)
    return compile_links(case.node, case.wiring, case.ranks, states, form, case.version, reorder=reorder, most=most)


def text_of(case: Case, best: Compiled, form: Form) -> Iterator[str]:
    """The lines, under comments that tell what they reach."""
    from slurmsched.topology.slurm_site import conf_lines

    version = "{}.{:02}".format(*case.version)
    yield f"# {case.one.topology.name}: for Slurm {version} and --{form}, by slurmsched topology compile"
    before, after = checked(case), checked(case, best.node, best.order)
    for old, new in zip(before, after, strict=True):
        if new.states:
            yield f"# --{new.form}: best set in {new.best_share:.1%} of states, before {old.best_share:.1%}"
    reach = "no file can do better" if best.proven else f"no file can exceed {best.bound / best.states:.1%}"
    yield f"# {reach}; {best.tried} tried"
    yield from conf_lines(case.one, best.node, best.order)


def other_means(short: Sequence[Case]) -> Iterator[str]:
    """What is left where the compiled file is not the best in every state, with the lines to write."""
    from slurmsched.topology.other_means import JOB_SUBMIT, islands, typed_lines

    typed = [(case, groups) for case in short if (groups := islands(case.wiring))]
    if typed:
        yield "# Another means: a GRES Type for each island; jobs that ask for gpu:N take any. gres.conf then:"
    for case, groups in typed:
        yield from typed_lines(case.one, case.node, groups)
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


def told(one: Checked) -> tuple[str, str]:
    """Share of best picks, and of bandwidth lost; "-" where no state is known."""
    return (f"{one.best_share:.1%}", f"{one.lost_share:.1%}") if one.states else ("-", "-")


def print_worst(out: Output, name: str, one: Checked) -> None:
    """The worst picks: free, picked, best, each as GPU numbers."""
    from slurmsched.topology.picker import members

    for miss in one.worst:
        free, got, best = (",".join(map(str, members(mask))) for mask in (miss.free, miss.picked, miss.best))
        out.line(f"{name} --{one.form}={miss.picked.bit_count()}: free {free}; picked {got}, best {best}, "
                 f"{miss.lost:.0%} of the bandwidth lost")  # fmt: skip
