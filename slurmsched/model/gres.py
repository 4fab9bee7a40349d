"""One grammar for every gres and TRES text of Slurm, and the request of a job in one normal form.

    text   := "" | "(null)" | "N/A" | entry ("," entry)*
    entry  := ["gres:" | "gres/"] kind (":" type)? ((":" | "=") count)? ("(" remark ")")*
    type   := name | "(null)"                              (none: GPUs without Type, 20.11 to 25.11)
    count  := number ["K" | "M" | "G" | "T" | "P"]         (powers of 1024; 1 if left out)
    remark := "IDX:" indices | "S:" sockets | used "/" all ("," used "/" all)* | anything else

Source: Slurm's gres.conf, sbatch and scontrol manual pages, 20.11 to 26.05; tests/recorded/public.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from slurmsched.errors import UnreadableError
from slurmsched.model.hostlists import split_comma_list
from slurmsched.model.slurm_text import COUNT_UNITS

SHARING = ("shard", "mps")  # gres that share a GPU
NO_GRES = frozenset({"", "(null)", "N/A", "n/a", "none", "None", "(none)"})
_ENTRY = re.compile(
    r"(?:gres[:/])?(?P<kind>[A-Za-z_][^\s,:=()]*)"
    r"(?P<type>(?::(?:\w[\w.+@/~#-]*|\(null\)))*?)"
    r"(?:(?P<sep>[:=])(?P<count>\d+(?:\.\d+)?)(?P<unit>[KMGTPkmgtp]?))?"
    r"(?P<remarks>(?:\([^()]*\))*)"
)
_INDICES = re.compile(r"\(IDX:([^()]*)\)")
_PARTS = re.compile(r"\(((?:\d+|-)/\d+(?:,(?:\d+|-)/\d+)*)\)")  # "-": the device is held whole
MOST_COUNT = 2**53  # of any gres, counted in bytes or not
MOST_INDEXED = 63  # most GPUs of a node in a mask: bits of an int64 column
MOST_DEVICES = 4096  # of a node; higher indices and counts are not accepted
LONGEST_TEXT = 4096  # most characters of one text
_MIG = re.compile(r"(?:^|[^0-9a-z])\d+g[._]?\d+gb", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gres:
    """One entry: a count of a kind and type.

    mask: bit i is device index i, 0 = no indices are shown.
    parts: for shards and MPS the number in use on each device, () = not shown.
    sizes: for shards and MPS the number that each device has, () = not shown.
    """

    kind: str
    type: str = ""
    count: int = 1
    mask: int = 0
    parts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def mig(self) -> bool:
        """Whether this is a MIG device, which has no NVLink."""
        return self.kind == "gpu" and is_mig(self.type)


def is_mig(gpu_type: str) -> bool:
    """Whether a GPU type names a MIG profile: "1g.5gb", "a100_1g.5gb", "nvidia_a100_3g.20gb"."""
    return _MIG.search(gpu_type) is not None


@lru_cache(maxsize=1 << 16)
def parse_gres(text: str, *, counted: bool = False) -> tuple[Gres, ...]:
    """The entries of a gres or TRES text in their order, zeros included.

    A TRES text may have typed and untyped keys ("gres/gpu:a100=2,gres/gpu=3"). The untyped one keeps the rest (1), so
    that a sum counts every device once.

    counted: every entry must have a count, as entries of gres in use have.
    Raises UnreadableError for text outside the grammar.
    """
    if text in NO_GRES:
        return ()
    if len(text) > LONGEST_TEXT:
        raise UnreadableError("not a gres or TRES text: too long", text=text[:100])
    entries: list[Gres] = []
    totals: list[Gres] = []
    for part in split_comma_list(text, "()"):
        match = _ENTRY.fullmatch(part.strip())
        if match is None:
            raise UnreadableError("not a gres or TRES text", text=text)
        if counted and match["count"] is None:
            raise UnreadableError("not a count of gres in use", text=text)
        entry = _entry(match)
        (totals if match["sep"] == "=" and not entry.type else entries).append(entry)
    return tuple(entries + [rest for total in totals if (rest := _untyped_rest(total, entries))])


def _entry(match: re.Match[str]) -> Gres:
    number, unit = match["count"], COUNT_UNITS[(match["unit"] or "").upper()]
    if number is not None and float(number) * unit >= MOST_COUNT:
        raise UnreadableError("not a count of gres", text=match[0][:100])
    count = 1 if number is None else int(float(number) * unit)
    words = [word for word in match["type"].split(":") if word not in ("", "(null)", "no_consume")]
    indices, parts = _INDICES.search(match["remarks"]), _PARTS.search(match["remarks"])
    shown = [part.partition("/") for part in parts[1].split(",")] if parts else []
    used = tuple(0 if part[0] == "-" else int(part[0][:18]) for part in shown)
    sizes = tuple(int(part[2][:18]) for part in shown)
    if len(words) > 1:
        raise UnreadableError("not a gres or TRES text", text=match[0])
    return Gres(match["kind"], "".join(words), count, index_mask(indices[1]) if indices else 0, used, sizes)


def _untyped_rest(total: Gres, entries: Sequence[Gres]) -> Gres | None:
    typed = sum(entry.count for entry in entries if entry.kind == total.kind)
    if typed and typed >= total.count:
        return None
    return replace(total, count=total.count - typed)


def index_mask(text: str) -> int:
    """Device indices as a bit mask: "0,2-3" -> 0b1101; "N/A" and "" -> 0. Raises UnreadableError."""
    mask = 0
    if text in NO_GRES:
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
    """The number of GPUs with shards or MPS in use, and a mask of them; the mask is 0 if not every device is shown.

    Parts without a device may be on one device each.

    devices: number of GPUs.
    """
    most, mask = 0, 0
    for entry in entries:
        if entry.kind in SHARING and entry.count:
            busy = sum(1 << place for place, used in enumerate(entry.parts) if used)
            lost = max(entry.count - sum(entry.parts), 0)
            most = min(most + busy.bit_count() + lost, devices)
            mask |= busy if len(entry.parts) == devices <= MOST_INDEXED else 0
    return most, mask


def shards_by_device(entries: Iterable[Gres], devices: int) -> str:
    """Shards in use and in all on each GPU, as "2/4,0/4", of MPS as "mps:50/100,0/100".

    "" if they are not shown for every GPU, or the node has both.

    entries: in use on the node.
    devices: number of GPUs.
    """
    shown = [entry for entry in entries if entry.kind in SHARING]
    if len(shown) != 1 or len(shown[0].parts) != devices or sum(shown[0].parts) != shown[0].count:
        return ""
    text = ",".join(f"{used}/{size}" for used, size in zip(shown[0].parts, shown[0].sizes, strict=True))
    return text if shown[0].kind == SHARING[0] else f"{shown[0].kind}:{text}"


@lru_cache(maxsize=1 << 12)
def device_shards(text: str) -> tuple[tuple[int, int], ...]:
    """The reverse of shards_by_device: shards in use and in all on each GPU."""
    pairs = (part.split("/") for part in text.rpartition(":")[2].split(",") if part)
    return tuple((int(used), int(size)) for used, size in pairs)


def sharing_kind(text: str) -> str:
    """Whether a text of shards_by_device, or a request such as "mps:50", is of "shard" or "mps"; "" for no text."""
    kind, colon, _ = text.partition(":")
    return (kind if colon else SHARING[0]) if text else ""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """The part of one GPU that a job holds by shards or MPS.

    node: name of its node.
    gpu: index of the GPU there.
    milli: that part [1/1000].
    """

    node: str
    gpu: int
    milli: int


def shared_part(node: str, entries: Iterable[Gres]) -> SharedPart | None:
    """Where a job has its shards or MPS of one node; None if that is not shown, or it is on several GPUs."""
    shown = [entry for entry in entries if entry.kind in SHARING and entry.count]
    held = [(gpu, used) for entry in shown for gpu, used in enumerate(entry.parts) if used]
    if len(shown) != 1 or len(held) != 1 or not (size := shown[0].sizes[held[0][0]]):
        return None
    return SharedPart(node, held[0][0], min(1000 * held[0][1] // size, 1000))


def count_gpus(entries: Iterable[Gres]) -> int:
    """The number of whole GPUs, without MIG devices."""
    return sum(entry.count for entry in entries if entry.kind == "gpu" and not entry.mig)


def count_mig(entries: Iterable[Gres]) -> int:
    """MIG devices."""
    return sum(entry.count for entry in entries if entry.mig)


def count_kind(entries: Iterable[Gres], kind: str) -> int:
    """The sum of entries of another kind, such as "shard"."""
    return sum(entry.count for entry in entries if entry.kind == kind)


def normal_form(entries: Iterable[Gres], kinds: Sequence[str] = ("gpu", *SHARING)) -> str:
    """The entries of these kinds as one text, equal ones summed, without zeros: "gpu:a100:4,gpu:h100:2"."""
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


# The GPUs that a job requests.

KINDS = ("gpu", *SHARING)


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What one job (one array task, one het component) requests or holds on all its nodes together.

    gpus: whole GPUs.
    mig_devices: MIG devices, counted separately.
    shards: parts of shared GPUs, by shards or MPS.
    text: normal form, e.g. "gpu:h100:2,gpu:h200:4"; "" for a job without GPUs.
    by: unit of the option, "job", "task", "socket" or "node"; "" = unknown.
    """

    gpus: int = 0
    mig_devices: int = 0
    shards: int = 0
    text: str = ""
    by: str = field(default="", compare=False)

    @classmethod
    def of(cls, entries: Iterable[Gres]) -> GpuRequest:
        """The request that these entries make up."""
        entries = tuple(entries)
        shards = sum(count_kind(entries, kind) for kind in SHARING)
        return cls(count_gpus(entries), count_mig(entries), shards, normal_form(entries, KINDS))


