"""Requests in the queue that cost GPU time: the table of rules, and what is found by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slurmsched.observe.survey import advice_rules
from slurmsched.observe.survey.advice_rules import AdviceInput, RuleHit


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
        advice_rules.idle_gpus,
    ),
    AdviceRule(
        "gpus-per-task",
        "--gpus-per-task with several tasks",
        "Each task sees its own GPUs only, so that NCCL cannot use NVLink between them.",
        _LEFT,
        advice_rules.per_task,
    ),
    AdviceRule(
        "whole-memory",
        "all memory of the node with some of its GPUs",
        "No other job gets memory there: the other GPUs "
        "stand idle. --mem=0 asks for it, and so does no --mem where the site sets no default.",
        _BESIDE,
        advice_rules.memory,
    ),
    AdviceRule(
        "cpus",
        "more CPUs than its GPUs' share of the node",
        "The GPUs whose CPUs it takes cannot be used.",
        _BESIDE,
        advice_rules.cpus,
    ),
    AdviceRule(
        "exclusive",
        "--exclusive with some of the node's GPUs",
        "The job is given the other GPUs too and does not use them.",
        _BESIDE,
        advice_rules.exclusive,
    ),
    AdviceRule(
        "array-of-nodes",
        "array of 1-GPU jobs, each of which fills a node",
        "Tasks could share nodes: CPUs, memory or --exclusive keep others off.",
        _BESIDE + ", all tasks",
        advice_rules.arrays,
    ),
    AdviceRule(
        "island",
        "hint topo=nvlink or numa with more GPUs than are so joined",
        "Part of the traffic leaves the island or the NUMA node whatever GPUs are picked.",
        _LEFT,
        advice_rules.islands,
    ),
    AdviceRule(
        "gpu-type",
        "several nodes, no GPU type, and the partition has several",
        "A gang runs at the pace of its slowest GPU.",
        _LEFT,
        advice_rules.types,
    ),
    AdviceRule(
        "time-limit",
        "the partition's longest limit, though own jobs run far shorter",
        "Backfill finds no gap for it, and keeps GPUs for its whole limit.",
        "GPUs x (limit - twice the usual run time)",
        advice_rules.limits,
    ),
    AdviceRule(
        "form",
        "--gpus=N on one node, where --gpus-per-node=N gets better sets",
        "Slurm picks worse linked GPUs for that form here (topology check).",
        _LEFT,
        advice_rules.form,
    ),
    AdviceRule(
        "no-checkpoint",
        "a day or longer, no ckpt hint, and jobs may be preempted",
        "All work since its start is lost when it is stopped.",
        _LEFT,
        advice_rules.checkpoint,
    ),
    AdviceRule(
        "no-gpu",
        "no GPU asked for in a partition of GPU nodes",
        "Its CPUs are missing to jobs that would use the GPUs there.",
        "GPUs whose CPUs it takes x time left to the limit",
        advice_rules.no_gpu,
    ),
    AdviceRule(
        "hints", "hints that are not understood", "What is not understood is ignored.", "none", advice_rules.hints
    ),
)
