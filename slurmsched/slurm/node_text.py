"""What `scontrol show node`, `show partition` and `show job -d` print, as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.states import NodeState, node_state
from slurmsched.slurm.gres import NOTHING, Gres, count_gpus, normal_form, parse_gres
from slurmsched.slurm.text import duration_s, fields, plain, records

_DETAIL = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S*)")
_JOB = re.compile(r"^\s*(?:scontrol: )?JobId=(\d+) ", re.MULTILINE)
Parts = tuple[tuple[str, str], ...]  # (hostlist, gres text of each of these nodes)
Spread = tuple[int, int]  # leaf switches at most, nodes of each segment; 0 = not asked for


def parse_nodes(text: str, warnings: list[str]) -> Nodes:
    """The table of nodes. A node whose state or gres cannot be read counts as down, with a warning."""
    return build_nodes((_node(fields(record)) for record in records(text, "NodeName")), warnings)


def _node(found: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": found["NodeName"],
        "partitions": plain(found.get("Partitions", "")),
        "state": found.get("State", "UNKNOWN"),
        "gres": _gres_or_tres(found.get("Gres", ""), found.get("CfgTRES", "")),
        "used": _gres_or_tres(found.get("GresUsed", ""), found.get("AllocTRES", "")),
        "cpus": int(found.get("CPUTot", 0)),
        "cpus_used": int(found.get("CPUAlloc", 0)),
        "memory_mib": float(found.get("RealMemory", 0)),
        "memory_used_mib": float(found.get("AllocMem", 0)),
        "features": plain(found.get("ActiveFeatures", "")),
        "reason": plain(found.get("Reason", "")),
    }


def _gres_or_tres(gres: str, tres: str) -> str:
    """The gres text, or where Slurm shows none ("(null)" beside CfgTRES with GPUs) the TRES text."""
    return tres if gres in NOTHING and "gres/gpu" in tres else gres


def build_nodes(rows: Iterable[Mapping[str, Any]], warnings: list[str]) -> Nodes:
    """The table of nodes, ascending name.

    rows: name, state (text), partitions, gres and used (text), cpus, cpus_used, memory_mib, memory_used_mib,
    features, reason.
    """
    ordered = sorted(rows, key=lambda row: str(row["name"]))
    gres = [_gres(row["gres"], row["name"], warnings) for row in ordered]
    used = [_gres(row["used"], row["name"], warnings) for row in ordered]
    plain_columns = ("name", "cpus", "cpus_used", "memory_mib", "memory_used_mib", "features", "reason")
    return Nodes.build(
        len(ordered),
        {name: [row[name] for row in ordered] for name in plain_columns}
        | {
            "partitions": [",".join(sorted(filter(None, row["partitions"].split(",")))) for row in ordered],
            "state": [_state(row["state"], row["name"], warnings) for row in ordered],
            "gpu_types": [normal_form(entries, ("gpu",)) for entries in gres],
            "gpus": [count_gpus(entries) for entries in gres],
            "gpus_used": [count_gpus(entries) for entries in used],
            "gpu_mask_used": [_mask(entries) for entries in used],
        },
    )


def _gres(text: str, node: str, warnings: list[str]) -> tuple[Gres, ...]:
    try:
        return parse_gres(text)
    except UnreadableError as error:
        warnings.append(f"node {node}: gres cannot be read, its GPUs are not counted ({error})")
        return ()


def _mask(entries: Sequence[Gres]) -> int:
    mask = 0
    for entry in entries:
        mask |= entry.mask if entry.kind == "gpu" and not entry.mig else 0
    return mask if mask.bit_length() < 64 else 0


def _state(text: str, node: str, warnings: list[str]) -> int:
    try:
        return int(node_state(text))
    except UnreadableError as error:
        warnings.append(f"node {node}: {error}; it counts as down")
        return int(NodeState.UNKNOWN)


def parse_partitions(text: str) -> Partitions:
    """The table of partitions. Raises UnreadableError."""
    found = [fields(record) for record in records(text, "PartitionName")]
    return build_partitions(
        {
            "name": each["PartitionName"],
            "up": each.get("State", "UP") == "UP",
            "default": each.get("Default") == "YES",
            "max_time_s": duration_s(each.get("MaxTime", "UNLIMITED")),
            "default_time_s": duration_s(each.get("DefaultTime", "NONE")),
            "priority_tier": int(each.get("PriorityTier", 1)),
            "node_list": plain(each.get("Nodes", "")),
            "nodes": int(each.get("TotalNodes", 0)),
            "defaults": ",".join(_defaults(each)),
            "topology": plain(each.get("Topology", "")),
        }
        for each in found
    )


def _defaults(found: Mapping[str, str]) -> Iterator[str]:
    """What jobs of a partition get that do not say: memory by node or CPU, CPUs and memory by GPU."""
    for key in ("DefMemPerNode", "DefMemPerCPU"):
        if found.get(key, "UNLIMITED") != "UNLIMITED":
            yield f"{key}={found[key]}"
    if told := plain(found.get("JobDefaults", "")):
        yield told


def build_partitions(rows: Iterable[Mapping[str, Any]]) -> Partitions:
    """The table of partitions, ascending name, from rows that hold its columns."""
    ordered = sorted(rows, key=lambda row: str(row["name"]))
    names = ("name", "up", "default", "max_time_s", "default_time_s", "priority_tier", "node_list", "nodes")
    columns = {name: [row[name] for row in ordered] for name in names}
    more = {name: [row.get(name, "") for row in ordered] for name in ("defaults", "topology")}
    return Partitions.build(len(ordered), columns | more)


def parse_details(text: str, names: Mapping[int, str]) -> dict[int, Parts]:
    """By job the hostlists it holds and the gres text of each of their nodes, from `scontrol -d show job`.

    names: each job's name, which users choose: what looks like details in a name or a comment is none.
    """
    found: dict[int, Parts] = {}
    for job, record in job_records(text):
        _, _, after = record.partition(f"JobName={names.get(job, '')}")
        body, _, _ = after.partition(" MinCPUsNode=")  # a comment comes after it
        found.setdefault(job, tuple(_DETAIL.findall(body)))
    return found


def options_of(record: str) -> Mapping[str, str]:
    """What a record tells behind all that its user wrote at length: name, comment, command, folder and files."""
    return fields(record[max(record.rfind(" WorkDir="), record.rfind(" StdOut=")) :])  # no files of srun and salloc


def spread_of(record: str) -> Spread:
    """What a job's record asks for by --switches and --segment."""
    found = options_of(record)
    told = (found.get("Switches", "").partition("@")[0], found.get("SegmentSize", ""))
    switches, segment = (int(text) if text.isdecimal() and len(text) < 10 else 0 for text in told)
    return switches, segment


def job_records(text: str) -> Iterator[tuple[int, str]]:
    """Job id and text of each record of `scontrol show job`, one line or many."""
    marks = list(_JOB.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        yield int(mark[1]), text[mark.start() : following.start() if following else len(text)]