NO_REQUEST = GpuRequest()


@dataclass(frozen=True, slots=True)
class RequestForms:
    """A job's request as Slurm keeps it: one TRES text for each option.

    per_job: --gpus.
    per_task: --gpus-per-task.
    per_socket: --gpus-per-socket.
    per_node: --gres, --gpus-per-node.
    tres: ReqTRES. It has GPUs only if AccountingStorageTRES lists them, and may have too few. It is used if the other
        texts are empty.
    nodes, tasks, sockets: least numbers requested; sockets are those of one node.
    """

    per_job: str = ""
    per_task: str = ""
    per_socket: str = ""
    per_node: str = ""
    tres: str = ""
    nodes: int = 1
    tasks: int = 1
    sockets: int = 1

    @property
    def texts(self) -> tuple[str, ...]:
        """Its TRES texts."""
        return (self.per_job, self.per_task, self.per_socket, self.per_node, self.tres)


def read_request_forms(forms: RequestForms) -> GpuRequest:
    """What the job requests. If several options name a kind, the first of these counts: job, task, socket, node.

    Raises UnreadableError for text outside the grammar of this module.
    Source: sbatch manual page, options --gpus ... --gres. --gpus is the total of the job.
    """
    nodes = max(forms.nodes, 1)
    ways = (
        ("job", forms.per_job, 1),
        ("task", forms.per_task, max(forms.tasks, 1)),
        ("socket", forms.per_socket, max(forms.sockets, 1) * nodes),
        ("node", forms.per_node, nodes),
        ("", forms.tres, 1),
    )
    entries, by = list[Gres](), dict[str, str]()
    for kind in KINDS:
        found = ((way, _multiplied(text, factor, kind)) for way, text, factor in ways if kind in text)
        by[kind], some = next(((way, some) for way, some in found if some), ("", []))
        entries += some
    return replace(GpuRequest.of(entries), by=by["gpu"]) if entries else NO_REQUEST


def _multiplied(text: str, factor: int, kind: str) -> list[Gres]:
    """The entries of that kind, with their counts multiplied."""
    return [
        replace(entry, count=entry.count * factor)
        for entry in parse_gres(text)
        if entry.kind == kind and entry.count > 0
    ]
