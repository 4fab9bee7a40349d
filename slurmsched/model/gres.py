"""One grammar for every gres and TRES text that Slurm prints, of all ages.

    text   := "" | "(null)" | "N/A" | entry ("," entry)*
    entry  := ["gres:" | "gres/"] kind (":" type)? ((":" | "=") count)? ("(" remark ")")*
    type   := name | "(null)"                              (none: GPUs without Type, 20.11 to 25.11)
    count  := number ["K" | "M" | "G" | "T" | "P"]         (powers of 1024; 1 when left out)
    remark := "IDX:" indices | "S:" sockets | used "/" all ("," used "/" all)* | anything else

Source: Slurm's gres.conf, sbatch and scontrol manual pages, 20.11 to 26.05; tests/recorded/public.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from slurmsched.errors import UnreadableError
from slurmsched.model.hostlist import split_list

SHARING = ("shard", "mps")  # gres of which a GPU has several
NOTHING = frozenset({"", "(null)", "N/A", "n/a", "none", "None", "(none)"})
_ENTRY = re.compile(
    r"(?:gres[:/])?(?P<kind>[A-Za-z_][^\s,:=()]*)"
    r"(?P<type>(?::(?:\w[\w.+@/~#-]*|\(null\)))*?)"
    r"(?:(?P<sep>[:=])(?P<count>\d+(?:\.\d+)?)(?P<unit>[KMGTPkmgtp]?))?"
    r"(?P<remarks>(?:\([^()]*\))*)"
)
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_INDICES = re.compile(r"\(IDX:([^()]*)\)")
_PARTS = re.compile(r"\((\d+/\d+(?:,\d+/\d+)*)\)")
MOST_COUNT = 2**53  # of any gres, counted in bytes or not
MOST_INDEXED = 63  # GPUs of a node that are told apart: as many bits as an int64 column has for a mask
MOST_DEVICES = 4096  # of a node: a higher index or count of GPUs is no number of devices
LONGEST = 4096  # characters of one text: no node or job has so many kinds
_MIG = re.compile(r"(?:^|[^0-9a-z])\d+g[._]?\d+gb", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gres:
    """One entry: so many of a kind and type. mask: bit i is device index i, 0 where none is shown.

    parts: of shards and MPS how many are used of each device in turn, () where that is not shown.
    """

    kind: str
    type: str = ""
    count: int = 1
    mask: int = 0
    parts: tuple[int, ...] = ()

    @property
    def mig(self) -> bool:
        """Whether this is a slice of a GPU (MIG), which no NVLink joins to others."""
        return self.kind == "gpu" and is_mig(self.type)


def is_mig(gpu_type: str) -> bool:
    """Whether a GPU type names a MIG profile: "1g.5gb", "a100_1g.5gb", "nvidia_a100_3g.20gb"."""
    return _MIG.search(gpu_type) is not None


@lru_cache(maxsize=1 << 16)
def parse_gres(text: str, *, counted: bool = False) -> tuple[Gres, ...]:
    """The entries of a gres or TRES text in their order, zeros kept. counted: every entry must have a count, as those
    of what is in use have.

    Of a TRES text's typed and untyped keys ("gres/gpu:a100=2,gres/gpu=3") the untyped one stays with
    what no typed one names (1), so that a sum counts every device once.
    Raises UnreadableError for text outside the grammar.
    """
    if text in NOTHING:
        return ()
    if len(text) > LONGEST:
        raise UnreadableError("not a gres or TRES text: too long", text=text[:100])
    entries: list[Gres] = []
    totals: list[Gres] = []
    for part in split_list(text, "()"):
        match = _ENTRY.fullmatch(part.strip())
        if match is None:
            raise UnreadableError("not a gres or TRES text", text=text)
        if counted and match["count"] is None:
            raise UnreadableError("not a count of gres in use", text=text)
        entry = _entry(match)
        (totals if match["sep"] == "=" and not entry.type else entries).append(entry)
    return tuple(entries + [rest for total in totals if (rest := _rest(total, entries))])


def _entry(match: re.Match[str]) -> Gres:
    number, unit = match["count"], _UNIT[(match["unit"] or "").upper()]
    if number is not None and float(number) * unit >= MOST_COUNT:
        raise UnreadableError("not a count of gres", text=match[0][:100])
    count = 1 if number is None else int(float(number) * unit)
    words = [word for word in match["type"].split(":") if word not in ("", "(null)", "no_consume")]
    indices, parts = _INDICES.search(match["remarks"]), _PARTS.search(match["remarks"])
    used = tuple(int(part.partition("/")[0][:18]) for part in parts[1].split(",")) if parts else ()
    if len(words) > 1:
        raise UnreadableError("not a gres or TRES text", text=match[0])
    return Gres(match["kind"], "".join(words), count, index_mask(indices[1]) if indices else 0, used)


def _rest(total: Gres, entries: Sequence[Gres]) -> Gres | None:
    typed = sum(entry.count for entry in entries if entry.kind == total.kind)
    if typed and typed >= total.count:
        return None
    return replace(total, count=total.count - typed)


def index_mask(text: str) -> int:
    """Device indices as a bit mask: "0,2-3" -> 0b1101; "N/A" and "" -> 0. Raises UnreadableError."""
    mask = 0
    if text in NOTHING:
        return mask
    for part in text.split(","):
        low, _, high = part.partition("-")
        ends = (low, high or low)
        if not all(end.isascii() and end.isdigit() and len(end) < 8 for end in ends) or not (
            int(low) <= int(ends[1]) < MOST_DEVICES
        ):
            raise UnreadableError("not a list of device indices", text=text)
        for index in range(int(low), int(ends[1]) + 1):
            mask |= 1 << index
    return mask


def shared_devices(entries: Iterable[Gres], devices: int) -> tuple[int, int]:
    """How many of so many GPUs have shards or MPS out on them, and which, as a mask; the mask is 0 where that is not
    shown for every device.

    Parts that no device is shown for may lie on one device each.
    """
    most, mask = 0, 0
    for entry in entries:
        if entry.kind in SHARING and entry.count:
            busy = sum(1 << place for place, used in enumerate(entry.parts) if used)
            lost = max(entry.count - sum(entry.parts), 0)
            most = min(most + busy.bit_count() + lost, devices)
            mask |= busy if len(entry.parts) == devices <= MOST_INDEXED else 0
    return most, mask


def count_gpus(entries: Iterable[Gres]) -> int:
    """Whole GPUs: MIG devices are left out."""
    return sum(entry.count for entry in entries if entry.kind == "gpu" and not entry.mig)


def count_mig(entries: Iterable[Gres]) -> int:
    """MIG devices."""
    return sum(entry.count for entry in entries if entry.mig)


def count_kind(entries: Iterable[Gres], kind: str) -> int:
    """Entries of another kind, such as "shard", summed."""
    return sum(entry.count for entry in entries if entry.kind == kind)


def normal_form(entries: Iterable[Gres], kinds: Sequence[str] = ("gpu", "shard")) -> str:
    """The entries of these kinds as one text, equal ones summed, zeros dropped: "gpu:a100:4,gpu:h100:2"."""
    totals: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.kind in kinds:
            key = (entry.kind, entry.type)
            totals[key] = totals.get(key, 0) + entry.count
    return ",".join(
        f"{kind}:{gpu_type}:{count}" if gpu_type else f"{kind}:{count}"
        for (kind, gpu_type), count in sorted(totals.items())
        if count
    )
