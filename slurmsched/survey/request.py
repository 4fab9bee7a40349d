"""A request as sbatch options write it, and what it needs of one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmsched.errors import UnreadableError
from slurmsched.model import Snapshot
from slurmsched.model.gres import parse_gres
from slurmsched.model.hostlist import expand
from slurmsched.slurm.text import memory_mib
from slurmsched.survey.stranded import gives_memory

WHOLE = float("inf")  # memory: all that the node has


@dataclass(frozen=True, slots=True)
class Request:
    """One job. nodes: 0 = not given. gpus_per_node or gpus (of the whole job) is above zero.

    cpus_per_gpu: None = the partition's default. memory_mib (a node), memory_per_gpu_mib, memory_per_cpu_mib: None =
    not given; memory_mib of 0 is the whole node's. time_s: None = the partition's default.
    node_list, excluded: node names. constraint: in Slurm's grammar, see resources.constraints.
    user, account, qos: of a job that is known; "" = of who asks, and not known.
    """

    nodes: int = 0
    gpus_per_node: int = 0
    gpus: int = 0
    gpu_type: str = ""
    partition: str = ""
    cpus_per_task: int = 1
    cpus_per_gpu: int | None = None
    memory_mib: float | None = None
    memory_per_gpu_mib: float | None = None
    memory_per_cpu_mib: float | None = None
    time_s: float | None = None
    constraint: str = ""
    node_list: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    exclusive: bool = False
    user: str = ""
    account: str = ""
    qos: str = ""

    @property
    def least_nodes(self) -> int:
        """Nodes it takes at least: of a list of more nodes than asked for as many as asked for, as Slurm does."""
        return self.nodes or max(1, len(self.node_list))

    def text(self) -> str:
        """The options of sbatch that ask for the GPUs and nodes."""
        kind = f"{self.gpu_type}:" if self.gpu_type else ""
        nodes = f"--nodes={self.nodes} " if self.nodes else ""
        return f"{nodes}--gpus-per-node={kind}{self.gpus_per_node}" if self.gpus_per_node else (
            f"{nodes}--gpus={kind}{self.gpus}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a job of a partition gets that does not say. memory_*_mib: None = nothing is set."""

    cpus_per_gpu: int = 0
    memory_mib: float | None = None
    memory_per_cpu_mib: float | None = None
    memory_per_gpu_mib: float | None = None


def defaults(snapshot: Snapshot, partition: str) -> Defaults:
    """Those of the partition; what it does not set is the site's. Of memory the narrowest setting alone counts."""
    settings, partitions = snapshot.site.settings, snapshot.partitions
    told = next(
        (text for name, text in zip(partitions.name, partitions.defaults, strict=True) if name == partition), ""
    )
    site = ",".join(f"{key}={settings.get(key, '')}" for key in ("DefMemPerNode", "DefMemPerCPU"))
    ours, theirs = _pairs(told), _pairs(f"{site},{settings.get('JobDefaults', '')}")
    memory = ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode")
    level = next((found for found in (ours, theirs) if any(key in found for key in memory)), {})
    key = next((key for key in memory if key in level), "")
    value = {name: level[key] if name == key else None for name in memory}
    cpus = ours.get("DefCpuPerGPU", theirs.get("DefCpuPerGPU", 0))
    return Defaults(int(cpus), value["DefMemPerNode"], value["DefMemPerCPU"], value["DefMemPerGPU"])


def _pairs(text: str) -> dict[str, float]:
    """ "DefMemPerCPU=1000,DefCpuPerGPU=4" as numbers; what is none ("UNLIMITED", "(null)") is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): float(value) for name, _, value in pairs if value.strip().isdecimal()}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request takes of a node beside its GPUs: so much at least, and so much for each GPU.

    cpus: at least. memory_mib: None = memory is not given out; WHOLE = all of the node's. per_cpu: memory of each CPU.
    """

    cpus: int
    cpus_per_gpu: int
    memory_mib: float | None
    memory_per_gpu_mib: float
    memory_per_cpu_mib: float

    def cpus_for(self, gpus: int) -> int:
        return max(self.cpus, self.cpus_per_gpu * gpus)

    def memory_for(self, gpus: int) -> float:
        """[MiB]."""
        if self.memory_mib is None:
            return 0.0
        by_part = self.memory_per_gpu_mib * gpus + self.memory_per_cpu_mib * self.cpus_for(gpus)
        return max(self.memory_mib, by_part)


