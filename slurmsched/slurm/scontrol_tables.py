"""The output of `scontrol show node`, `show partition` and `show reservation` as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.logs import get_logger
from slurmsched.model.gres import (
    MOST_INDEXED,
    NO_GRES,
    SHARING,
    Gres,
    count_gpus,
    count_kind,
    index_mask,
    normal_form,
    parse_gres,
    shards_by_device,
    shared_devices,
)
from slurmsched.model.jobs import Jobs
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.operations import RESERVATION_PREFIX, Operation, OperationStage, Purpose, Reservations
from slurmsched.model.slurm_text import (
    INF,
    MOST_COUNT,
    parse_count,
    record_fields,
    slurm_duration_s,
    split_records,
    text_or_empty,
    time_s,
    whole_number,
)
from slurmsched.model.states import NodeState, read_node_state
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_tables import BEYOND_MASK, bounded

SHOW_PARTITIONS = ("scontrol", "-ao", "show", "partition")  # -a: hidden ones too, whose jobs squeue -a shows
SHOW_RESERVATIONS = ("scontrol", "-o", "show", "reservation")

T = TypeVar("T")
_SCHEDULES = ("UP", "DRAIN")  # a draining partition takes no new jobs, but starts those in its queue


def parse_nodes(text: str, warnings: list[str]) -> Nodes:
    """The table of nodes. A node whose state or gres cannot be read takes no job; a warning says so."""
    return build_nodes((_node(_read_fields(record)) for record in split_records(text, "NodeName")), warnings)


# What no one reads of a node and few nodes have in common, by the fields that begin it and that follow it.
_UNREAD_FIELDS = (
    (" CPULoad=", " AvailableFeatures="),
    (" NodeAddr=", " RealMemory="),
    (" FreeMem=", " Sockets="),
    (" BootTime=", " CfgTRES="),
)
_fields_of_part = lru_cache(maxsize=1 << 14)(record_fields)  # parts of nodes that are alike are split once


def _read_fields(record: str) -> dict[str, str]:
    """As record_fields, without fields that are not read. The name and the parts between those are split apart."""
    name, rest = (*record.split(None, 1), "")[:2]
    parts = []
    for begin, follows in _UNREAD_FIELDS:
        before, found, after = rest.partition(begin)
        _, both, after = after.partition(follows)
        if found and both:
            parts.append(before)
            rest = follows + after
    found_fields = _fields_of_part(rest)
    for part in reversed(parts):
        found_fields = found_fields | _fields_of_part(part)  # of equal keys the first counts
    return found_fields | {"NodeName": name.partition("=")[2]}


def _node(found: Mapping[str, str]) -> dict[str, Any]:
    cpus = _count(found.get("CPUTot", ""))
    threads = max(_count(found.get("ThreadsPerCore", "")), 1)
    spare = _count(found.get("CoreSpecCount", "")) * threads
    kept, _, _ = found.get("RestrictedCoresPerGPU", "").partition("(")  # "16(0-63)": a number, then which cores
    return {
        "name": found["NodeName"],
        "partitions": text_or_empty(found.get("Partitions", "")),
        "state": found.get("State", ""),
        "next_state": found.get("NextState", ""),
        "gres": found.get("Gres", ""),  # GresDrain is not read: Slurm always prints N/A (gres_get_node_drain)
        "used": found.get("GresUsed", ""),
        "tres": found.get("CfgTRES", ""),
        "tres_used": found.get("AllocTRES", ""),
        "cpus": _count(found.get("CPUEfctv", "")) or max(cpus - spare, 0),  # CPUEfctv: since 22.05
        "cpus_used": _count(found.get("CPUAlloc", "")),
        "cpus_per_gpu_kept": _count(kept) * threads,
        "memory_mib": float(max(_count(found.get("RealMemory", "")) - _count(found.get("MemSpecLimit", "")), 0)),
        "memory_used_mib": float(_count(found.get("AllocMem", ""))),
        "features": text_or_empty(found.get("ActiveFeatures", "")),
        "reason": text_or_empty(found.get("Reason", "")),
    }


@lru_cache(maxsize=1 << 12)
def _count(text: str) -> int:
    """A whole number; 0 if Slurm shows none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def build_nodes(rows: Iterable[Mapping[str, Any]], warnings: list[str]) -> Nodes:
    """The table of nodes, ascending name.

    rows: mappings with these keys.
    - name, partitions, features, reason
    - state, next_state: as Slurm prints them
    - gres, used, tres, tres_used: gres and TRES texts
    - cpus, memory_mib: what jobs can have
    - cpus_used, memory_used_mib
    - cpus_per_gpu_kept: CPUs for each GPU that only jobs with a GPU get
    """
    ordered = sorted(rows, key=lambda row: str(row["name"]))
    states = [_state(row, warnings) for row in ordered]
    gpus = [_gpus(row, state, warnings) for row, state in zip(ordered, states, strict=True)]
    plain_columns = (
        "name", "cpus", "cpus_used", "cpus_per_gpu_kept", "memory_mib", "memory_used_mib", "features", "reason",
    )  # fmt: skip
    return Nodes.build(
        len(ordered),
        {name: [row[name] for row in ordered] for name in plain_columns}
        | {"partitions": [",".join(sorted(filter(None, row["partitions"].split(",")))) for row in ordered]}
        | {"state": [int(state) for state in states]}
        | {name: [getattr(each, name) for each in gpus] for name in _Gpus.__slots__},
    )


