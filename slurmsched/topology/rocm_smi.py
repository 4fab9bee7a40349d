"""`rocm-smi --showtopo` and `amd-smi topology`: tables of weights, hops, link types and NUMA nodes.

Any of them may be missing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.topology.gpu_links import MAX_GPUS, Link, agreed_links, class_of, limited_gpus
from slurmsched.topology.topology_text import LabelledTable, best_table, clean, gpu_number, unquoted

_TITLE = re.compile(r"[ \t]*={3,}[ \t]*(.*?)[ \t]*={3,}[ \t]*$", re.MULTILINE)
_ROW = re.compile(r"[ \t]*(GPU\d+)[ \t]+(\S.*?)[ \t]*")
_NUMA = re.compile(r"GPU\[(\d+)\]\s*:\s*\(Topology\) Numa (Node|Affinity): *(-?\d+)")
_SERIES = re.compile(r"GPU\[\d+\]\s*:\s*Card (?:series|model): *(\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)
# JSON of rocm-smi: "system" has a key for each pair, "card0" the NUMA node of that GPU.
_PAIR = re.compile(
    r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})\"?\s*:\s*\"?(\w+)", re.IGNORECASE
)
_CARD = re.compile(r"\"card(\d{1,4})\"\s*:\s*\{([^{}]*)\}")
_CARD_NUMA = re.compile(r"\(Topology\) Numa (Node|Affinity)\"\s*:\s*\"?(-?\d+)")
_AMD_TITLE = re.compile(r"^[ \t]*([A-Z][A-Z -]*) TABLE:[ \t]*$", re.MULTILINE)
_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]\b")
DIRECT = 15  # KFD's weight of one XGMI link; two weigh 30 (ROCm/rocm-systems issue 5763: hops are not reliable)
ONE_NUMA_HOPS = 2  # GPU to CPU to GPU; three cross to another CPU
TABLES = {"weight": "weight", "hops": "hops", "link type": "type"}


def read_showtopo(text: str, name: str = "", gpu_type: str = "") -> GpuTopology:
    """The class of node of the tables. What is missing or unreadable is unknown; a warning says so.

    Lanes are 1 for a direct XGMI link (by weight), and 0 for XGMI over another GPU or if unknown. PCIe within a NUMA
    node (two hops) is NODE, else SYS, since switches are not shown.

    gpu_type: name of the model, for the bandwidth; "" = as in the text.
    """
    text = _amd_smi(unquoted(clean(text)))
    text = as_tables(text) if _PAIR.search(text) else text
    grids = {kind: _grid(body) for kind, body in _tables(text).items()}
    numa = _numa(text)
    gpus, cut = limited_gpus(max([grid.gpus for grid in grids.values()] + [gpu + 1 for gpu in numa], default=0))
    kind, lanes, unlike = agreed_links(gpus, _links_of_grids(grids, numa, gpus))
    series = set(_SERIES.findall(text))
    model = gpu_type or (series.pop() if len(series) == 1 else "")
    return class_of(
        name, kind, lanes, gpu_type=model, numa=[numa.get(i, -1) for i in range(gpus)],
        warnings=(*cut, *_lacks(grids), *unlike),
    )  # fmt: skip


def _amd_smi(text: str) -> str:
    """The output of `amd-smi topology` in the form of rocm-smi: GPUs by number, in the order of its columns."""
    if not _AMD_TITLE.search(text):
        return text
    number = {address: f"GPU{i}" for i, address in enumerate(dict.fromkeys(_ADDRESS.findall(text)))}
    text = _AMD_TITLE.sub(r"=== \1 ===", _ADDRESS.sub(lambda found: number[found[0]], text))
    return re.sub(r"\bSELF\b", "0", text)


def as_tables(text: str) -> str:
    """The output of `rocm-smi --showtopo --json` as the tables without --json. The JSON has each pair once."""
    said = {(what.lower(), *sorted((int(i), int(j)))): cell for what, i, j, cell in _PAIR.findall(text)}
    size = min(max(j for _, _, j in said) + 1, MAX_GPUS)
    lines: list[str] = []
    for what in dict.fromkeys(what for what, _, _ in said):
        lines += [f"=== {what} between two GPUs ===", " ".join(f"GPU{i}" for i in range(size))]
        for i in range(size):
            cells = ("0" if i == j else said.get((what, min(i, j), max(i, j)), "-") for j in range(size))
            lines.append(f"GPU{i} {' '.join(cells)}")
    numa_of = ((gpu, _CARD_NUMA.findall(body)) for gpu, body in _CARD.findall(text))
    lines += [f"GPU[{gpu}] : (Topology) Numa {what}: {node}" for gpu, found in numa_of for what, node in found]
    return "\n".join([*lines, "=== End ==="])


def _tables(text: str) -> dict[str, str]:
    """The body of each table by "weight", "hops" and "type"; of two of a kind the first."""
    titles = list(_TITLE.finditer(text))
    found: dict[str, str] = {}
    for title, after in zip(titles, [*titles[1:], None], strict=False):
        body = text[title.end() : after.start() if after else len(text)]
        for word, kind in TABLES.items():
            if title[1].lower().startswith(word):
                found.setdefault(kind, body)
    return found


def _grid(body: str) -> LabelledTable:
    rows: dict[str, list[str]] = {}
    head: list[str] = []
    for line in body.splitlines():
        words = line.split()
        if words and all(gpu_number(word) is not None for word in words) and not head:
            head = words
        elif match := _ROW.fullmatch(line):
            rows.setdefault(match[1], match[2].split())
    return best_table([head, list(rows)], rows, "0")


def _cells(grid: LabelledTable | None) -> dict[tuple[int, int], str]:
    """Row and column -> cell, of pairs of different GPUs."""
    found = {}
    for row, column, cell in grid.cells() if grid and not grid.shifted else ():
        i, j = gpu_number(row), gpu_number(column)
        if i is not None and j is not None and i != j:
            found[i, j] = cell
    return found


def _links_of_grids(
    grids: Mapping[str, LabelledTable], numa: Mapping[int, int], gpus: int
) -> dict[tuple[int, int], Link]:
    weights, hops = _cells(grids.get("weight")), _cells(grids.get("hops"))
    said: dict[tuple[int, int], Link] = {}
    for (i, j), cell in _cells(grids.get("type")).items():
        if max(i, j) >= gpus:
            continue
        if cell == "XGMI":
            said[i, j] = (LinkKind.XGMI, int(weights.get((i, j)) == str(DIRECT)))
        elif cell == "PCIE":
            said[i, j] = (_hosted(hops.get((i, j), ""), numa.get(i, -1), numa.get(j, -1)), 0)
    return said


def _hosted(hops: str, numa: int, other: int) -> LinkKind:
    """The kind of a PCIe link: by hops, else by NUMA nodes, else unknown."""
    if hops.isdecimal() and int(hops) > 0:
        return LinkKind.NODE if int(hops) <= ONE_NUMA_HOPS else LinkKind.SYS
    if min(numa, other) < 0:
        return LinkKind.UNKNOWN
    return LinkKind.NODE if numa == other else LinkKind.SYS


def _numa(text: str) -> dict[int, int]:
    """GPU -> NUMA node; its affinity if no node is shown."""
    found: dict[int, int] = {}
    for gpu, _, node in sorted(_NUMA.findall(text), key=lambda row: row[1] == "Node"):
        if len(gpu) < 5 and int(node) >= 0:
            found[int(gpu)] = min(int(node), 1 << 20)
    return found


def _lacks(grids: Mapping[str, LabelledTable]) -> tuple[str, ...]:
    if "type" not in grids:
        return ("no table of link types: links are unknown",)
    return tuple(warning for kind, grid in grids.items() for warning in _damage(kind, grid))


def _damage(kind: str, grid: LabelledTable) -> list[str]:
    bad = [*grid.others, *grid.missing()]
    if not grid.columns:
        return [f"the table of {kind} cannot be read"]
    return [f"table of {kind}: rows cut, damaged or missing: {', '.join(bad)}"] if bad else []
