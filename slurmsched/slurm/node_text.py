"""What `scontrol show node` and `show partition` print, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import (
    MOST_INDEXED,
    NOTHING,
    SHARING,
    Gres,
    count_gpus,
    count_kind,
    normal_form,
    parse_gres,
    shared_devices,
)
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.states import NodeState, read_node_state
from slurmsched.slurm.job_table import BEYOND, bounded
from slurmsched.slurm.text import INF, MOST_COUNT, count_of, duration_s, fields, plain, records, whole

T = TypeVar("T")
_SCHEDULES = ("UP", "DRAIN")  # a partition that drains takes no new jobs, and starts those it has


def parse_nodes(text: str, warnings: list[str]) -> Nodes:
    """The table of nodes. Where a state or gres cannot be read the node takes no job, with a warning."""
    return build_nodes((_node(fields(record)) for record in records(text, "NodeName")), warnings)


def _node(found: Mapping[str, str]) -> dict[str, Any]:
    cpus = _count(found.get("CPUTot", ""))
    spare = _count(found.get("CoreSpecCount", "")) * max(_count(found.get("ThreadsPerCore", "")), 1)
    return {
        "name": found["NodeName"],
        "partitions": plain(found.get("Partitions", "")),
        "state": found.get("State", ""),
        "gres": found.get("Gres", ""),
        "used": found.get("GresUsed", ""),
        "tres": found.get("CfgTRES", ""),
        "tres_used": found.get("AllocTRES", ""),
        "cpus": _count(found.get("CPUEfctv", "")) or max(cpus - spare, 0),  # CPUEfctv: since 22.05
        "cpus_used": _count(found.get("CPUAlloc", "")),
        "memory_mib": float(max(_count(found.get("RealMemory", "")) - _count(found.get("MemSpecLimit", "")), 0)),
        "memory_used_mib": float(_count(found.get("AllocMem", ""))),
        "features": plain(found.get("ActiveFeatures", "")),
        "reason": plain(found.get("Reason", "")),
    }


def _count(text: str) -> int:
    """A whole number; 0 where Slurm shows none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def build_nodes(rows: Iterable[Mapping[str, Any]], warnings: list[str]) -> Nodes:
    """The table of nodes, ascending name.

    rows: name, state (text), partitions, gres, used, tres and tres_used (text), cpus and memory_mib that jobs can have,
    cpus_used, memory_used_mib, features, reason.
    """
    ordered = sorted(rows, key=lambda row: str(row["name"]))
    states = [_state(row["state"], row["name"], warnings) for row in ordered]
    gpus = [_gpus(row, state, warnings) for row, state in zip(ordered, states, strict=True)]
    plain_columns = ("name", "cpus", "cpus_used", "memory_mib", "memory_used_mib", "features", "reason")
    return Nodes.build(
        len(ordered),
        {name: [row[name] for row in ordered] for name in plain_columns}
        | {"partitions": [",".join(sorted(filter(None, row["partitions"].split(",")))) for row in ordered]}
        | {"state": [int(state) for state in states]}
        | {name: [getattr(each, name) for each in gpus] for name in _Gpus.__slots__},
    )


@dataclass(frozen=True, slots=True)
class _Gpus:
    """The columns of model.Nodes that tell of one node's GPUs."""

    gpu_types: str = ""
    types_used: str = ""
    gpus: int = 0
    gpus_used: int = 0
    gpu_mask_used: int = 0
    gpus_shared: int = 0
    gpus_unread: bool = False


def _gpus(row: Mapping[str, Any], state: NodeState, warnings: list[str]) -> _Gpus:
    """GPUs of a node and how many are in use. What cannot be read never counts as free."""
    name, gres, tres = row["name"], row["gres"], row.get("tres", "")
    try:
        entries = bounded(parse_gres(tres if gres in NOTHING and "gres/gpu" in tres else gres))
    except UnreadableError as error:
        warnings.append(f"node {name}: its GPUs cannot be read and are not counted ({error})")
        return _Gpus(gpus_unread=True)
    types, gpus = normal_form(entries, ("gpu",)), count_gpus(entries)
    try:
        held, by_tres = (bounded(parse_gres(row.get(key, ""), counted=True)) for key in ("used", "tres_used"))
    except UnreadableError as error:
        warnings.append(_unread(name, str(error)))
        return _Gpus(types, types, gpus, gpus, gpus_unread=bool(types))
    told = any(entry.kind == "gpu" for entry in held) or "gres/gpu" in tres
    if types and not told and not (state & NodeState.IDLE and not row["cpus_used"]):
        warnings.append(_unread(name, "Slurm tells none"))
        return _Gpus(types, types, gpus, gpus, gpus_unread=True)
    if _mask(held).bit_length() > MOST_INDEXED:
        warnings.append(f"node {name}: {BEYOND}")
        held = [replace(entry, mask=0) for entry in held]
    return _held(types, gpus, held, by_tres)


