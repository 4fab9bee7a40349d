"""`ibnetdiscover`: InfiniBand switches, their nodes, and the cables between switches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from slurmsched.plain_text import pluralize
from slurmsched.topology.fabrics import FabricCell, NamedFabric, fabric_of
from slurmsched.topology.topology_text import clean, connected_groups, fold_names

_HEAD = re.compile(r'(?:Switch|Ca)\s+\d+\s+"([SH]-[0-9a-fA-F]+)"\s+#\s*"([^"]*)"')
_PORT = re.compile(
    r'\[\d+\](?:\([0-9a-fA-F]+\))?\s*"([SH]-[0-9a-fA-F]+)"\[\d+\](?:\([0-9a-fA-F]+\))?\s+#[^"]*"([^"]*)"'
)
_ADAPTER = re.compile(r"([A-Za-z0-9][\w.-]*)\s+[A-Za-z][\w.-]*\d[\w.-]*")
_NODE = re.compile(r"([A-Za-z][\w.-]*\d[\w.-]*)")
_NOBODY = re.compile(r"localhost.*|localdomain|none|unknown|noname|default", re.IGNORECASE)  # no host's own name
_SYSTEM = re.compile(r"sysimgguid=(0x[0-9a-fA-F]+)")
_CHIP = re.compile(r"MT\d+\w*(?:\s|$)|\S+\s+(?:ConnectX|BlueField)", re.IGNORECASE)
_SWITCH = re.compile(r"[^;]*;([^:;]+):[^/]*(/.*)?")
MOST_LEVELS = 8


@dataclass(slots=True)
class _Seen:
    """What the file contains.

    comments: GUID -> text of its comment.
    links: GUID -> GUIDs at the other ends of its cables.
    system: GUID -> GUID of its device.
    heads: GUIDs with a section of their own.
    broken: lines of ports that cannot be read.
    """

    comments: dict[str, str] = field(default_factory=dict)
    links: dict[str, set[str]] = field(default_factory=dict)
    system: dict[str, str] = field(default_factory=dict)
    heads: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def join(self, a: str, b: str) -> None:
        self.links.setdefault(a, set()).add(b)
        self.links.setdefault(b, set()).add(a)

    def hosts(self) -> dict[str, str]:
        """GUID -> node, of adapters of nodes."""
        named = {guid: node_name(text) for guid, text in self.comments.items() if guid.startswith("H-")}
        return {guid: node for guid, node in named.items() if node}

    def twice(self) -> set[str]:
        """Names of several hosts: two devices have an adapter of the same name."""
        devices: dict[tuple[str, str], set[str]] = {}
        for guid, node in self.hosts().items():
            devices.setdefault((node, self.comments[guid].strip().strip("'")), set()).add(self.system.get(guid, guid))
        return {node for (node, _), found in devices.items() if len(found) > 1}


def read_ibnetdiscover(text: str, cluster: Collection[str] = ()) -> NamedFabric:
    """The fabric as a tree. A cell is a leaf switch, or several leaf switches that share nodes by their rails.

    Higher switches that reach the same cells are joined too, so that every cell has one parent.

    cluster: names of Slurm's nodes. Only these count then, and leaves that share one are joined. () = unknown: leaves
        are joined if more than half of the nodes of each are on the other. A host on further leaves, such as a file
        server, is left out.
    """
    seen = _scan(clean(text))
    names, twice = _switch_names(seen.comments), seen.twice()
    hosts = {guid: node for guid, node in seen.hosts().items() if node not in twice}
    others = set(hosts.values()) - set(cluster) if cluster else set[str]()
    nodes = {guid: sorted({hosts[end] for end in seen.links.get(guid, ()) if end in hosts} - others) for guid in names}
    groups = _groups({guid: set(nodes[guid]) for guid in names if nodes[guid]}, "any" if cluster else "most")
    astray = _astray(nodes, groups)
    nodes = {guid: [node for node in held if node not in astray] for guid, held in nodes.items()}
    groups = [kept for group in groups if (kept := [guid for guid in group if nodes[guid]])]
    leaves = [guid for guid in names if nodes[guid]]
    fabric, warnings = fabric_of("tree", _cells(seen, names, nodes, groups))
    switches = {names[guid]: tuple(nodes[guid]) for guid in leaves}
    warnings = (*_missed(leaves, twice, astray), *_damage(seen), *warnings)
    remark = (f"{fold_names(sorted(others))}: no nodes of Slurm, left out",) if others else ()
    kind = "tree" if leaves else ""
    return NamedFabric(fabric, kind, leaves=switches, warnings=warnings, notes=(*_partial(seen, names), *remark))


def _missed(leaves: Sequence[str], twice: Collection[str], astray: Collection[str]) -> Iterator[str]:
    """Warnings about hosts that are left out although they may be nodes."""
    if not leaves:
        yield "no switch with nodes found"
    if twice:
        yield f"{fold_names(sorted(twice))}: several hosts have this name, left out"
    if astray:
        yield (f"{fold_names(sorted(astray))}: on switches that share few nodes, as file servers are, left out; "
               "name the nodes of the cluster to be sure (--nodes, or slurm.conf beside)")  # fmt: skip


def _astray(nodes: Mapping[str, Sequence[str]], groups: Sequence[Sequence[str]]) -> set[str]:
    """Nodes that are on leaves of several groups."""
    on = Counter(node for group in groups for node in {node for guid in group for node in nodes[guid]})
    return {node for node, count in on.items() if count > 1}


def node_name(text: str) -> str:
    """The node in the comment of an adapter: "node001 mlx5_5", "node006 HCA-6", or "node006" alone.

    "" for the adapter of a switch, a chip, or a host without a name of its own."""
    bare = text.strip().strip("'")
    match = _ADAPTER.fullmatch(bare) or _NODE.fullmatch(bare)
    named = match is not None and not _CHIP.match(text) and not _NOBODY.fullmatch(match[1])
    return match[1].partition(".")[0] if match and named else ""


def _scan(text: str) -> _Seen:
    seen, at, system = _Seen(), "", ""
    for line in text.splitlines():
        if found := _SYSTEM.match(line):
            system = found[1]
        elif head := _HEAD.match(line):
            at = head[1]
            seen.comments[at] = head[2]
            seen.heads.add(at)
            seen.system |= {at: system} if system else {}
            system = ""
        elif port := _PORT.match(line):
            seen.comments.setdefault(port[1], port[2])
            if at:
                seen.join(at, port[1])
        elif not line.strip():
            at = ""
        elif at and line.startswith("[") and '"R-' not in line:
            seen.broken.append(line)
    return seen


def _damage(seen: _Seen) -> tuple[str, ...]:
    first = next((line[:60] for line in seen.broken), "")
    return (
        (f"{pluralize(len(seen.broken), 'line')} of ports cannot be read, such as {first!r}; left out",)
        if first
        else ()
    )


def _partial(seen: _Seen, names: Mapping[str, str]) -> tuple[str, ...]:
    """Notes about what a file lacks that was cut between two sections."""
    bare = [names[guid] for guid in names if guid not in seen.heads]
    return (f"no part of its own for {fold_names(bare)}: what else hangs there is not known",) if bare else ()


def _switch_names(comments: Mapping[str, str]) -> dict[str, str]:
    """GUID -> name of each switch: "MF0;leaf01:MQM9701/U1" -> "leaf01"; with the chip, or its GUID, where taken."""
    texts = {guid: text for guid, text in comments.items() if guid.startswith("S-")}
    parts = {guid: _SWITCH.fullmatch(text) for guid, text in texts.items()}
    short = {guid: match[1] if match else guid for guid, match in parts.items()}
    long = {guid: match[1] + (match[2] or "") if match else guid for guid, match in parts.items()}
    once, twice = Counter(short.values()), Counter(long.values())
    return {guid: short[guid] if once[short[guid]] == 1 else long[guid] if twice[long[guid]] == 1 else guid
            for guid in texts}  # fmt: skip


def _cells(
    seen: _Seen, names: Mapping[str, str], nodes: Mapping[str, Sequence[str]], leaves: Sequence[Sequence[str]]
) -> list[FabricCell]:
    """Cells of all levels: groups of leaves, then the switches of each level that share cells below."""
    cells: list[FabricCell] = []
    done: set[str] = set()
    below = {guid: set(nodes[guid]) for group in leaves for guid in group}
    for level in range(MOST_LEVELS):
        made: dict[str, str] = {}
        for group in leaves if level == 0 else _groups(below):
            held = sorted(set().union(*(below[guid] for guid in group)))
            name = fold_names(names[guid] for guid in group)
            cells.append(FabricCell(name, tuple(held)) if level == 0 else FabricCell(name, (), tuple(held)))
            made.update(dict.fromkeys(group, name))
        done |= set(made)
        above = _cabled_switches(seen, made, set(names) - done)
        below = {guid: {made[end] for end in seen.links[guid] if end in made} for guid in above}
        if not below:
            break
    return cells


def _cabled_switches(seen: _Seen, of: Iterable[str], among: set[str]) -> list[str]:
    """The switches of `among` with a cable to one of `of`, in a fixed order."""
    return sorted({end for guid in of for end in seen.links.get(guid, ()) if end in among})


def _groups(below: Mapping[str, set[str]], shared: str = "any") -> list[list[str]]:
    """Groups of switches that share something below, over any chain; shared="most": more than half of each."""
    guids = list(below)
    on: dict[str, list[int]] = {}
    for at, guid in enumerate(guids):
        for held in sorted(below[guid]):
            on.setdefault(held, []).append(at)
    common = Counter((a, b) for holders in on.values() for a, b in combinations(holders, 2))
    pairs = [(a, b) for (a, b), count in common.items()
             if shared == "any" or 2 * count > max(len(below[guids[a]]), len(below[guids[b]]))]  # fmt: skip
    groups: dict[int, list[str]] = {}
    for guid, key in zip(guids, connected_groups(len(guids), pairs), strict=True):
        groups.setdefault(key, []).append(guid)
    return list(groups.values())
