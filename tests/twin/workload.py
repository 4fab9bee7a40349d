"""A random workload for the lab: sizes, limits, arrays, dependencies, a QOS with limits, cancellations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from slurmsched.sim.cluster_layout import ClusterLayout, LimitSpec, NodeSpec, PartitionSpec

USERS = ("alice", "bob", "carol", "dave")
QOS = LimitSpec("twin", max_jobs_per_user=2, group_gpus=6)
LAYOUT = ClusterLayout(
    tuple(NodeSpec(f"n{n}", 8, 64, 512_000.0) for n in range(1, 5)),
    (PartitionSpec("gpu"), PartitionSpec("short")),
    qos=(QOS,),
)
CPUS_PER_GPU, MIB_PER_NODE = 4, 1024.0
SLEEP_S = (0.6, 3.6)


@dataclass(frozen=True)
class Submission:
    """One sbatch: at_s after the begin. after: place of the submission it depends on, -1 = none."""

    at_s: float
    user: str
    gpus: int
    sleep_s: float
    limit_min: int
    partition: str = "gpu"
    qos: str = ""
    tasks: int = 1
    after: int = -1
    cancel_s: float = 0.0  # after its submission, 0 = never
    account: str = ""
    throttle: int = 0  # tasks that may run at once, 0 = all
    node_count: int = 0  # 0 = as few as hold the GPUs
    cpus: int = 0  # on each node, 0 = by its GPUs
    gpu_type: str = ""
    constraint: str = ""
    licenses: str = ""
    exclusive: bool = False

    @property
    def nodes(self) -> int:
        return self.node_count or max(1, self.gpus // 8)

    @property
    def cpus_per_node(self) -> int:
        return self.cpus or CPUS_PER_GPU * (self.gpus // self.nodes)

    def command(self, ids: Sequence[int]) -> list[str]:
        """The sbatch command; ids: of the submissions before."""
        each, of_type = self.gpus // self.nodes, f"{self.gpu_type}:" if self.gpu_type else ""
        options = [
            f"--nodes={self.nodes}", f"--gpus-per-node={of_type}{each}", "--ntasks-per-node=1",
            "--mem=1G", "--output=/dev/null",
            f"--cpus-per-task={self.cpus_per_node}", f"--time={self.limit_min}", f"--partition={self.partition}",
        ]  # fmt: skip
        options += [f"--qos={self.qos}"] if self.qos else []
        options += [f"--account={self.account}"] if self.account else []
        at_once = f"%{self.throttle}" if self.throttle else ""
        options += [f"--array=1-{self.tasks}{at_once}"] if self.tasks > 1 else []
        options += [f"--constraint={self.constraint}"] if self.constraint else []
        options += [f"--licenses={self.licenses}"] if self.licenses else []
        options += ["--exclusive"] if self.exclusive else []
        options += [f"--dependency=afterany:{ids[self.after]}"] if self.after >= 0 else []
        return ["sbatch", "--parsable", *options, f"--wrap=sleep {self.sleep_s}"]


def workload(jobs: int, seed: int, over_s: float, stretch: float = 1.0) -> list[Submission]:
    """Submissions over over_s * stretch seconds that make at least `jobs` jobs, all kinds among them.

    stretch: run times, and the time over which jobs come, are this many times longer.
    """
    draw, made, count = random.Random(seed), list[Submission](), 0
    while count < jobs:
        at_s = stretch * over_s * (count + draw.random()) / jobs
        made.append(_submission(draw, len(made), at_s, stretch))
        count += made[-1].tasks
    return made


def _submission(draw: random.Random, place: int, at_s: float, stretch: float) -> Submission:
    kind, gpus = draw.random(), draw.choices([1, 2, 4, 8, 16], [40, 20, 17, 15, 8])[0]
    tasks, limited = draw.randint(3, 6) if kind < 0.05 else 1, 0.05 <= kind < 0.15
    return Submission(
        at_s=at_s,
        user=draw.choice(USERS),
        gpus=min(gpus, 2) if tasks > 1 or limited else gpus,
        sleep_s=round(stretch * draw.uniform(*SLEEP_S), 1),
        limit_min=draw.choice([1, 1, 2, 3, 5, 10]),
        partition=draw.choices(["gpu", "short"], [3, 1])[0],
        qos=QOS.name if limited else "",
        tasks=tasks,
        after=draw.randrange(max(0, place - 20), place) if 0.15 <= kind < 0.25 and place else -1,
        cancel_s=stretch * draw.uniform(0.0, 20.0) if 0.25 <= kind < 0.30 else 0.0,
    )
