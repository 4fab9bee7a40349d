"""What Slurm's own choice of GPUs depends on, read for the nodes of interest: sockets, cores in use, gres.conf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.config import Config
from slurmsched.errors import SlurmschedError, UnreadableError
from slurmsched.model.gres import index_mask
from slurmsched.model.hostlist import fold
from slurmsched.model.jobs import Jobs
from slurmsched.model.snapshot import Site, Snapshot
from slurmsched.model.states import JobState
from slurmsched.slurm.commands import Commands, node_batches
from slurmsched.slurm.job_records import DETAIL, JobRecord, ask_jobs
from slurmsched.slurm.job_table import expand_hosts
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.text import MOST_COUNT, whole
from slurmsched.slurm.wiring import read_gres
from slurmsched.topology.picker import UNKNOWN, Version, pick, read_version
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.slurm_node import GpuRequest, SlurmNode
from slurmsched.topology.slurm_site import Shape, slurm_node

RUNS = JobState.RUNNING | JobState.SUSPENDED | JobState.COMPLETING  # what holds CPUs
FIRST, LAST = (21, 8), (26, 5)  # releases whose choice is known


@dataclass(frozen=True, slots=True)
class Picks:
    """Slurm's choice on the nodes it is known for. why: what keeps it from being known, "" = nothing does."""

    version: Version
    nodes: Mapping[str, SlurmNode]
    free_cores: Mapping[str, Sequence[int]]
    why: str = ""

    def __call__(self, request: GpuRequest) -> Callable[[str, int, int], int]:
        """The picker of one request: node, mask of free GPUs, GPUs -> mask or UNKNOWN."""

        def of(name: str, free: int, gpus: int) -> int:
            node, cores = self.nodes.get(name), self.free_cores.get(name)
            if node is None or cores is None:
                return UNKNOWN
            return pick(node, replace(request, count=gpus), free, cores, self.version)

        return of


def read_picks(config: Config, snapshot: Snapshot, names: Sequence[str]) -> Picks:
    """What is known of these nodes; never raises: where something cannot be read, Slurm's choice is not known."""
    version, why = known_version(snapshot.site)
    if why or not names:
        return Picks(version, {}, {}, why)
    try:
        commands = open_commands(config.slurm)
        shapes = read_shapes(commands, names)
        classes = read_gres(config.topology, snapshot.site).classes
        nodes = {name: node for name in names if (node := node_of(name, classes, shapes.get(name))) is not None}
        return Picks(version, nodes, _free(commands, snapshot, nodes), "" if nodes else NO_FILE)
    except SlurmschedError as error:
        return Picks(version, {}, {}, str(error))


NO_FILE = "no gres.conf with a File line for each GPU can be read here"


def known_version(site: Site) -> tuple[Version, str]:
    """Slurm's version, and why its choice of GPUs is not known; "" if it is."""
    version = read_version(site.version)
    if not FIRST <= version[:2] <= LAST:
        return version, f"how Slurm {site.version} picks GPUs is not known"
    chosen = site.settings.get("SelectTypeParameters", "CR_CORE").upper()
    return version, "" if "CR_CORE" in chosen else f"not known with SelectTypeParameters={chosen}"


def read_shapes(commands: Commands, names: Sequence[str]) -> dict[str, Shape]:
    """Sockets, cores of each and threads of each core, by node; other rows are left out. Raises SlurmError."""
    lists = node_batches(fold(names))
    text = "\n".join(commands.run("sinfo", "-h", "-N", "-n", listed, "-o", "%N %X %Y %Z") for listed in lists)
    found: dict[str, Shape] = {}
    for name, *words in filter(None, (line.split() for line in text.splitlines())):
        counts = [whole(word, most=MOST_COUNT) for word in words]
        if len(counts) == 3 and all(counts):
            found[name] = (counts[0], counts[1], counts[2])
    return found


def node_of(name: str, classes: Sequence[NodeClass], shape: Shape | None) -> SlurmNode | None:
    """The node as slurmctld has it, by the first class that names it; None where that is not known."""
    one = next((one for one in classes if not one.nodes or name in one.nodes), None)
    try:
        return None if one is None or shape is None else slurm_node(one, shape)
    except SlurmschedError:
        return None  # it detects its GPUs, or has several types: another rule picks


def _free(commands: Commands, snapshot: Snapshot, nodes: Mapping[str, SlurmNode]) -> dict[str, list[int]]:
    """Free cores of each socket, of nodes where jobs show as many CPUs as Slurm counts. Raises SlurmError."""
    used = dict(zip(snapshot.nodes.name, snapshot.nodes.cpus_used.tolist(), strict=True))
    held = held_cpus(commands, snapshot.jobs) if any(used[name] for name in nodes) else {}
    found = {}
    for name, node in nodes.items():
        cpus = held.get(name, 0)
        if cpus.bit_count() == used[name]:
            found[name] = free_cores(node, cpus)
    return found


def held_cpus(commands: Commands, jobs: Jobs) -> dict[str, int]:
    """By node the CPUs that jobs hold, as a mask; a job whose record is in doubt shows none. Raises SlurmError."""
    rows = np.flatnonzero(jobs.is_state(RUNS)).tolist()
    answer = ask_jobs(commands, {int(jobs.job_id[row]): jobs.name[row] for row in rows}, len(jobs)) if rows else None
    return union(cpus_of(record) for record in answer.records.values()) if answer else {}


def cpus_of(record: JobRecord) -> dict[str, int]:
    """By node the CPUs that one job's record shows, as a mask; none where it names other nodes than it has."""
    found: dict[str, int] = {}
    try:
        nodes = frozenset(expand_hosts(record.node_list))
        for hosts, cpus, _ in DETAIL.findall(record.facts):
            for name in expand_hosts(hosts, len(nodes)):
                if name not in nodes or name in found:
                    return {}
                found[name] = index_mask(cpus)
    except UnreadableError:
        return {}
    return found


def union(held: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The masks of several jobs as one."""
    found: dict[str, int] = {}
    for job in held:
        for name, cpus in job.items():
            found[name] = found.get(name, 0) | cpus
    return found


def free_cores(node: SlurmNode, held: int) -> list[int]:
    """Cores of each socket of which no CPU is held. held: mask of CPUs, numbered core by core."""
    threads, each = node.cpus_per_core, node.cores_per_socket
    taken = [bool(held >> core * threads & (1 << threads) - 1) for core in range(node.sockets * each)]
    return [each - sum(taken[s * each : (s + 1) * each]) for s in range(node.sockets)]
