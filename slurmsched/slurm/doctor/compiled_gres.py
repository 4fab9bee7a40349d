"""A gres.conf that makes Slurm's picks the best: what `topology compile` finds and the lines that it prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slurmsched.model.hostlists import fold_hostlist
from slurmsched.plain_text import pluralize
from slurmsched.slurm.doctor.topology_cases import TopologyCase, check_requests
from slurmsched.slurm.topology_sources import files_beside
from slurmsched.topology.gres_compiler import JOB_SUBMIT, CompiledLinks, compile_links, type_groups, typed_lines
from slurmsched.topology.gres_conf import MARK, NewGresConf, wiring_comment
from slurmsched.topology.gres_nodes import conf_lines
from slurmsched.topology.selection_quality import states_of
from slurmsched.topology.slurm_selection import GpuOption


def wiring_of_case(case: TopologyCase, order: Any = None) -> list[str]:
    """The true links as comments. order: of lines, None = as they are."""
    return wiring_comment(case.one.nodes, case.wiring, range(case.node.gpus) if order is None else order)


def whole_gres_conf(made: Sequence[tuple[TopologyCase, list[str]]]) -> Iterator[str]:
    """The gres.conf with the new lines in place of the old ones; the lines alone where slurmd printed the GPUs."""
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


def typed_lines_of(case: TopologyCase) -> list[str]:
    """The lines of one class with a Type for each island or GPU."""
    return typed_lines(case.one, case.node, type_groups(case.wiring, case.ranks.rank))


def typed_gres_conf(made: Sequence[tuple[TopologyCase, list[str]]]) -> Iterator[str]:
    """The gres.conf with these lines with Types, one class of nodes each, under their true links."""
    parts = []
    for case, lines in made:
        head = f"# {MARK} {case.one.topology.name}: GRES Types, by slurmsched topology compile --types"
        parts.append((case, [head, *wiring_of_case(case), *lines]))
    return whole_gres_conf(parts)


def compiled_links(case: TopologyCase, form: GpuOption, reorder: bool, most: int) -> CompiledLinks:
    """The best gres.conf found for the case. most: files to try."""
    states = states_of(case.node, case.ranks, form, case.cores_per_gpu)
    return compile_links(case.node, case.wiring, case.ranks, states, form, case.version, reorder=reorder, most=most)


def compiled_lines(case: TopologyCase, best: CompiledLinks, form: GpuOption) -> Iterator[str]:
    """The lines, under comments that tell what they reach."""
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
    yield "# Another means: a GRES Type for each island or GPU; jobs that ask for gpu:N take any, and the daemon"
    yield "# rewrites the requests of those it places (placement.retype). gres.conf then, as by `compile --types`:"
    for case in short:
        yield from typed_lines_of(case)
    yield "# Another means: one form of request; --gpus=N of a one-node job becomes --gpus-per-node=N."
    yield "# slurm.conf: JobSubmitPlugins=lua, and job_submit.lua beside it:"
    yield JOB_SUBMIT.rstrip()


def compiled_record(case: TopologyCase, best: CompiledLinks) -> dict[str, Any]:
    """A compiled class as JSON."""
    return {"class": case.one.topology.name, "slurm": case.version, "states": best.states, "best": best.best_states,
            "bound": best.bound, "tried": best.tried, "proven": best.proven,
            "before": check_requests(case), "after": check_requests(case, best.node, best.order),
            "lines": conf_lines(case.one, best.node, best.order)}  # fmt: skip