@dataclass(frozen=True, slots=True)
class _Gpus:
    """The columns of model.Nodes about the GPUs of one node."""

    gpu_types: str = ""
    types_used: str = ""
    gpus: int = 0
    gpus_used: int = 0
    gpu_mask_used: int = 0
    gpus_shared: int = 0
    shards: str = ""
    gpus_unread: bool = False


def _gpus(row: Mapping[str, Any], state: NodeState, warnings: list[str]) -> _Gpus:
    """GPUs of a node and how many are in use. GPUs whose use cannot be read never count as free."""
    empty = bool(int(state) & int(NodeState.IDLE)) and not row["cpus_used"]
    found, why = _read_gpus(row["gres"], row.get("tres", ""), row.get("used", ""), row.get("tres_used", ""), empty)
    if why:
        warnings.append(f"node {row['name']}: {why}")
    return found


@lru_cache(maxsize=1 << 12)  # most nodes are alike
def _read_gpus(gres: str, tres: str, used: str, tres_used: str, empty: bool) -> tuple[_Gpus, str]:
    """GPUs of a node, and what of them cannot be read, "" = nothing. empty: no job is there."""
    try:
        entries = bounded(parse_gres(tres if gres in NO_GRES and "gres/gpu" in tres else gres))
    except UnreadableError as error:
        return _Gpus(gpus_unread=True), f"its GPUs cannot be read and are not counted ({error})"
    types, gpus = normal_form(entries, ("gpu",)), count_gpus(entries)
    try:
        held, by_tres = (bounded(parse_gres(text, counted=True)) for text in (used, tres_used))
    except UnreadableError as error:
        return _Gpus(types, types, gpus, gpus, gpus_unread=bool(types)), _unread(str(error))
    shown = any(entry.kind == "gpu" for entry in held) or "gres/gpu" in tres
    if types and not shown and not empty:
        return _Gpus(types, types, gpus, gpus, gpus_unread=True), _unread("Slurm shows none")
    why = ""
    if _mask(held).bit_length() > MOST_INDEXED:
        why, held = BEYOND_MASK, [replace(entry, mask=0) for entry in held]
    return _held(types, gpus, held, by_tres), why


def _unread(why: str) -> str:
    return f"cannot read its GPUs in use; none of them counts as free ({why})"


