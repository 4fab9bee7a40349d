"""What `topology` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from slurmsched.cli.framework import Output
from slurmsched.model.gpu_topology import Fabric
from slurmsched.plain_text import pluralize
from slurmsched.topology.fabrics import NamedFabric, nodes_under
from slurmsched.topology.gpu_links import links_of, shown_link
from slurmsched.topology.site_topology import TopologyDifference, link_groups, link_matrix
from slurmsched.topology.topology_files import NodeClass, TopologyFile
from slurmsched.topology.topology_text import fold_names


def print_site(out: Output, classes: Sequence[NodeClass], fabric: NamedFabric) -> None:
    """One line a class, one line a cell."""
    rows = [
        (one.topology.name, fold_names(one.nodes) or "-", one.topology.gpus, one.topology.gpu_type or "-", links(one))
        for one in classes
    ]
    if rows:
        out.table(("class", "nodes", "GPUs>", "type", "links"), rows)
    else:
        out.line("no class of node is known: configure topology.classes, or see docs/topology.md")
    if len(fabric.fabric.cell):
        out.line()
        print_fabric(out, fabric)


def print_fabric(out: Output, one: NamedFabric) -> None:
    """The cells, highest level first."""
    fabric, under = one.fabric, nodes_under(one.fabric)
    names = list(fabric.cell)
    places = zip(names, fabric.level.tolist(), fabric.parent.tolist(), strict=True)
    rows = [(level, name, names[above] if above >= 0 else "-", len(under[name]), fold_names(under[name]))
            for name, level, above in places]  # fmt: skip
    out.line(f"{one.kind or 'no fabric'} {one.name}".strip() + (" (default)" if one.name and one.default else ""))
    if rows:
        out.table(("level>", "cell", "in", "nodes>", "names"), rows[::-1])


def print_class(out: Output, node: str, one: NodeClass, fabric: NamedFabric) -> None:
    """Matrix, groups, and the cells that the node is in."""
    topology = one.topology
    head = f"{node or topology.name}: {pluralize(topology.gpus, 'GPU')} {topology.gpu_type}".rstrip()
    out.line(f"{head}, class {topology.name}" if node and node != topology.name else head)
    out.table(*link_matrix(topology))
    for line in link_groups(topology):
        out.line(line)
    if cells := [name for name, nodes in nodes_under(fabric.fabric).items() if node in nodes]:
        out.line("in " + ", in ".join(cells))


def print_reading(out: Output, path: Path, reading: TopologyFile) -> None:
    """What one file says."""
    out.line(f"{path}: {reading.kind or 'of no known kind'}")
    for one in reading.classes:
        print_class(out, "", one, NamedFabric(Fabric()))
    for fabric in reading.fabrics:
        print_fabric(out, fabric)
    if reading.gpus:
        out.table(("GPUs>", "nodes"), [(gpus, fold_names(node for node, has in reading.gpus.items() if has == gpus))
                                       for gpus in sorted(set(reading.gpus.values()))])  # fmt: skip
    for note in reading.notes:
        out.line(f"note: {note}")
    out.line()


def difference_rows(differences: Sequence[TopologyDifference]) -> list[tuple[str, str, str, str]]:
    """What, nodes, what files and what Slurm say: nodes of one kind of difference as one row."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for one in differences:
        nodes.setdefault((one.kind, one.files, one.slurm), []).append(one.node)
    return [(kind, fold_names(of), said or "-", slurm or "-") for (kind, said, slurm), of in nodes.items()]


def links(one: NodeClass) -> str:
    """The links of a class in a few words: "28 NV12", "4 NV4, 24 SYS"; "unknown"."""
    count = Counter(shown_link(one.topology, (kind, lanes)) for _, _, kind, lanes in links_of(one.topology))
    return ", ".join(f"{number} {link}" for link, number in count.items()) or "unknown"
