"""Names that a person gives of nodes, partitions and GPU types, against those that the cluster has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurmsched.errors import InputError, UnreadableError
from slurmsched.model import Snapshot
from slurmsched.model.gres import parse_gres
from slurmsched.model.hostlists import expand_hostlist, expand_or_none
from slurmsched.model.slurm_text import memory_mib
from slurmsched.observe.survey.gpu_overview import gives_memory
from slurmsched.resources.job_request import request_of
from slurmsched.topology.topology_text import fold_names


def named_hosts(option: str, text: str) -> tuple[str, ...]:
    """The node names of a hostlist, in its order, each once. Raises InputError for what is none."""
    try:
        found = tuple(dict.fromkeys(expand_hostlist(text)))
    except ValueError as error:
        raise InputError(f"{option} {text!r}: {error}; write one such as n[1-4]") from error
    if text and not any(found):
        raise InputError(f"{option} {text!r}: names no node; write one such as n[1-4]")
    return found


def check_nodes(option: str, asked: Iterable[str], there: Iterable[str]) -> None:
    """Raises InputError for nodes that the cluster does not have; sbatch refuses them too."""
    if unknown := set(asked) - set(there):
        raise InputError(f"{option}: the cluster has no {fold_names(sorted(unknown))}")


def check_name(option: str, asked: str, there: Iterable[str]) -> None:
    """Raises InputError for a name that is none of these; "" stands for none."""
    known = sorted({name for name in there if name})
    if asked and asked not in known:
        raise InputError(f"{option} {asked}: there is {', '.join(known) or 'none'}")


# A request as sbatch options write it.

WHOLE_MEMORY = float("inf")  # memory: all that the node has


@dataclass(frozen=True, slots=True)
class SbatchRequest:
    """One job.

    gpus_per_node, gpus: on each node, or of the whole job; one of them is above zero.
    nodes: 0 = not given.
    cpus_per_gpu: None = the partition's default.
    memory_mib: of a node, None = not given, 0 = the whole node's.
    memory_per_gpu_mib, memory_per_cpu_mib: None = not given.
    time_s: None = the partition's default.
    node_list, excluded: node names.
    constraint: in Slurm's grammar, see resources.feature_constraints.
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
class PartitionDefaults:
    """What a job of a partition gets that does not say. memory_*_mib: None = nothing is set."""

    cpus_per_gpu: int = 0
    memory_mib: float | None = None
    memory_per_cpu_mib: float | None = None
    memory_per_gpu_mib: float | None = None


def partition_defaults(snapshot: Snapshot, partition: str) -> PartitionDefaults:
    """Those of the partition; what it does not set is the site's. Of memory the narrowest setting alone counts."""
    settings, partitions = snapshot.site.settings, snapshot.partitions
    own = next((text for name, text in zip(partitions.name, partitions.defaults, strict=True) if name == partition), "")
    site = ",".join(f"{key}={settings.get(key, '')}" for key in ("DefMemPerNode", "DefMemPerCPU"))
    ours, theirs = _parsed_pairs(own), _parsed_pairs(f"{site},{settings.get('JobDefaults', '')}")
    memory = ("DefMemPerGPU", "DefMemPerCPU", "DefMemPerNode")
    level = next((found for found in (ours, theirs) if any(key in found for key in memory)), {})
    key = next((key for key in memory if key in level), "")
    value = {name: level[key] if name == key else None for name in memory}
    cpus = ours.get("DefCpuPerGPU", theirs.get("DefCpuPerGPU", 0))
    return PartitionDefaults(int(cpus), value["DefMemPerNode"], value["DefMemPerCPU"], value["DefMemPerGPU"])


def _parsed_pairs(text: str) -> dict[str, float]:
    """ "DefMemPerCPU=1000,DefCpuPerGPU=4" as numbers; what is none ("UNLIMITED", "(null)") is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): float(value) for name, _, value in pairs if value.strip().isdecimal()}


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What a request takes of a node beside its GPUs: so much at least, and so much for each GPU.

    cpus: at least.
    memory_mib: None = memory is not given out; WHOLE = all of the node's.
    per_cpu: memory of each CPU.
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


def node_needs(snapshot: Snapshot, request: SbatchRequest) -> NodeNeeds:
    """The needs of the request, with the defaults of its partition. If no memory is given or set, a job gets the
    node's."""
    default = partition_defaults(snapshot, request.partition)
    per_gpu = default.cpus_per_gpu if request.cpus_per_gpu is None else request.cpus_per_gpu
    asked = (request.memory_mib, request.memory_per_gpu_mib, request.memory_per_cpu_mib)
    node, gpu, cpu = asked if asked != (None, None, None) else (
        default.memory_mib, default.memory_per_gpu_mib, default.memory_per_cpu_mib)  # fmt: skip
    if (node, gpu, cpu) == (None, None, None) or node == 0:
        node = WHOLE_MEMORY
    memory = (node or 0.0) if gives_memory(snapshot) else None
    return NodeNeeds(max(1, request.cpus_per_task), per_gpu, memory, gpu or 0.0, cpu or 0.0)


# Over 30 lines: one line for each option of the request.
def submitted_request(snapshot: Snapshot, row: int, record: Mapping[str, str]) -> SbatchRequest | None:
    """What the job in this row asks for, as sbatch would write it. None where `fit` has no such form: no GPUs, GPUs of
    several types, parts of GPUs, or a reservation of its own.

    record: fields of `scontrol show job`, empty where it could not be read.
    """
    jobs = snapshot.jobs
    asked = parse_gres(jobs.gpu_request[row])
    many, gpus = max(1, int(jobs.nodes[row])), int(jobs.gpus[row])
    if len(asked) != 1 or asked[0].kind != "gpu" or asked[0].mig or not gpus or jobs.reservation[row]:
        return None
    by_node = "TresPerNode" in record or not any(key in record for key in _OF_JOB)
    fixed = many > 1 or record.get("NumNodes") == "1-1" or by_node
    even = by_node and gpus % many == 0
    return SbatchRequest(
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
        exclusive=request_of(snapshot, row, record).whole,
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
    given = {
        "memory_per_gpu_mib": record.get("MemPerTres", "").rpartition(":")[2],
        "memory_per_cpu_mib": record.get("MinMemoryCPU", ""),
        "memory_mib": record.get("MinMemoryNode", ""),
    }
    for name, text in given.items():
        try:
            if text:
                return {name: memory_mib(text)}
        except UnreadableError:
            continue
    return {"memory_mib": float(snapshot.jobs.memory_mib[row]) / max(1, int(snapshot.jobs.nodes[row])) or None}


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, expand_or_none(text) or ()))