def needs(snapshot: Snapshot, request: Request) -> Needs:
    """What the request takes, with the defaults of its partition. A job with no memory given or set gets the node's."""
    default = defaults(snapshot, request.partition)
    per_gpu = default.cpus_per_gpu if request.cpus_per_gpu is None else request.cpus_per_gpu
    asked = (request.memory_mib, request.memory_per_gpu_mib, request.memory_per_cpu_mib)
    node, gpu, cpu = asked if asked != (None, None, None) else (
        default.memory_mib, default.memory_per_gpu_mib, default.memory_per_cpu_mib)  # fmt: skip
    if (node, gpu, cpu) == (None, None, None) or node == 0:
        node = WHOLE
    memory = (node or 0.0) if gives_memory(snapshot) else None
    return Needs(max(1, request.cpus_per_task), per_gpu, memory, gpu or 0.0, cpu or 0.0)


def as_submitted(snapshot: Snapshot, row: int, record: Mapping[str, str], exclusive: bool) -> Request | None:
    """What the job in this row asks for, as sbatch would write it. None where `fit` has no such form: no GPUs, GPUs of
    several types, parts of GPUs, or a reservation of its own.

    record: fields of `scontrol show job`, empty where it could not be read. exclusive: whether it wants whole nodes.
    """
    jobs = snapshot.jobs
    asked = parse_gres(jobs.gpu_request[row])
    many, gpus = max(1, int(jobs.nodes[row])), int(jobs.gpus[row])
    if len(asked) != 1 or asked[0].kind != "gpu" or asked[0].mig or not gpus or jobs.reservation[row]:
        return None
    by_node = "TresPerNode" in record or not any(key in record for key in _OF_JOB)
    fixed = many > 1 or record.get("NumNodes") == "1-1" or by_node
    even = by_node and gpus % many == 0
    return Request(
        nodes=many if fixed else 0,
        gpus_per_node=gpus // many if even else 0,
        gpus=0 if even else gpus,
        gpu_type=asked[0].type,
        partition=jobs.partition[row],
        cpus_per_task=_cpus(snapshot, row, record, fixed),
        cpus_per_gpu=_per_gpu(record.get("CpusPerTres", "")),
        **_memory(snapshot, row, record),
        time_s=float(jobs.time_limit_s[row]),
        constraint=jobs.features_asked[row],
        node_list=_hosts(jobs.nodes_asked[row]),
        excluded=_hosts(jobs.nodes_excluded[row]),
        exclusive=exclusive,
        user=jobs.user[row],
        account=jobs.account[row],
        qos=jobs.qos[row],
    )


_OF_JOB = ("TresPerJob", "TresPerTask", "TresPerSocket")


def _cpus(snapshot: Snapshot, row: int, record: Mapping[str, str], fixed: bool) -> int:
    """CPUs that it needs on each node."""
    jobs, task = snapshot.jobs, record.get("CPUs/Task", "")
    if not fixed and task.isdecimal():
        return max(1, int(task))  # its tasks may be on several nodes
    return max(1, -(-int(jobs.cpus[row]) // max(1, int(jobs.nodes[row]))))


def _per_gpu(text: str) -> int:
    """Of "gpu:4" or "gres/gpu:4": 4. 0 = not asked for; slurmctld has filled in its partition's by then."""
    count = text.rpartition(":")[2]
    return int(count) if count.isdecimal() else 0


def _memory(snapshot: Snapshot, row: int, record: Mapping[str, str]) -> dict[str, float | None]:
    """The one way in which it asks for memory [MiB]."""
    told = {
        "memory_per_gpu_mib": record.get("MemPerTres", "").rpartition(":")[2],
        "memory_per_cpu_mib": record.get("MinMemoryCPU", ""),
        "memory_mib": record.get("MinMemoryNode", ""),
    }
    for name, text in told.items():
        try:
            if text:
                return {name: memory_mib(text)}
        except UnreadableError:
            continue
    return {"memory_mib": float(snapshot.jobs.memory_mib[row]) / max(1, int(snapshot.jobs.nodes[row])) or None}


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return tuple(filter(None, expand(text)))
    except ValueError:
        return ()
