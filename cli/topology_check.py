"""`topology check`: how often the GPUs that Slurm itself picks are the best free ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.topology_case import Case, with_case
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.topology.slurm_check import Checked
    from slurmsched.topology.slurm_node import SlurmNode


def register(group: click.Group) -> None:
    """Add it to `topology`."""

    @output.with_command(group, "check")
    @with_case
    def check(out: Output, cases: Sequence[Case], version: tuple[int, ...]) -> None:
        """Tell how often the GPUs that Slurm picks are the best free ones.

        For every set of free GPUs of a node (of more than nine GPUs, a thousand drawn from all sets) and every job of
        two or more, by form of request: the share in which the pick is the best set, the mean bandwidth lost, and the
        three worst cases. For --gpus-per-task and --gpus-per-socket, one GPU a task and whole sockets; states in which
        Slurm's choice is not known are counted.
        """
        found = [(case, checked(case)) for case in cases]
        if out.as_json:
            out.json([{"class": case.one.topology.name, "slurm": version, "forms": forms} for case, forms in found])
        else:
            _print(out, found)


def _print(out: Output, found: Sequence[tuple[Case, Sequence[Checked]]]) -> None:
    rows = [(case.one.topology.name, str(one.form), one.states, *told(one), one.unknown or "")
            for case, forms in found for one in forms]  # fmt: skip
    out.table(("nodes", "form", "states>", "best>", "bandwidth lost>", "unknown>"), rows)
    for case, forms in found:
        for one in forms:
            print_worst(out, case.one.topology.name, one)
    for name, drawn in {case.one.topology.name: forms[0].drawn for case, forms in found}.items():
        if drawn:
            out.line(f"{name}: of {some(drawn, 'set')} of free GPUs that were drawn, not of all")
    for line in remedies([form for _, forms in found for form in forms]):
        out.line(line)


def remedies(forms: Sequence[Checked]) -> Iterator[str]:
    """What to do where Slurm's picks are not always the best."""
    if any(one.best_states < one.states for one in forms):
        yield "better picks: `slurmsched topology compile`; `compile --types` with placement.retype"
    share = {str(one.form): one.best_share for one in forms if one.states}
    if share.get("gpus", 1.0) < share.get("gpus-per-node", 0.0):
        yield "--gpus=N is worse than --gpus-per-node=N: job_submit.lua can make it that (`compile` prints the lines)"


def checked(case: Case, node: SlurmNode | None = None, order: Any = None) -> list[Checked]:
    """Each form of request, by the file as it is or with other Links and order."""
    from slurmsched.topology.slurm_check import CHECKED, SHAPED, check, check_shaped, states_of

    node, each = node or case.node, case.cores_per_gpu
    free = [check(node, case.ranks, form, case.version, states_of(node, case.ranks, form, each), order)
            for form in CHECKED]  # fmt: skip
    return free + [check_shaped(node, case.ranks, form, case.version, each, order) for form in SHAPED]


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
