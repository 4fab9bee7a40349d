"""`ibnetdiscover`: which InfiniBand switches hold which nodes, and how switches are joined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurmsched.topology.cells import Cell, NamedFabric, fabric_of
from slurmsched.topology.plain import clean, fold, joined
from slurmsched.words import some

_HEAD = re.compile(r'(?:Switch|Ca)\s+\d+\s+"([SH]-[0-9a-fA-F]+)"\s+#\s*"([^"]*)"')
_PORT = re.compile(
    r'\[\d+\](?:\([0-9a-fA-F]+\))?\s*"([SH]-[0-9a-fA-F]+)"\[\d+\](?:\([0-9a-fA-F]+\))?\s+#[^"]*"([^"]*)"'
)
_ADAPTER = re.compile(r"([A-Za-z0-9][\w.-]*)\s+[A-Za-z][\w.-]*\d[\w.-]*")
_NODE = re.compile(r"([A-Za-z][\w.-]*\d[\w.-]*)")
_CHIP = re.compile(r"MT\d+\w*(?:\s|$)|\S+\s+(?:ConnectX|BlueField)", re.IGNORECASE)
_SWITCH = re.compile(r"[^;]*;([^:;]+):[^/]*(/.*)?")
MOST_LEVELS = 8


@dataclass(slots=True)
class _Seen:
    """told: GUID -> what its comment says. links: GUID -> GUIDs it has a cable to.

    heads: GUIDs with a part of their own. broken: lines of ports that cannot be read.
    """

    told: dict[str, str] = field(default_factory=dict)
    links: dict[str, set[str]] = field(default_factory=dict)
    heads: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def join(self, a: str, b: str) -> None:
        self.links.setdefault(a, set()).add(b)
        self.links.setdefault(b, set()).add(a)

    def hosts(self) -> dict[str, str]:
        """GUID -> node, of adapters of nodes."""
        named = {guid: node_name(text) for guid, text in self.told.items() if guid.startswith("H-")}
        return {guid: node for guid, node in named.items() if node}


def read_ibnetdiscover(text: str) -> NamedFabric:
    """The fabric as a tree. A cell is a leaf switch, or leaf switches that share nodes by their rails, joined.

    Switches above that reach the same cells are joined likewise, so that every cell has one parent.
    """
    seen = _scan(clean(text))
    names, hosts = _switch_names(seen.told), seen.hosts()
    nodes = {guid: sorted({hosts[end] for end in seen.links.get(guid, ()) if end in hosts}) for guid in names}
    leaves = [guid for guid in names if nodes[guid]]
    fabric, warnings = fabric_of("tree", _cells(seen, names, nodes, leaves))
    found = () if leaves else ("no switch with nodes found",)
    told = {names[guid]: tuple(nodes[guid]) for guid in leaves}
    warnings = (*found, *_damage(seen), *warnings)
    kind = "tree" if leaves else ""
    return NamedFabric(fabric, kind, leaves=told, warnings=warnings, notes=_partial(seen, names))


def node_name(text: str) -> str:
    """The node of an adapter's comment: "node001 mlx5_5", "node006 HCA-6", "node006" where a site set it so; "" for a
    switch's own adapter or a chip."""
    bare = text.strip().strip("'")
    match = _ADAPTER.fullmatch(bare) or _NODE.fullmatch(bare)
    return match[1].partition(".")[0] if match and not _CHIP.match(text) else ""


def _scan(text: str) -> _Seen:
    seen, at = _Seen(), ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            at = head[1]
            seen.told[at] = head[2]
            seen.heads.add(at)
        elif port := _PORT.match(line):
            seen.told.setdefault(port[1], port[2])
            if at:
                seen.join(at, port[1])
        elif not line.strip():
            at = ""
        elif at and line.startswith("[") and '"R-' not in line:
            seen.broken.append(line)
    return seen


def _damage(seen: _Seen) -> tuple[str, ...]:
    first = next((line[:60] for line in seen.broken), "")
    return (f"{some(len(seen.broken), 'line')} of ports cannot be read, such as {first!r}; left out",) if first else ()


def _partial(seen: _Seen, names: Mapping[str, str]) -> tuple[str, ...]:
    """What a piece of an answer, or one that was cut between two parts, lacks."""
    bare = [names[guid] for guid in names if guid not in seen.heads]
    return (f"no part of its own for {fold(bare)}: what else hangs there is not known",) if bare else ()


def _switch_names(told: Mapping[str, str]) -> dict[str, str]:
    """GUID -> name of each switch: "MF0;leaf01:MQM9701/U1" -> "leaf01"; with the chip, or its GUID, where taken."""
    texts = {guid: text for guid, text in told.items() if guid.startswith("S-")}
    parts = {guid: _SWITCH.fullmatch(text) for guid, text in texts.items()}
    short = {guid: match[1] if match else guid for guid, match in parts.items()}
    long = {guid: match[1] + (match[2] or "") if match else guid for guid, match in parts.items()}
    once, twice = Counter(short.values()), Counter(long.values())
    return {guid: short[guid] if once[short[guid]] == 1 else long[guid] if twice[long[guid]] == 1 else guid
            for guid in texts}  # fmt: skip


def _cells(
    seen: _Seen, names: Mapping[str, str], nodes: Mapping[str, Sequence[str]], leaves: Sequence[str]
) -> list[Cell]:
    """Cells of all levels: each level's switches joined where they share what is below."""
    cells: list[Cell] = []
    done: set[str] = set()
    below = {guid: set(nodes[guid]) for guid in leaves}
    for level in range(MOST_LEVELS):
        made: dict[str, str] = {}
        for group in _groups(below):
            held = sorted(set().union(*(below[guid] for guid in group)))
            name = fold(names[guid] for guid in group)
            cells.append(Cell(name, tuple(held)) if level == 0 else Cell(name, (), tuple(held)))
            made.update(dict.fromkeys(group, name))
        done |= set(made)
        above = _ends(seen, made, set(names) - done)
        below = {guid: {made[end] for end in seen.links[guid] if end in made} for guid in above}
        if not below:
            break
    return cells


def _ends(seen: _Seen, of: Iterable[str], among: set[str]) -> list[str]:
    """The switches among these that have a cable to one of the others, in a fixed order."""
    return sorted({end for guid in of for end in seen.links.get(guid, ()) if end in among})


def _groups(below: Mapping[str, set[str]]) -> list[list[str]]:
    """The switches in groups that share something below, over any chain of switches."""
    guids = list(below)
    holder: dict[str, int] = {}
    pairs = [(holder.setdefault(held, at), at) for at, guid in enumerate(guids) for held in sorted(below[guid])]
    groups: dict[int, list[str]] = {}
    for guid, key in zip(guids, joined(len(guids), pairs), strict=True):
        groups.setdefault(key, []).append(guid)
    return list(groups.values())