def _held(types: str, gpus: int, held: Sequence[Gres], by_tres: Sequence[Gres]) -> _Gpus:
    """GPUs in use by GresUsed and AllocTRES. If they differ, the higher count is taken."""
    mask, missing = _mask(held), count_kind(by_tres, "gpu") - count_kind(held, "gpu")
    whole = max(count_gpus(held), mask.bit_count()) + max(missing, 0)
    most, parts = shared_devices([*held, *_shared_by_tres(held, by_tres)], gpus)
    which = parts.bit_count() == most and mask.bit_count() == whole
    shared = (parts & ~mask).bit_count() if which else most
    used = min(whole + shared, gpus)
    by_type = normal_form(held, ("gpu",)) or normal_form(by_tres, ("gpu",))
    every = mask | parts if which or not most else mask
    hidden = any(count_kind(by_tres, kind) > count_kind(held, kind) for kind in SHARING)
    shards = "" if hidden else shards_by_device(held, gpus)
    return _Gpus(types, by_type, gpus, used, every, used - min(whole, gpus), shards)


def _shared_by_tres(held: Sequence[Gres], by_tres: Sequence[Gres]) -> Iterator[Gres]:
    """Shards and MPS of AllocTRES beyond those of GresUsed."""
    for kind in SHARING:
        missing = count_kind(by_tres, kind) - count_kind(held, kind)
        if missing > 0:
            yield Gres(kind, count=missing)


def _mask(entries: Sequence[Gres]) -> int:
    mask = 0
    for entry in entries:
        mask |= entry.mask if entry.kind == "gpu" and not entry.mig else 0
    return mask


def _state(row: Mapping[str, Any], warnings: list[str]) -> NodeState:
    node = row["name"]
    state, unknown = read_node_state(row["state"], row["next_state"])
    if unknown:
        known = "+".join(flag.name or "" for flag in NodeState if flag & state & ~NodeState.UNKNOWN)
        means = f"it counts as {known}" if known and not state & NodeState.UNKNOWN else "it takes no job"
        warnings.append(f"node {node}: unknown state {'+'.join(unknown)}; {means}")
    return state


def parse_partitions(text: str, warnings: list[str]) -> Partitions:
    """The table of partitions. One with an unreadable number or time is left out, with a warning."""
    return build_partitions(readable_rows(split_records(text, "PartitionName"), _partition, "a partition", warnings))


