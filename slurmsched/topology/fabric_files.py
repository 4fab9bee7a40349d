"""Files of the fabric: topology.conf, `scontrol show topology`, topology.yaml (25.05 and later), ibnetdiscover."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from slurmsched.model.gpu_topology import Fabric
from slurmsched.plain_text import pluralize
from slurmsched.topology.fabrics import FabricCell, NamedFabric, aggregates, block_cells, fabric_of, nodes_under
from slurmsched.topology.slurm_conf import ConfLine, ConfReader, Include
from slurmsched.topology.topology_text import clean, connected_groups, fold_names, hosts_or_none, numbers_or_none

_RINGS = {"ringname": "ring", "torusname": "torus3d"}  # of 26.05: key -> kind; each is one cell


def read_topology(text: str, include: Include | None = None) -> NamedFabric:
    """The fabric of a topology.conf, or of `scontrol show topology`.

    A line that cannot be read is left out, with a warning. include: see gres_conf.
    Source: topology.conf manual page, 22.05 to 26.05.
    """
    lines = ConfReader(include)
    read = list(lines.read(text))
    switches = [_switch(line, lines.warnings) for line in read if line.get("switchname")]
    blocks = [_block(line, lines.warnings) for line in read if line.get("blockname")]
    rings = [FabricCell(line.get(key), _names(line, "nodes", lines.warnings))
             for line in read for key in _RINGS if line.get(key)]  # fmt: skip
    if switches and blocks:
        lines.warnings.append("switches and blocks in one file; the blocks are left out")
    if not switches and not blocks and not rings and not any(line.get("blocksizes") for line in read):
        lines.warnings.append("neither switches nor blocks found")
    sizes = _sizes(read, lines.warnings)
    cells = switches or _blocks(blocks, read, sizes, lines.warnings) or rings
    ring = next((_RINGS[key] for line in read for key in _RINGS if line.get(key)), "")
    kind = "tree" if switches else "block" if blocks else ring
    fabric, more = fabric_of(kind, cells, sizes if kind == "block" else ())
    texts = (*lines.warnings, *more, *_lost_nodes(read, fabric))
    return NamedFabric(fabric, kind, domains=_domains(read), warnings=texts)


def _value(line: ConfLine, key: str) -> str:
    """The value. scontrol prints an empty one as (null)."""
    return "" if line.get(key) == "(null)" else line.get(key)


def _names(line: ConfLine, key: str, warnings: list[str]) -> tuple[str, ...]:
    found = hosts_or_none(_value(line, key))
    if found is None:
        warnings.append(f"{line.where}: {key.title()}={line.get(key)} is not a hostlist; taken as empty")
    return found or ()


def _switch(line: ConfLine, warnings: list[str]) -> FabricCell:
    """A switch. For a switch of switches scontrol also lists the nodes below; those are not its own."""
    children = _names(line, "switches", warnings)
    return FabricCell(line.get("switchname"), () if children else _names(line, "nodes", warnings), children)


def _lost_nodes(read: Sequence[ConfLine], fabric: Fabric) -> Iterator[str]:
    """Warnings about nodes of a switch of switches that are under none of them."""
    both = [line for line in read if _value(line, "switches") and _value(line, "nodes")]
    under = nodes_under(fabric) if both else {}
    for line in both:
        name = line.get("switchname")
        if outside := [node for node in hosts_or_none(line.get("nodes")) or () if node not in under.get(name, ())]:
            yield f"{line.where}: {fold_names(outside)} of {name} are under none of its switches; left out"


def _block(line: ConfLine, warnings: list[str]) -> FabricCell:
    return FabricCell(line.get("blockname"), _names(line, "nodes", warnings))


def _blocks(
    blocks: Sequence[FabricCell], read: Sequence[ConfLine], sizes: Sequence[int], warnings: list[str]
) -> list[FabricCell]:
    """Blocks with their aggregates: those of scontrol, else those that follow from the sizes."""
    named = [_names(line, "aggregatedblock", warnings) for line in read if line.get("aggregatedblock")]
    if not named and sizes:
        named, more = aggregates([block.name for block in blocks], sizes)
        warnings += more
    return block_cells(blocks, named)


def _sizes(read: Sequence[ConfLine], warnings: list[str]) -> tuple[int, ...]:
    """Nodes of a block at each level, ascending. BlockLevels (23.11) counts powers of two of the largest block."""
    found: set[int] = set()
    for line in read:
        text = line.get("blocksizes", "blocksize")
        sizes = numbers_or_none(text) if text else ()
        if sizes is None:
            warnings.append(f"{line.where}: BlockSizes={text} is no list of numbers; left out")
        found.update(sizes or ())
        if levels := numbers_or_none(line.get("blocklevels")):
            base = max((len(hosts_or_none(other.get("nodes")) or ()) for other in read), default=0)
            found.update(base << level for level in (0, *levels) if level < 24)
    return tuple(sorted(found - {0}))


def _domains(read: Sequence[ConfLine]) -> dict[str, str]:
    found = {}
    for line in read:
        cell = line.get("blockname", "switchname")
        name, _, domain = line.comment.rpartition("\n")[2].partition("=")
        if cell and domain and name.strip() == cell:
            found[cell] = domain.strip()
    return found


# topology.yaml (25.05 and later): several named topologies of one cluster.

YAML_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_TRIES = 3  # a file that is cut off is read up to its first error


def read_topology_yaml(text: str) -> tuple[tuple[NamedFabric, ...], tuple[str, ...]]:
    """The topologies in the order of the file, and warnings about the file.

    A ring or torus is one cell. Source: topology.yaml manual page, 25.05 to 26.05.
    """
    loaded, warnings = _load(clean(text))
    entries = loaded if isinstance(loaded, list) else []
    found = [_topology(entry) for entry in entries if isinstance(entry, dict) and "topology" in entry]
    if len(found) < len(entries) or not found:
        warnings = (*warnings, "topology.yaml is a list of entries that begin with `topology:`; others are left out")
    if (defaults := sum(one.default for one in found)) != 1:
        warnings = (*warnings, f"{defaults} topologies have cluster_default: true, it must be one")
    return tuple(found), warnings


def _load(text: str) -> tuple[Any, tuple[str, ...]]:
    import yaml  # late: few sites have such a file

    warnings: tuple[str, ...] = ()
    for _ in range(_TRIES):
        try:
            return yaml.safe_load(text), warnings
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line if mark else 0
            warnings = (*warnings, f"not YAML at line {line + 1}: {getattr(error, 'problem', error)}; read up to there")
            text = "\n".join(text.split("\n")[:line])
    return None, warnings


def _topology(entry: Mapping[Any, Any]) -> NamedFabric:
    name, default = str(entry["topology"]), entry.get("cluster_default") is True
    kind = next((known for known in YAML_KINDS if entry.get(known)), "")
    if kind == "":
        return NamedFabric(
            fabric_of("", [])[0], "", name, default, warnings=(f"{name}: none of {', '.join(YAML_KINDS)}",)
        )
    body = entry[kind] if isinstance(entry[kind], dict) else {}
    warnings: list[str] = []
    sizes = tuple(size for size in _yaml_list(body.get("block_sizes")) if isinstance(size, int) and size > 0)
    cells = _yaml_cells(body, warnings)
    if kind == "block" and sizes:
        named, more = aggregates([cell.name for cell in cells], sizes)
        cells, warnings = block_cells(cells, named), [*warnings, *more]
    if kind != "flat" and not cells:
        warnings.append(f"{name}: a {kind} without members")
    fabric, more = fabric_of(kind if cells else "", cells, sizes)
    texts = tuple(f"{name}: {text}" for text in (*warnings, *more))
    return NamedFabric(fabric, kind, name, default, warnings=texts)


def _yaml_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _yaml_cells(body: Mapping[Any, Any], warnings: list[str]) -> list[FabricCell]:
    """The members of a topology: entries with `switch`, `block`, `ring` or `name`, in any list."""
    found = []
    for entries in body.values():
        for entry in _yaml_list(entries):
            names = (
                [entry[key] for key in ("switch", "block", "ring", "name") if key in entry]
                if isinstance(entry, dict)
                else []
            )
            if names:
                nodes, children = (_yaml_names(entry.get(key), warnings) for key in ("nodes", "children"))
                found.append(FabricCell(str(names[0]), nodes, children))
    return found


def _yaml_names(value: Any, warnings: list[str]) -> tuple[str, ...]:
    """The names of a hostlist or a list of hostlists. Other values are not searched: YAML aliases could be huge."""
    listed = [value] if isinstance(value, str | int) else _yaml_list(value)
    if value is None or (listed and all(isinstance(one, str | int) for one in listed)):
        found = hosts_or_none(",".join(map(str, listed)))
    else:
        found = None
    if found is None:
        warnings.append(f"{str(value)[:60] if isinstance(value, str) else 'a value'} is not a hostlist; taken as empty")
    return found or ()


# `ibnetdiscover`: InfiniBand switches, their nodes, and the cables between switches.


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