def _unread(name: str, why: str) -> str:
    return f"node {name}: its GPUs in use cannot be read; none of its GPUs counts as free ({why})"


def _held(types: str, gpus: int, held: Sequence[Gres], by_tres: Sequence[Gres]) -> _Gpus:
    """GresUsed and AllocTRES should agree; where they do not, the higher count stands."""
    mask, missing = _mask(held), count_kind(by_tres, "gpu") - count_kind(held, "gpu")
    whole = max(count_gpus(held), mask.bit_count()) + max(missing, 0)
    most, parts = shared_devices([*held, *_shared_by_tres(held, by_tres)], gpus)
    which = parts.bit_count() == most and mask.bit_count() == whole
    shared = (parts & ~mask).bit_count() if which else most
    used = min(whole + shared, gpus)
    by_type = normal_form(held, ("gpu",)) or normal_form(by_tres, ("gpu",))
    return _Gpus(types, by_type, gpus, used, mask | parts if which or not most else mask, used - min(whole, gpus))


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


def _state(text: str, node: str, warnings: list[str]) -> NodeState:
    state, unknown = read_node_state(text)
    if unknown:
        known = "+".join(flag.name or "" for flag in NodeState if flag & state & ~NodeState.UNKNOWN)
        means = f"it counts as {known}" if known and not state & NodeState.UNKNOWN else "it takes no job"
        warnings.append(f"node {node}: unknown state {'+'.join(unknown)}; {means}")
    return state


def parse_partitions(text: str, warnings: list[str]) -> Partitions:
    """The table of partitions. One with a number or time that is none is left out, with a warning."""
    return build_partitions(readable(records(text, "PartitionName"), _partition, "a partition", warnings))


def readable(
    rows: Iterable[T], read: Callable[[T], Mapping[str, Any]], what: str, warnings: list[str]
) -> Iterator[Mapping[str, Any]]:
    """What `read` makes of the rows; one that it trips over is left out, with a warning."""
    for row in rows:
        try:
            yield read(row)
        except (UnreadableError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            warnings.append(f"{what} is left out, as it cannot be read ({error!r:.80}): {str(row)[:80]!r}")


def _partition(record: str) -> dict[str, Any]:
    each = fields(record)
    tier, nodes = whole(each.get("PriorityTier", "1"), -1, MOST_COUNT), count_of(each.get("TotalNodes", "0"))
    if tier < 0:
        raise UnreadableError("not a PriorityTier", text=each["PriorityTier"])
    return {
        "name": each["PartitionName"],
        "state": each.get("State", "UP"),
        "default": each.get("Default") == "YES",
        "max_time_s": duration_s(each.get("MaxTime", "UNLIMITED")),
        "default_time_s": duration_s(each.get("DefaultTime", "NONE")),
        "priority_tier": tier,
        "node_list": plain(each.get("Nodes", "")),
        "nodes": nodes,
        "defaults": ",".join(_defaults(each)),
        "topology": plain(each.get("Topology", "")),
    } | _partition_limits(each)


def _partition_limits(found: Mapping[str, str]) -> dict[str, Any]:
    """What decides whether and where jobs of a partition start. From 26.05 on Exclusive is a field of its own, which
    stands for OverSubscribe=EXCLUSIVE, ExclusiveUser=YES and ExclusiveTopo=YES of the releases before."""
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
        **{name: _but_all(plain(found.get(key, ""))) for name, key in lists.items()},
        "root_only": found.get("RootOnly") == "YES",
        "needs_reservation": found.get("ReqResv") == "YES",
    }


def _limit(found: Mapping[str, str], key: str, otherwise: float = INF) -> float:
    """Slurm rounds large numbers of nodes: "1.50K"; none is set where it prints none, UNLIMITED or 0 memory."""
    try:
        return float(count_of(found.get(key, ""))) or otherwise
    except UnreadableError:
        return otherwise


def _but_all(listed: str) -> str:
    return "" if listed == "ALL" else listed


def _defaults(found: Mapping[str, str]) -> Iterator[str]:
    """What jobs of a partition get that do not say: memory by node or CPU, CPUs and memory by GPU."""
    for key in ("DefMemPerNode", "DefMemPerCPU"):
        if found.get(key, "UNLIMITED") != "UNLIMITED":
            yield f"{key}={found[key]}"
    if told := plain(found.get("JobDefaults", "")):
        yield told


def build_partitions(rows: Iterable[Mapping[str, Any]]) -> Partitions:
    """The table of partitions, ascending name, from rows that hold its columns."""
    ordered = [row for _, row in sorted({row["name"]: row for row in rows}.items())]
    columns = {name: [row[name] for row in ordered] for name in (ordered[0] if ordered else ())}
    return Partitions.build(len(ordered), columns | {"up": [row["state"] in _SCHEDULES for row in ordered]})
