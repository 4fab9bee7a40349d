"""Requests in the queue that cost GPU time: the rules of `advise`, their table, and what is found by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.model.gpu_use import JobGpuUse
from slurmsched.model.gres import parse_gres
from slurmsched.model.hints import parse_hints, shortened
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.jobs import GpuOptions
from slurmsched.observe.survey.gpu_overview import gives_memory
from slurmsched.resources.by_type import whole_types
from slurmsched.resources.gpu_sets import largest_linked
from slurmsched.resources.placeable_gpus import topology_class, topology_class_rows

ENDLESS_S = 86_400.0  # what a job without a time limit counts as
BestPickShares = Mapping[str, tuple[float, float]]  # class -> share of best picks by --gpus-per-node and by --gpus


@dataclass(frozen=True)
class AdviceInput:
    """What the rules of advice look at.

    usual_s: as accounting.read_typical_run_times gives it, empty where it is not known.
    shares: where Slurm's own choice of GPUs is known.
    preempted: whether running jobs may be stopped and requeued.
    use: measured use by job id, where it is known.
    """

    snapshot: Snapshot
    asked: GpuOptions
    usual_s: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    shares: BestPickShares = field(default_factory=dict)
    preempted: bool = False
    use: Mapping[int, JobGpuUse] = field(default_factory=dict)

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
            if count := sum(entry.count for entry in parse_gres(column[at]) if entry.kind == "gpu"):
                return count * factor
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
    def _running(self) -> Bools:
        return self.snapshot.jobs.running

    @cached_property
    def _node_rows(self) -> dict[str, int]:
        return self.snapshot.nodes.name.rows()

    def node(self, row: int) -> int:
        """Row of the node it is measured by: its first one, or the first with GPUs of its partition; -1 = none."""
        if self._running[row]:
            try:
                return self._node_rows.get(expand_hostlist(self.snapshot.jobs.node_list[row])[0], -1)
            except (ValueError, IndexError):
                return -1
        return self._first_node.get(self.partition(row), -1)

    def topology(self, row: int) -> GpuTopology | None:
        """The wiring of that node, None where it is not known."""
        node = self.node(row)
        one = topology_class(self.snapshot.topology, int(self._classes[node])) if node >= 0 else None
        return one if one is not None and one.known else None

    @cached_property
    def _classes(self) -> np.ndarray:
        return topology_class_rows(self.snapshot)

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


# The rules of `advise`, one a function: which jobs break it, the GPU hours at stake, and the option to write.
#
# Source of the facts on options: Slurm's sbatch and gres.conf manual pages; what a rule counts is ours.

LONG_S = 86_400.0  # without a checkpoint: jobs of at least a day
RUNS = 10  # fewest runs of a user in a partition for the rule to apply
SHORTER = 4.0  # a limit that many times the usual run time is too long

USED_S = 1_800.0  # a job that began later may still be loading its data
RuleHit = tuple[int, float, str]  # row of the job, GPU hours at stake, the option to write


def idle_gpus(case: AdviceInput) -> Iterator[RuleHit]:
    """Running jobs with GPUs that were measured and idle."""
    jobs, running = case.snapshot.jobs, case.snapshot.jobs.running
    for row in case.rows:
        use = case.use.get(int(jobs.job_id[row]))
        if use is None or not use.idle or not running[row] or jobs.run_s[row] < USED_S:
            continue
        used = use.gpus - use.idle
        write = f"--gpus={used}, since {use.idle} of {use.gpus} are idle" if used else "end it: all its GPUs are idle"
        yield row, use.idle * case.hours(row), write


def per_task(case: AdviceInput) -> Iterator[RuleHit]:
    for row in case.rows:
        at = case.how(row)
        if at >= 0 and "gpu" in case.asked.per_task[at] and case.asked.tasks[at] > 1:
            gpus, nodes = case.gpus(row), case.nodes(row)
            yield row, gpus * case.hours(row), f"--gpus-per-node={-(-gpus // nodes)}, no --gpus-per-task"


def _array(case: AdviceInput, row: int) -> bool:
    return bool(case.snapshot.jobs.array_job_id[row]) and case.gpus(row) == 1


def _lost_beside(case: AdviceInput, row: int) -> int:
    """GPUs of its nodes that no other job can have while it runs."""
    shut_out = case.whole_memory(row) or case.exclusive(row)
    return case.beside(row) if shut_out else case.spare_cpu_gpus(row)


def _gpu_memory(case: AdviceInput, row: int) -> str:
    """ "60G": a GPU's share of its node's memory, a tenth left out for the system."""
    node, nodes = case.node(row), case.snapshot.nodes
    return f"{max(1, int(0.9 * nodes.memory_mib[node] / max(1, nodes.gpus[node]) / 1024))}G"


def memory(case: AdviceInput) -> Iterator[RuleHit]:
    for row in case.rows:
        if case.gpus(row) and case.whole_memory(row) and not _array(case, row) and (lost := case.beside(row)):
            yield row, lost * case.hours(row), f"--mem-per-gpu={_gpu_memory(case, row)}"


def cpus(case: AdviceInput) -> Iterator[RuleHit]:
    for row in case.rows:
        if case.gpus(row) and not case.exclusive(row) and not _array(case, row) and (lost := case.spare_cpu_gpus(row)):
            yield row, lost * case.hours(row), f"--cpus-per-gpu={case.cpu_share(row)}"


def exclusive(case: AdviceInput) -> Iterator[RuleHit]:
    for row in case.rows:
        if case.gpus(row) and case.exclusive(row) and not _array(case, row) and (lost := case.beside(row)):
            yield row, lost * case.hours(row), "no --exclusive, or all GPUs of the node"


def arrays(case: AdviceInput) -> Iterator[RuleHit]:
    for row in case.rows:
        if _array(case, row) and (lost := _lost_beside(case, row)):
            change = f"--gpus=1 --cpus-per-gpu={case.cpu_share(row)} --mem-per-gpu={_gpu_memory(case, row)}"
            yield row, lost * case.hours(row), change


def islands(case: AdviceInput) -> Iterator[RuleHit]:
    jobs = case.snapshot.jobs
    for row in case.rows:
        topo, one = parse_hints(jobs.comment[row]).topo, case.topology(row)
        if topo not in ("nvlink", "numa") or one is None:
            continue
        each = -(-case.gpus(row) // case.nodes(row))
        numa = one.numa[one.numa >= 0].tolist()
        most = largest_linked(one, (1 << one.gpus) - 1) if topo == "nvlink" else max(map(numa.count, numa), default=0)
        if 0 < most < each:
            word = "topo=any" if most == 1 else f"--gpus-per-node={most}, or topo=any"
            yield row, case.gpus(row) * case.hours(row), word


def types(case: AdviceInput) -> Iterator[RuleHit]:
    nodes, of = case.snapshot.nodes, dict[str, set[str]]()
    for names, text in zip(nodes.partitions, nodes.gpu_types, strict=True):
        for name in names.split(","):
            of.setdefault(name, set()).update(whole_types(text))
    for row in case.rows:
        kinds = of.get(case.partition(row), set()) - {""}
        named = any(entry.type for entry in parse_gres(case.snapshot.jobs.gpu_request[row]))
        if case.gpus(row) > 1 and case.nodes(row) > 1 and len(kinds) > 1 and not named:
            each = -(-case.gpus(row) // case.nodes(row))
            yield row, case.gpus(row) * case.hours(row), f"--gpus-per-node=TYPE:{each}, of {', '.join(sorted(kinds))}"


def limits(case: AdviceInput) -> Iterator[RuleHit]:
    partitions = case.snapshot.partitions
    longest = dict(zip(partitions.name, partitions.max_time_s.tolist(), strict=True))
    jobs, pending = case.snapshot.jobs, case.snapshot.jobs.pending
    for row in case.rows:
        name = case.partition(row)
        runs, limit = case.usual_s.get((jobs.user[row], name), ()), float(jobs.time_limit_s[row])
        if not pending[row] or len(runs) < RUNS or limit < longest.get(name, float("inf")):
            continue
        usual = runs[int(0.95 * (len(runs) - 1))]
        if limit > SHORTER * usual and case.gpus(row):
            hours = max(1, -(-int(2 * usual) // 3600))
            kept = (limit / 3600 - hours) * max(1, int(jobs.array_tasks[row]))
            yield row, case.gpus(row) * kept, f"--time={hours}:00:00"


def gpus_by_job(case: AdviceInput) -> Iterator[int]:
    """Rows of jobs that ask for some of the GPUs of one node of known wiring by --gpus."""
    for row in case.rows:
        at, one = case.how(row), case.topology(row)
        asks = at >= 0 and "gpu" in case.asked.per_job[at] and case.nodes(row) == 1
        if asks and one is not None and 1 < case.gpus(row) < one.gpus:
            yield row


def form(case: AdviceInput) -> Iterator[RuleHit]:
    for row in gpus_by_job(case):
        one = case.topology(row)
        per_node, per_job = case.shares.get(one.name if one else "", (0.0, 0.0))
        if per_node > per_job:
            yield row, case.gpus(row) * case.hours(row), f"--nodes=1 --gpus-per-node={case.gpus(row)}"


def checkpoint(case: AdviceInput) -> Iterator[RuleHit]:
    jobs = case.snapshot.jobs
    for row in case.rows if case.preempted else ():
        long = float(jobs.time_limit_s[row]) >= LONG_S and case.gpus(row) > 0
        if long and jobs.batch[row] and parse_hints(jobs.comment[row]).ckpt is None:
            change = '--requeue --comment="slurmsched: ckpt=USR1@120"'
            yield row, case.gpus(row) * case.hours(row), change


def no_gpu(case: AdviceInput) -> Iterator[RuleHit]:
    nodes, jobs = case.snapshot.nodes, case.snapshot.jobs
    bare: set[str] = set()
    for names, gpus in zip(nodes.partitions, nodes.gpus.tolist(), strict=True):
        bare.update(names.split(",") if not gpus else ())
    partitions = case.snapshot.partitions
    up = {name for name, is_up in zip(partitions.name, partitions.up.tolist(), strict=True) if is_up}
    others = ", ".join(sorted(bare & up))
    for row in case.rows:
        asks = int(jobs.gpus[row]) + int(jobs.mig_devices[row]) + int(jobs.shards[row])
        share = case.cpu_share(row)
        if not asks and share and case.partition(row) not in bare:
            blocked = min(case.beside(row), -(-int(jobs.cpus[row]) // share))
            yield row, blocked * case.hours(row), f"-p {others}" if others else "a partition of nodes without GPUs"


def hints(case: AdviceInput) -> Iterator[RuleHit]:
    jobs = case.snapshot.jobs
    for row in case.rows:
        if warnings := parse_hints(jobs.comment[row]).warnings:
            yield row, 0.0, shortened("; ".join(warnings))


# The table of rules, and what they find.


@dataclass(frozen=True, slots=True)
class AdviceRule:
    """One rule of advice.

    name: of the fault.
    wrong: what it is.
    why: what it costs.
    stake: how its GPU hours are counted.
    """

    name: str
    wrong: str
    why: str
    stake: str
    judge: Callable[[AdviceInput], Iterator[RuleHit]]


@dataclass(frozen=True, slots=True)
class Advice:
    """One rule that one job breaks. gpu_h: GPU hours at stake. change: the option to write instead."""

    rule: str
    job_id: int
    user: str
    gpu_h: float
    change: str


@dataclass(frozen=True, slots=True)
class AdviceGroup:
    """Advice that is the same for several jobs of one user. gpu_h: sum. job_ids: ascending."""

    rule: str
    user: str
    change: str
    gpu_h: float
    job_ids: tuple[int, ...]


def advice(case: AdviceInput) -> tuple[Advice, ...]:
    """All that is found, most GPU hours first, then by job."""
    jobs = case.snapshot.jobs
    found = [Advice(rule.name, int(jobs.job_id[row]), jobs.user[row], round(gpu_h, 1), change)
             for rule in RULES for row, gpu_h, change in rule.judge(case)]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.gpu_h, one.job_id, one.rule)))


def advice_groups(found: Sequence[Advice]) -> tuple[AdviceGroup, ...]:
    """One group for each rule, user and change; most GPU hours first, in whole hours, then as found."""
    alike: dict[tuple[str, str, str], list[Advice]] = {}
    for one in found:
        alike.setdefault((one.rule, one.user, one.change), []).append(one)
    groups = [AdviceGroup(*key, sum(one.gpu_h for one in of), tuple(sorted(one.job_id for one in of)))
              for key, of in alike.items()]  # fmt: skip
    return tuple(sorted(groups, key=lambda group: -round(group.gpu_h)))


_LEFT = "GPUs asked for x time left to the limit"
_BESIDE = "GPUs beside its own that others cannot have x time left to the limit"
RULES = (
    AdviceRule(
        "idle-gpus",
        "GPUs that the job holds and does not use, as measured",
        "Nobody else can have them until it ends. Jobs that began in the last half hour are not judged.",
        "idle GPUs x time left to the limit",
        idle_gpus,
    ),
    AdviceRule(
        "gpus-per-task",
        "--gpus-per-task with several tasks",
        "Each task sees its own GPUs only, so that NCCL cannot use NVLink between them.",
        _LEFT,
        per_task,
    ),
    AdviceRule(
        "whole-memory",
        "all memory of the node with some of its GPUs",
        "No other job gets memory there: the other GPUs "
        "stand idle. --mem=0 asks for it, and so does no --mem where the site sets no default.",
        _BESIDE,
        memory,
    ),
    AdviceRule(
        "cpus",
        "more CPUs than its GPUs' share of the node",
        "The GPUs whose CPUs it takes cannot be used.",
        _BESIDE,
        cpus,
    ),
    AdviceRule(
        "exclusive",
        "--exclusive with some of the node's GPUs",
        "The job is given the other GPUs too and does not use them.",
        _BESIDE,
        exclusive,
    ),
    AdviceRule(
        "array-of-nodes",
        "array of 1-GPU jobs, each of which fills a node",
        "Tasks could share nodes: CPUs, memory or --exclusive keep others off.",
        _BESIDE + ", all tasks",
        arrays,
    ),
    AdviceRule(
        "island",
        "hint topo=nvlink or numa with more GPUs than are so joined",
        "Part of the traffic leaves the island or the NUMA node whatever GPUs are picked.",
        _LEFT,
        islands,
    ),
    AdviceRule(
        "gpu-type",
        "several nodes, no GPU type, and the partition has several",
        "A gang runs at the pace of its slowest GPU.",
        _LEFT,
        types,
    ),
    AdviceRule(
        "time-limit",
        "the partition's longest limit, though own jobs run far shorter",
        "Backfill finds no gap for it, and keeps GPUs for its whole limit.",
        "GPUs x (limit - twice the usual run time)",
        limits,
    ),
    AdviceRule(
        "form",
        "--gpus=N on one node, where --gpus-per-node=N gets better sets",
        "Slurm picks worse linked GPUs for that form here (topology check).",
        _LEFT,
        form,
    ),
    AdviceRule(
        "no-checkpoint",
        "a day or longer, no ckpt hint, and jobs may be preempted",
        "All work since its start is lost when it is stopped.",
        _LEFT,
        checkpoint,
    ),
    AdviceRule(
        "no-gpu",
        "no GPU asked for in a partition of GPU nodes",
        "Its CPUs are missing to jobs that would use the GPUs there.",
        "GPUs whose CPUs it takes x time left to the limit",
        no_gpu,
    ),
    AdviceRule("hints", "hints that are not understood", "What is not understood is ignored.", "none", hints),
)
