"""Files of the fabric: topology.conf, `scontrol show topology`, and topology.yaml (25.05 and later)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurmsched.model.gpu_topology import Fabric
from slurmsched.topology.fabrics import FabricCell, NamedFabric, aggregates, block_cells, fabric_of, nodes_under
from slurmsched.topology.slurm_conf import ConfLine, ConfReader, Include
from slurmsched.topology.topology_text import clean, fold_names, hosts_or_none, numbers_or_none

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
