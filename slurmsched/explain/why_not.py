"""The first thing that keeps a job off one node."""

from __future__ import annotations

from slurmsched.errors import InputError
from slurmsched.explain.text import clock, shown
from slurmsched.model.acts import Reservations
from slurmsched.model.hostlist import expand
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.bounds import UnknownForm, meets
from slurmsched.slurm.gres import parse_gres
from slurmsched.survey.overview import state_words
from slurmsched.survey.stock import whole_types


def why_not(snapshot: Snapshot, row: int, node: str, reservations: Reservations) -> str:
    """In words; "" if nothing known does. Raises InputError for a node that Slurm does not have."""
    names = list(snapshot.nodes.name)
    if node not in names:
        raise InputError(f"Slurm has no node {shown(node)}; `sinfo -N` lists them")
    at = names.index(node)
    return (
        _standing(snapshot, at)
        or _unwanted(snapshot, row, at)
        or _reserved(snapshot, row, at, reservations)
        or _short(snapshot, row, at)
    )


def _standing(snapshot: Snapshot, at: int) -> str:
    nodes = snapshot.nodes
    if not nodes.closed[at]:
        return ""
    reason = f": {shown(nodes.reason[at])}" if nodes.reason[at] else ""
    return f"it takes no new job ({state_words(int(nodes.state[at]))}{reason})"


def _unwanted(snapshot: Snapshot, row: int, at: int) -> str:
    """What the job says of nodes."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    name = nodes.name[at]
    if not set(jobs.partition[row].split(",")) & set(nodes.partitions[at].split(",")):
        return f"it is not in partition {jobs.partition[row]}"
    if name in _names(jobs.nodes_excluded[row]):
        return "the job excludes it"
    asked = _names(jobs.nodes_asked[row])
    if asked and name not in asked and len(asked) >= jobs.nodes[row]:
        return f"the job asks for {jobs.nodes_asked[row]}"
    try:
        if jobs.features_asked[row] and not meets(jobs.features_asked[row], frozenset(nodes.features[at].split(","))):
            return f"it is not {shown(jobs.features_asked[row])} (its features: {nodes.features[at] or 'none'})"
    except UnknownForm:
        return ""  # counts and brackets: what is nearer tells more
    return ""


def _reserved(snapshot: Snapshot, row: int, at: int, table: Reservations) -> str:
    jobs, name = snapshot.jobs, snapshot.nodes.name[at]
    until_s = snapshot.now_s + float(jobs.time_limit_s[row])
    for number in range(len(table)):
        overlaps = table.start_s[number] < until_s and table.end_s[number] > snapshot.now_s
        others = table.name[number] not in jobs.reservation[row].split(",")
        if overlaps and others and name in _names(table.node_list[number]):
            return f"reservation {shown(table.name[number])} keeps it from {clock(float(table.start_s[number]))} on"
    return ""


def _short(snapshot: Snapshot, row: int, at: int) -> str:
    """GPUs of the type, then CPUs; a job spreads evenly over its nodes."""
    jobs, nodes, each = snapshot.jobs, snapshot.nodes, max(1, int(snapshot.jobs.nodes[row]))
    has = whole_types(nodes.gpu_types[at])
    types = {one.type for one in parse_gres(jobs.gpu_request[row]) if one.kind == "gpu" and one.type}
    need = -(-int(jobs.gpus[row]) // each)
    if need and types and not types & set(has):
        return f"it has no {' or '.join(sorted(types))} (its GPUs: {nodes.gpu_types[at] or 'none'})"
    free = int(nodes.gpus[at] - nodes.gpus_used[at])
    if need > nodes.gpus[at]:
        return f"it has {int(nodes.gpus[at])} GPUs, the job needs {need} there"
    if need > free:
        return f"{free} of its {int(nodes.gpus[at])} GPUs are free, the job needs {need} there"
    cpus, free_cpus = -(-int(jobs.cpus[row]) // each), int(nodes.cpus[at] - nodes.cpus_used[at])
    if cpus > free_cpus:
        return f"{free_cpus} of its {int(nodes.cpus[at])} CPUs are free, the job needs {cpus} there"
    memory, free_mib = float(jobs.memory_mib[row]), float(nodes.memory_mib[at] - nodes.memory_used_mib[at])
    if memory / each > free_mib:
        return f"{free_mib:.0f} MiB of its memory are free, the job needs {memory / each:.0f} there"
    return ""


def _names(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except ValueError:
        return ()
