"""The GPUs a job asks for, whatever form it used, in one normal form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slurmsched.model.gres import Gres, count_gpus, count_kind, count_mig, normal_form, parse_gres

KINDS = ("gpu", "shard")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What one job (one array task, one het component) asks or holds on all its nodes together.

    gpus: whole GPUs. mig_devices: MIG slices, counted apart. shards: parts of shared GPUs.
    text: normal form, e.g. "gpu:h100:2,gpu:h200:4"; "" for a job without GPUs. by: what the option counts GPUs by,
    "job", "task", "socket" or "node"; "" = not known.
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
        return cls(count_gpus(entries), count_mig(entries), count_kind(entries, "shard"), normal_form(entries, KINDS))


NO_REQUEST = GpuRequest()


@dataclass(frozen=True, slots=True)
class Forms:
    """A job's request as Slurm keeps it: one TRES text for each option it may have used.

    per_job: --gpus. per_task: --gpus-per-task. per_socket: --gpus-per-socket. per_node: --gres and
    --gpus-per-node. tres: ReqTRES, which knows GPUs only where AccountingStorageTRES lists them and
    may count less than is asked; taken when no option tells. nodes, tasks, sockets (a node): least asked.
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


def asked(forms: Forms) -> GpuRequest:
    """What the job asks for. Where several options name a kind the narrowest total wins: job, task, socket, node.

    Raises UnreadableError for text outside the grammar of gres.py.
    Source: sbatch manual page, options --gpus ... --gres; a job's --gpus is its total however it is spread.
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
        found = ((way, _times(text, factor, kind)) for way, text, factor in ways if kind in text)
        by[kind], some = next(((way, some) for way, some in found if some), ("", []))
        entries += some
    return replace(GpuRequest.of(entries), by=by["gpu"]) if entries else NO_REQUEST


def _times(text: str, factor: int, kind: str) -> list[Gres]:
    """The entries of that kind, as often as the option counts."""
    return [
        replace(entry, count=entry.count * factor)
        for entry in parse_gres(text)
        if entry.kind == kind and entry.count > 0
    ]