def readable_rows(
    rows: Iterable[T], read: Callable[[T], Mapping[str, Any]], what: str, warnings: list[str]
) -> Iterator[Mapping[str, Any]]:
    """The rows as `read` converts them. A row that it cannot read is left out, with a warning."""
    for row in rows:
        try:
            yield read(row)
        except (UnreadableError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            warnings.append(f"{what} cannot be read and is left out ({error!r:.80}): {str(row)[:80]!r}")


def _partition(record: str) -> dict[str, Any]:
    each = record_fields(record)
    tier, nodes = whole_number(each.get("PriorityTier", "1"), -1, MOST_COUNT), parse_count(each.get("TotalNodes", "0"))
    if tier < 0:
        raise UnreadableError("not a PriorityTier", text=each["PriorityTier"])
    return {
        "name": each["PartitionName"],
        "state": each.get("State", "UP"),
        "default": each.get("Default") == "YES",
        "max_time_s": slurm_duration_s(each.get("MaxTime", "UNLIMITED")),
        "default_time_s": slurm_duration_s(each.get("DefaultTime", "NONE")),
        "priority_tier": tier,
        "job_factor": whole_number(each.get("PriorityJobFactor", "1"), 1, MOST_COUNT),
        "node_list": text_or_empty(each.get("Nodes", "")),
        "nodes": nodes,
        "defaults": ",".join(_defaults(each)),
        "topology": text_or_empty(each.get("Topology", "")),
    } | _partition_limits(each)


def _partition_limits(found: Mapping[str, str]) -> dict[str, Any]:
    """The limits of a partition on whether and where jobs start.

    From 26.05 on the field Exclusive replaces OverSubscribe=EXCLUSIVE, ExclusiveUser=YES and ExclusiveTopo=YES.
    """
    shares, exclusive = found.get("OverSubscribe", "NO"), found.get("Exclusive", "NO").lower()
    before = ("node", shares == "EXCLUSIVE"), ("user", found.get("ExclusiveUser") == "YES"), (
        "topo", found.get("ExclusiveTopo") == "YES")  # fmt: skip
    lists = {"allow_accounts": "AllowAccounts", "deny_accounts": "DenyAccounts", "allow_groups": "AllowGroups",
             "allow_qos": "AllowQos", "deny_qos": "DenyQos", "alloc_nodes": "AllocNodes"}  # fmt: skip
    return {
        "min_nodes": min(int(_limit(found, "MinNodes", 0)), MOST_COUNT),
        "max_nodes": _limit(found, "MaxNodes"),
        "max_cpus_per_node": _limit(found, "MaxCPUsPerNode"),
        "max_cpus_per_socket": _limit(found, "MaxCPUsPerSocket"),
        "max_memory_mib": _limit(found, "MaxMemPerNode"),
        "max_memory_per_cpu_mib": _limit(found, "MaxMemPerCPU"),
        "over_subscribe": "NO" if shares == "EXCLUSIVE" else shares,
        "exclusive": exclusive if exclusive != "no" else next((name for name, so in before if so), ""),
        **{name: _but_all(text_or_empty(found.get(key, ""))) for name, key in lists.items()},
        "root_only": found.get("RootOnly") == "YES",
        "needs_reservation": found.get("ReqResv") == "YES",
    }


def _limit(found: Mapping[str, str], key: str, otherwise: float = INF) -> float:
    """A limit; `otherwise` if Slurm prints none, UNLIMITED or 0. Large numbers are rounded, as in "1.50K"."""
    try:
        return float(parse_count(found.get(key, ""))) or otherwise
    except UnreadableError:
        return otherwise


def _but_all(listed: str) -> str:
    return "" if listed == "ALL" else listed


def _defaults(found: Mapping[str, str]) -> Iterator[str]:
    """Defaults for jobs of a partition: memory by node or CPU, CPUs and memory by GPU."""
    for key in ("DefMemPerNode", "DefMemPerCPU"):
        if found.get(key, "UNLIMITED") != "UNLIMITED":
            yield f"{key}={found[key]}"
    if defaults := text_or_empty(found.get("JobDefaults", "")):
        yield defaults


def build_partitions(rows: Iterable[Mapping[str, Any]]) -> Partitions:
    """The table of partitions, ascending name, from rows that hold its columns."""
    ordered = [row for _, row in sorted({row["name"]: row for row in rows}.items())]
    columns = {name: [row[name] for row in ordered] for name in (ordered[0] if ordered else ())}
    return Partitions.build(len(ordered), columns | {"up": [row["state"] in _SCHEDULES for row in ordered]})


# The reservations of a cluster.

LAST_32_BIT_TIME_S = float(2**32 - 2)  # in 2106: the last time that 32 bits hold
log = get_logger()
_OF_OPERATION = re.compile(rf"{RESERVATION_PREFIX}(?:(?P<tag>[0-9a-f]{{6}})-)?\d{{1,10}}-\d+")
_TEXTS = {"name": "ReservationName", "node_list": "Nodes", "users": "Users", "flags": "Flags", "accounts": "Accounts",
          "groups": "Groups", "qos": "QOS", "tres": "TRES"}  # fmt: skip
_CORES = re.compile(r"\bNodeName=(\S+) CoreIDs=([\d,-]+)")
_TIMES = {"start_s": "StartTime", "end_s": "EndTime"}


def read_reservations(commands: Commands) -> Reservations:
    """All reservations. Raises SlurmError."""
    return parse_reservations(commands.run(*SHOW_RESERVATIONS))


def orphan_names(reservations: Reservations, operations: Sequence[Operation], tag: str) -> list[str]:
    """Reservations with a name of our form and tag that belong to none of these operations."""
    known = {operation.reservation for operation in operations}
    return [name for name in reservations.name if _tag(name) == tag and name not in known]


def foreign_names(reservations: Reservations, operations: Sequence[Operation], tag: str) -> list[str]:
    """Reservations with a name of our form and another tag, or without one."""
    known = {operation.reservation for operation in operations}
    return [name for name in reservations.name if _tag(name) not in (None, tag) and name not in known]


def _tag(name: str) -> str | None:
    """The tag in the name of a reservation, "" = it has none; None for a name of another form."""
    found = _OF_OPERATION.fullmatch(name)
    return (found["tag"] or "") if found else None


def end_by_hand(name: str) -> str:
    """The commands that end our reservation by hand. Slurm deletes none that jobs still name, so that goes first."""
    off = "scontrol update jobid=$j ReservationName="
    return f"for j in $(squeue -h -a -R {name} -o %A); do {off}; done; scontrol delete ReservationName={name}"


def parse_reservations(text: str) -> Reservations:
    """The table, in ascending name; empty for "No reservations in the system".

    If a time or the cores of a reservation cannot be read, it is taken as the strictest: already begun, without end, of
    whole nodes. The log names it.
    """
    rows = sorted(
        (_row(record) for record in split_records(text, "ReservationName")), key=lambda row: row[_TEXTS["name"]]
    )
    columns: dict[str, Any] = {name: [text_or_empty(row.get(key, "")) for row in rows] for name, key in _TEXTS.items()}
    columns |= {name: [_time_s(row, key) for row in rows] for name, key in _TIMES.items()}
    columns["to_come"] = [row.get("State", "") == "INACTIVE" for row in rows]
    columns["cores"] = [row["cores"] for row in rows]
    return Reservations.build(len(rows), columns)


def _row(record: str) -> dict[str, str]:
    """The fields, and as "cores" the cores of each node if it does not reserve whole nodes."""
    row = record_fields(record)
    try:
        cores = [f"{node}={index_mask(ids).bit_count()}" for node, ids in _CORES.findall(record)]
    except UnreadableError as error:
        log.warning("reservation.unreadable", name=row["ReservationName"], reason=str(error))
        cores = []
    return row | {"cores": ",".join(cores)}


def _time_s(row: Mapping[str, str], key: str) -> float:
    """A time [Unix s]; the strictest one if it cannot be read."""
    try:
        return time_s(row.get(key, ""))
    except UnreadableError as error:
        log.warning("reservation.unreadable", name=row["ReservationName"], reason=str(error))
        return 0.0 if key == "StartTime" else LAST_32_BIT_TIME_S


# Reservations of ours without a record.


def end_orphans(jobs: Jobs, reservations: Reservations, known: Sequence[Operation], tag: str) -> tuple[Operation, ...]:
    """An operation for each of them that only has to end: names off, reservation deleted.

    A reservation whose name is not of our form, or has another tag, is somebody else's, whatever it begins with.
    """
    orphans = set(orphan_names(reservations, known, tag))
    rows = zip(reservations.name, reservations.node_list, reservations.users, strict=True)
    return tuple(_ending_operation(jobs, name, nodes, user) for name, nodes, user in rows if name in orphans)


def _ending_operation(jobs: Jobs, name: str, nodes: str, user: str) -> Operation:
    operation_id = name.removeprefix(RESERVATION_PREFIX)
    job_id = int(operation_id.split("-")[-2])
    submitted_s = jobs.submit_s[np.flatnonzero(jobs.job_id == job_id)].tolist()
    submit_s = submitted_s[0] if submitted_s else 0.0
    return Operation(operation_id, Purpose.PREEMPT, job_id, submit_s, user, nodes, time_limit_s=0.0, begun_s=0.0,
               stage=OperationStage.REVERSING, note="no operation on record has this reservation")  # fmt: skip
