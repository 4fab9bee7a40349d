"""Nodes with other GPUs for the live tests: gres.conf of some machines, jobs on their GPUs, the indices Slurm gave."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurmsched.model.gres import index_mask
from slurmsched.topology.slurm_selection import GpuOption, NodeGpuRequest, SlurmNode
from tests.live.lab import run

GRES_CONF = Path("/etc/slurm/gres.conf")
SOCKETS, CORES = 2, 32  # of every node of the lab, a core is a CPU
HALVES = (0, 0, 0, 0, 1, 1, 1, 1)


@dataclass(frozen=True)
class Gpus:
    """Eight GPUs of a node. sockets: of each, -1 = the cores of all. links: rows, () = no Links in any line.

    A line without Cores would not do for -1: slurmctld keeps the Cores that it last heard of.
    """

    sockets: Sequence[int]
    links: Sequence[Sequence[int]] = ()

    @property
    def cores(self) -> list[range]:
        return [range(s * CORES, (s + 1) * CORES) if s >= 0 else range(SOCKETS * CORES) for s in self.sockets]

    @property
    def node(self) -> SlurmNode:
        return SlurmNode.build(self.cores, self.links, sockets=SOCKETS, cores_per_socket=CORES)

    def conf(self, name: str) -> str:
        """The lines of gres.conf for the node of that name."""
        lines = []
        for g, cores in enumerate(self.cores):
            text = f"NodeName={name} Name=gpu Type=a100 File=/dev/fakegpu{g}"
            text += f" Cores={cores[0]}-{cores[-1]}"
            text += f" Links={','.join(map(str, self.links[g]))}" if self.links else ""
            lines.append(text + "\n")
        return "".join(lines)


def rows(lanes: Mapping[tuple[int, int], int], other: int = 0, gpus: int = 8) -> list[list[int]]:
    """Links rows from the lanes of pairs; every other pair has `other`."""
    both = {**lanes, **{(b, a): n for (a, b), n in lanes.items()}}
    return [[-1 if a == b else both.get((a, b), other) for b in range(gpus)] for a in range(gpus)]


# NVIDIA DGX-1 with V100, the hybrid cube mesh: NVIDIA, DGX-1 With Tesla V100 System Architecture, WP-08437, figure 4.
DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
MESH = rows(dict.fromkeys(DOUBLE, 2) | dict.fromkeys(SINGLE, 1))
SWITCH = rows({}, 12)
BRIDGES = rows({(0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4})
MACHINES = {"mesh": Gpus(HALVES, MESH), "nvswitch": Gpus(HALVES, SWITCH), "bridges": Gpus(HALVES, BRIDGES),
            "pcie": Gpus(HALVES)}  # fmt: skip


def install(nodes: Mapping[str, Gpus]) -> None:
    """Give these nodes of the lab those GPUs and wait until they run jobs again."""
    GRES_CONF.write_text("".join(gpus.conf(name) for name, gpus in nodes.items()))
    restart()


def restart() -> None:
    """Have slurmctld and the nodes read gres.conf again."""
    for command in (("restart", "slurmctld"), ("restart", "slurmd"), ("wait-ready",)):
        run("labctl", *command)


def options(request: NodeGpuRequest) -> list[str]:
    """The request in the words of the command line."""
    words = [f"--{request.form}={request.count}", f"-c{request.cpus_per_task}"]
    words += [f"-n{request.tasks}"] if request.tasks else []
    words += [f"--sockets-per-node={request.sockets}"] if request.sockets else []
    return words + (["--gres-flags=enforce-binding"] if request.bound else [])


@dataclass
class Holding:
    """The allocations made on one node of the lab: which GPUs and cores each job holds."""

    name: str
    gpus: dict[int, int] = field(default_factory=dict)
    cpus: dict[int, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return 0xFF & ~sum(self.gpus.values())

    @property
    def free_cores(self) -> list[int]:
        held = sum(self.cpus.values())
        return [CORES - (held >> s * CORES & (1 << CORES) - 1).bit_count() for s in range(SOCKETS)]

    def ask(self, request: NodeGpuRequest) -> int | None:
        """The job that got what it asked for, at once; None if it did not fit."""
        made = run("salloc", "--no-shell", "--immediate=1", "-N1", f"-w{self.name}", "--mem=1",
                   *options(request), check=False)  # fmt: skip
        granted = re.search(r"Granted job allocation (\d+)", made.err)
        if granted is None:
            return None
        job = int(granted[1])
        shown = run("scontrol", "-d", "show", "job", str(job)).out
        index, cpus = re.search(r"IDX:([0-9,-]+)", shown), re.search(r"CPU_IDs=([0-9,-]+)", shown)
        assert index and cpus, shown
        self.gpus[job], self.cpus[job] = index_mask(index[1]), index_mask(cpus[1])
        return job

    def cores_of(self, job: int) -> list[int]:
        """Cores of the job on each socket."""
        return [(self.cpus[job] >> s * CORES & (1 << CORES) - 1).bit_count() for s in range(SOCKETS)]

    def forget(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            del self.gpus[job], self.cpus[job]


def end(holdings: Iterable[Holding], jobs: Sequence[int]) -> None:
    """End jobs and wait until their GPUs are free."""
    if not jobs:
        return
    run("scancel", "-Q", *map(str, jobs))
    late = time.monotonic() + 30
    while set(map(int, run("squeue", "-h", "-t", "R,CG", "-o", "%A").out.split())) & set(jobs):
        assert time.monotonic() < late, "cancelled jobs do not end"
        time.sleep(0.02)
    for holding in holdings:
        holding.forget([job for job in jobs if job in holding.gpus])


def requests(counts: Iterable[int] = range(1, 9)) -> list[NodeGpuRequest]:
    """Every form of request that the test draws from."""
    made = []
    for count, bound in itertools.product(counts, (False, True)):
        for form in (GpuOption.PER_NODE, GpuOption.PER_JOB):
            made += [NodeGpuRequest(form, count, cpus_per_task=cpus, bound=bound) for cpus in (1, 4, 20)]
            made += [NodeGpuRequest(form, count, tasks, bound=bound) for tasks in (1, 2, 3, 4)]
    for each, tasks, bound in itertools.product((1, 2, 3), (1, 2, 3, 4), (False, True)):
        made.append(NodeGpuRequest(GpuOption.PER_TASK, each, tasks, bound=bound))
        made.append(NodeGpuRequest(GpuOption.PER_TASK, each, tasks, cpus_per_task=6, bound=bound))
    for each, sockets, bound in itertools.product((1, 2, 3, 4), (1, 2), (False, True)):
        made.append(NodeGpuRequest(GpuOption.PER_SOCKET, each, sockets=sockets, bound=bound))
    return made


def leave_free(holding: Holding, free: int) -> None:
    """Hold every GPU of an empty node but these, one job a GPU."""
    while holding.free:
        assert holding.ask(NodeGpuRequest(GpuOption.PER_NODE, 1))
    end([holding], [job for job, gpus in holding.gpus.items() if gpus & free])
