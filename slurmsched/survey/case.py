"""What the rules of `advise` look at: the queue, how each job asks, and the node each is measured by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.asked import Asked
from slurmsched.model.gres import parse_gres
from slurmsched.model.hostlist import expand
from slurmsched.model.topology import GpuTopology
from slurmsched.placements.gpu_stock import class_of, class_rows
from slurmsched.survey.stranded import gives_memory

ENDLESS_S = 86_400.0  # what a job without a time limit counts as
Shares = Mapping[str, tuple[float, float]]  # class -> share of best picks by --gpus-per-node and by --gpus


@dataclass(frozen=True)
class Case:
    """usual_s: as slurm.usual, empty where it is not known. shares: where Slurm's own choice of GPUs is known.
    preempted: whether running jobs may be stopped and requeued."""

    snapshot: Snapshot
    asked: Asked
    usual_s: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)
    preempted: bool = False

    @cached_property
    def rows(self) -> list[int]:
        """Rows of the jobs that wait or run."""
        jobs = self.snapshot.jobs
        return np.flatnonzero(jobs.pending | jobs.running).tolist()

    @cached_property
    def _row_asked(self) -> dict[int, int]:
        return {job: row for row, job in enumerate(self.asked.job_id.tolist())}

    def how(self, row: int) -> int:
        """Row of the job in `asked`, -1 if it is not there."""
        return self._row_asked.get(int(self.snapshot.jobs.job_id[row]), -1)

    def gpus(self, row: int) -> int:
        """GPUs asked for, of one array task; a job alone on its nodes may hold more."""
        at = self.how(row)
        tables = ((self.asked.per_job, 1), (self.asked.per_node, max(1, int(self.snapshot.jobs.nodes[row]))))
        for column, factor in tables if at >= 0 else ():
            if told := sum(entry.count for entry in parse_gres(column[at]) if entry.kind == "gpu"):
                return told * factor
        return int(self.snapshot.jobs.gpus[row])

    def nodes(self, row: int) -> int:
        return max(1, int(self.snapshot.jobs.nodes[row]))

    def hours(self, row: int) -> float:
        """Time it may hold its GPUs from now on, all its array tasks one after another [h]."""
        jobs = self.snapshot.jobs
        limit = float(jobs.time_limit_s[row])
        limit = limit if math.isfinite(limit) else max(ENDLESS_S, float(jobs.run_s[row]))
        return max(0.0, limit - float(jobs.run_s[row])) / 3600.0 * max(1, int(jobs.array_tasks[row]))

    def partition(self, row: int) -> str:
        """The first of its partitions."""
        return self.snapshot.jobs.partition[row].partition(",")[0]

    @cached_property
    def _first_node(self) -> dict[str, int]:
        """Partition -> row of its first node that has GPUs."""
        nodes, found = self.snapshot.nodes, dict[str, int]()
        for row in np.flatnonzero(nodes.gpus > 0).tolist():
            for name in nodes.partitions[row].split(","):
                found.setdefault(name, row)
        return found

    @cached_property
    def _node_rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.snapshot.nodes.name)}

    def node(self, row: int) -> int:
        """Row of the node it is measured by: its first one, or the first with GPUs of its partition; -1 = none."""
        if self.snapshot.jobs.running[row]:
            try:
                return self._node_rows.get(expand(self.snapshot.jobs.node_list[row])[0], -1)
            except (ValueError, IndexError):
                return -1
        return self._first_node.get(self.partition(row), -1)

    def topology(self, row: int) -> GpuTopology | None:
        """The wiring of that node, None where it is not known."""
        node = self.node(row)
        one = class_of(self.snapshot.topology, int(self._classes[node])) if node >= 0 else None
        return one if one is not None and one.known else None

    @cached_property
    def _classes(self) -> np.ndarray:
        return class_rows(self.snapshot)

    def cpu_share(self, row: int) -> int:
        """CPUs of the node for each of its GPUs, at least 1; 0 where that is not known."""
        node, nodes = self.node(row), self.snapshot.nodes
        return max(1, int(nodes.cpus[node]) // int(nodes.gpus[node])) if node >= 0 and nodes.gpus[node] else 0

    def whole_memory(self, row: int) -> bool:
        """Whether it gets all memory of its nodes, by --mem=0 or for want of any setting."""
        at = self.how(row)
        return at >= 0 and bool(self.asked.whole_memory[at]) and gives_memory(self.snapshot)

    def exclusive(self, row: int) -> bool:
        at = self.how(row)
        return at >= 0 and bool(self.asked.exclusive[at])

    def beside(self, row: int) -> int:
        """GPUs of its nodes that it does not ask for."""
        node = self.node(row)
        return max(0, int(self.snapshot.nodes.gpus[node]) * self.nodes(row) - self.gpus(row)) if node >= 0 else 0

    def spare_cpu_gpus(self, row: int) -> int:
        """GPUs beside its own whose share of CPUs it takes."""
        share, cpus = self.cpu_share(row), int(self.snapshot.jobs.cpus[row])
        return min(self.beside(row), max(0, cpus - share * self.gpus(row)) // share) if share else 0
