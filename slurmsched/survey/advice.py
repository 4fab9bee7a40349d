"""Requests in the queue that cost GPU time: the table of rules, and what is found by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slurmsched.survey import judges
from slurmsched.survey.case import Case
from slurmsched.survey.judges import Caught


@dataclass(frozen=True, slots=True)
class Rule:
    """name: of the fault. wrong: what it is. why: what it costs. stake: how its GPU hours are counted."""

    name: str
    wrong: str
    why: str
    stake: str
    judge: Callable[[Case], Iterator[Caught]]


@dataclass(frozen=True, slots=True)
class Advice:
    """One rule that one job breaks. gpu_h: GPU hours at stake. change: the option to write instead."""

    rule: str
    job_id: int
    user: str
    gpu_h: float
    change: str


def advice(case: Case) -> tuple[Advice, ...]:
    """All that is found, most GPU hours first, then by job."""
    jobs = case.snapshot.jobs
    found = [Advice(rule.name, int(jobs.job_id[row]), jobs.user[row], round(gpu_h, 1), change)
             for rule in RULES for row, gpu_h, change in rule.judge(case)]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.gpu_h, one.job_id, one.rule)))


_LEFT = "GPUs asked for x time left to the limit"
_BESIDE = "GPUs beside its own that others cannot have x time left to the limit"
RULES = (
    Rule(
        "gpus-per-task",
        "--gpus-per-task with several tasks",
        "Each task sees its own GPUs only, so that NCCL cannot use NVLink between them.",
        _LEFT,
        judges.per_task,
    ),
    Rule(
        "whole-memory",
        "all memory of the node with some of its GPUs",
        "No other job gets memory there: the other GPUs "
        "stand idle. --mem=0 asks for it, and so does no --mem where the site sets no default.",
        _BESIDE,
        judges.memory,
    ),
    Rule(
        "cpus",
        "more CPUs than its GPUs' share of the node",
        "The GPUs whose CPUs it takes cannot be used.",
        _BESIDE,
        judges.cpus,
    ),
    Rule(
        "exclusive",
        "--exclusive with some of the node's GPUs",
        "The job is given the other GPUs too and does not use them.",
        _BESIDE,
        judges.exclusive,
    ),
    Rule(
        "array-of-nodes",
        "array of 1-GPU jobs, each of which fills a node",
        "Tasks could share nodes: CPUs, memory or --exclusive keep others off.",
        _BESIDE + ", all tasks",
        judges.arrays,
    ),
    Rule(
        "island",
        "hint topo=nvlink or numa with more GPUs than are so joined",
        "Part of the traffic leaves the island or the NUMA node whatever GPUs are picked.",
        _LEFT,
        judges.islands,
    ),
    Rule(
        "gpu-type",
        "several nodes, no GPU type, and the partition has several",
        "A gang runs at the pace of its slowest GPU.",
        _LEFT,
        judges.types,
    ),
    Rule(
        "time-limit",
        "the partition's longest limit, though own jobs run far shorter",
        "Backfill finds no gap for it, and keeps GPUs for its whole limit.",
        "GPUs x (limit - twice the usual run time)",
        judges.limits,
    ),
    Rule(
        "form",
        "--gpus=N on one node, where --gpus-per-node=N gets better sets",
        "Slurm picks worse linked GPUs for that form here (topology check).",
        _LEFT,
        judges.form,
    ),
    Rule(
        "no-checkpoint",
        "a day or longer, no ckpt hint, and jobs may be preempted",
        "All work since its start is lost when it is stopped.",
        _LEFT,
        judges.checkpoint,
    ),
    Rule(
        "no-gpu",
        "no GPU asked for in a partition of GPU nodes",
        "Its CPUs are missing to jobs that would use the GPUs there.",
        "GPUs whose CPUs it takes x time left to the limit",
        judges.no_gpu,
    ),
    Rule("hints", "hints that are not understood", "What is not understood is ignored.", "none", judges.hints),
)
