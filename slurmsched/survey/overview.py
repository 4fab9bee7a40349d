"""GPUs at a look: by type, node, partition and cell of the fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from slurmsched.model import NodeState, Snapshot
from slurmsched.model.hostlist import fold
from slurmsched.survey.stock import DOWN, DRAINED, OPEN, UNREAD, Mig, Part, migs, parts
from slurmsched.survey.stranded import Stranded, stranded


@dataclass(frozen=True, slots=True)
class Sum:
    """GPUs under one name. boot: free after a boot. unread: of nodes whose used GPUs cannot be read. stranded: of the
    free ones. sets: how many nodes have so many linked free GPUs that are not
    stranded; unknown: nodes of which that is not known. whole: nodes of which a job could have every GPU."""

    name: str
    gpus: int = 0
    free: int = 0
    boot: int = 0
    stranded: int = 0
    used: int = 0
    drained: int = 0
    down: int = 0
    unread: int = 0
    whole: int = 0
    unknown: int = 0
    sets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """Nodes that look alike. free_gpus: which are free, None = not known. boot: GPUs free after a boot. linked, why: as
    stock.Part."""

    nodes: str
    state: str
    gpu_type: str
    gpus: int
    free: int
    linked: int | None
    why: str
    free_gpus: tuple[int, ...] | None
    reason: str
    boot: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """All of one look. fabric: cells from the highest level down; empty where no fabric is known."""

    types: tuple[Sum, ...]
    nodes: tuple[NodeLine, ...]
    partitions: tuple[Sum, ...]
    fabric: tuple[Sum, ...]
    mig: tuple[tuple[str, Mig], ...]
    stranded: tuple[Stranded, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which nodes and types are looked at; None or "" = all."""

    nodes: frozenset[str] | None = None
    gpu_type: str = ""
    partition: str = ""

    def row(self, snapshot: Snapshot, row: int) -> bool:
        """Whether this node is."""
        nodes = snapshot.nodes
        named = self.nodes is None or nodes.name[row] in self.nodes
        return named and (not self.partition or self.partition in nodes.partitions[row].split(","))


def overview(snapshot: Snapshot, only: Filter | None = None) -> Overview:
    """The look at these nodes."""
    only = only or Filter()
    lost = stranded(snapshot)
    seen = [part for part in parts(snapshot) if only.row(snapshot, part.node) and only.gpu_type in ("", part.gpu_type)]
    rows = {part.node for part in seen}
    names = {snapshot.nodes.name[row] for row in rows}
    stuck = frozenset(row for row in rows if snapshot.nodes.name[row] in {one.node for one in lost})
    return Overview(
        types=_sums(seen, stuck, lambda part: [part.gpu_type or "-"]),
        nodes=_lines(snapshot, seen),
        partitions=_sums(seen, stuck, lambda part: filter(None, snapshot.nodes.partitions[part.node].split(","))),
        fabric=_cells(snapshot, seen, stuck),
        mig=tuple((snapshot.nodes.name[one.node], one) for one in migs(snapshot)
                  if only.row(snapshot, one.node) and only.gpu_type in ("", one.gpu_type)),
        stranded=tuple(one for one in lost if one.node in names),
    )  # fmt: skip


def _sums(seen: Sequence[Part], stuck: Collection[int], names: Callable[[Part], Iterable[str]]) -> tuple[Sum, ...]:
    """GPUs under each name, ascending. stuck: rows of nodes whose free GPUs are stranded."""
    under: dict[str, list[Part]] = {}
    for part in seen:
        for name in names(part):
            under.setdefault(name, []).append(part)
    return tuple(_sum(name, under[name], stuck) for name in sorted(under))


def _sum(name: str, of: Collection[Part], stuck: Collection[int]) -> Sum:
    usable = [part for part in of if part.free and part.node not in stuck]
    sets = Counter(part.linked for part in usable if part.linked is not None)
    return Sum(
        name=name,
        gpus=sum(part.gpus for part in of),
        free=sum(part.free for part in of),
        boot=sum(part.boot for part in of),
        stranded=sum(part.free for part in of if part.node in stuck),
        used=sum(part.used for part in of),
        drained=sum(part.left for part in of if part.standing == DRAINED),
        down=sum(part.left for part in of if part.standing == DOWN),
        unread=sum(part.left for part in of if part.standing == UNREAD),
        whole=sum(part.free == part.gpus for part in usable),
        unknown=sum(part.linked is None for part in usable),
        sets=dict(sorted(sets.items(), reverse=True)),
    )


def _cells(snapshot: Snapshot, seen: Sequence[Part], stuck: Collection[int]) -> tuple[Sum, ...]:
    """Cells of the fabric, highest level first, then in its own order."""
    fabric, cell = snapshot.topology.fabric, snapshot.topology.cell
    names, above = list(fabric.cell), fabric.parent.tolist()

    def over(part: Part) -> Iterable[str]:
        at = int(cell[part.node]) if len(cell) else -1
        while at >= 0:
            yield names[at]
            at = above[at]

    found = {one.name: one for one in _sums(seen, stuck, over)}
    order = sorted(range(len(names)), key=lambda at: -int(fabric.level[at]))
    return tuple(found[names[at]] for at in order if names[at] in found)


def _lines(snapshot: Snapshot, seen: Sequence[Part]) -> tuple[NodeLine, ...]:
    """One line for nodes whose every figure is the same, in the order of their first."""
    alike: dict[tuple[object, ...], list[Part]] = {}
    for part in seen:
        alike.setdefault(_looks(snapshot, part), []).append(part)
    return tuple(_line(snapshot, of) for of in alike.values())


def _looks(snapshot: Snapshot, part: Part) -> tuple[object, ...]:
    state, reason = int(snapshot.nodes.state[part.node]), snapshot.nodes.reason[part.node]
    return state, part.standing, part.gpu_type, part.gpus, part.left, part.linked, part.why, part.mask, reason


def _line(snapshot: Snapshot, of: Sequence[Part]) -> NodeLine:
    from slurmsched.topology.picker import members

    one, nodes = of[0], snapshot.nodes
    return NodeLine(
        nodes=fold(nodes.name[part.node] for part in of),
        state=state_words(int(nodes.state[one.node])),
        gpu_type=one.gpu_type,
        gpus=one.gpus,
        free=one.free,
        linked=one.linked,
        why=one.why if one.standing in (OPEN, DRAINED, DOWN) else one.standing,
        free_gpus=None if one.mask is None else tuple(members(one.mask)),
        reason=nodes.reason[one.node],
        boot=one.boot,
    )


def state_words(state: int) -> str:
    """A node's flags in Slurm's words: "mixed", "idle+drain"."""
    return "+".join(flag.name.lower() for flag in NodeState if flag.name and state & flag) or "unknown"
