"""topology.conf (tree and block), and `scontrol show topology`, which prints the same words (ring and torus too)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurmsched.model.topology import Fabric
from slurmsched.topology.blocks import aggregates, block_cells
from slurmsched.topology.cells import Cell, NamedFabric, fabric_of, nodes_under
from slurmsched.topology.conf_lines import ConfLine, Include, Lines
from slurmsched.topology.plain import fold, hosts, numbers

_RINGS = {"ringname": "ring", "torusname": "torus3d"}  # of 26.05: key -> kind; a whole one is taken for one cell


def read_topology(text: str, include: Include | None = None) -> NamedFabric:
    """The fabric of a topology.conf, or of what `scontrol show topology` says of the default topology.

    A line that cannot be read is left out with a warning. include: as for gres.conf.
    Source: topology.conf manual page, 22.05 to 26.05.
    """
    lines = Lines(include)
    read = list(lines.read(text))
    switches = [_switch(line, lines.warnings) for line in read if line.get("switchname")]
    blocks = [_block(line, lines.warnings) for line in read if line.get("blockname")]
    rings = [Cell(line.get(key), _names(line, "nodes", lines.warnings))
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
    told = (*lines.warnings, *more, *_lost(read, fabric))
    return NamedFabric(fabric, kind, domains=_domains(read), warnings=told)


def _told(line: ConfLine, key: str) -> str:
    """The value; scontrol prints one that is empty as (null)."""
    return "" if line.get(key) == "(null)" else line.get(key)


def _names(line: ConfLine, key: str, warnings: list[str]) -> tuple[str, ...]:
    found = hosts(_told(line, key))
    if found is None:
        warnings.append(f"{line.where}: {key.title()}={line.get(key)} is not a hostlist; taken as empty")
    return found or ()


def _switch(line: ConfLine, warnings: list[str]) -> Cell:
    """A switch; what scontrol says of nodes far below a switch of switches is not its own."""
    children = _names(line, "switches", warnings)
    return Cell(line.get("switchname"), () if children else _names(line, "nodes", warnings), children)


def _lost(read: Sequence[ConfLine], fabric: Fabric) -> Iterator[str]:
    """Nodes of a switch of switches that none of these holds. Slurm takes a switch with either, not with both."""
    both = [line for line in read if _told(line, "switches") and _told(line, "nodes")]
    under = nodes_under(fabric) if both else {}
    for line in both:
        name = line.get("switchname")
        if left := [node for node in hosts(line.get("nodes")) or () if node not in under.get(name, ())]:
            yield f"{line.where}: {fold(left)} of {name} are under none of its switches; left out"


def _block(line: ConfLine, warnings: list[str]) -> Cell:
    return Cell(line.get("blockname"), _names(line, "nodes", warnings))


def _blocks(blocks: Sequence[Cell], read: Sequence[ConfLine], sizes: Sequence[int], warnings: list[str]) -> list[Cell]:
    """Blocks with their aggregates: those that scontrol names, else those that follow from the sizes."""
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
        sizes = numbers(text) if text else ()
        if sizes is None:
            warnings.append(f"{line.where}: BlockSizes={text} is no list of numbers; left out")
        found.update(sizes or ())
        if levels := numbers(line.get("blocklevels")):
            base = max((len(hosts(other.get("nodes")) or ()) for other in read), default=0)
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
