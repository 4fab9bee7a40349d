"""Every metric there is: its kind, its meaning, and the closed sets of its labels' values.

Names follow Prometheus: base units, `_total` for what only grows. No job, user or node is ever a label. What Slurm's
own endpoint serves from 25.11 on (counts of jobs, nodes and partitions by state) is left to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from slurmsched.model.operations import OperationStage, Purpose
from slurmsched.model.plan import Action
from slurmsched.planning.gate import RULES, GateTime
from slurmsched.planning.job_scope import JOB_RULES, NODE_LIST_RULES, START_RULES

PREFIX = "slurmsched_"
GAUGE, COUNTER, HISTOGRAM, INFO = "gauge", "counter", "histogram", "info"
MANY = "10+"
NO_QUEUE = "none"
OTHER = "other"

SIZES = ("1", "2-4", "5-8", ">8")  # GPUs asked for; the classes of every table and plot
STAGES = ("read", "recall", "plan", "apply", "remember")
CYCLES = ("done", "failed", "dropped", "standby")
OUTCOMES = ("written", "changed", "refused", "unknown")
ENDS = ("slurm", "ledger", "not-leading", "rights", "paused", "busy", OTHER)
CAUSES = {"CPUs": "cpus", "memory": "memory", "CPUs and memory": "both"}


def _kinds(action: type[Action]) -> set[str]:
    """What it and all made from it are called."""
    return {action.kind, *(kind for each in action.__subclasses__() for kind in _kinds(each))} - {""}


KINDS = tuple(sorted(_kinds(Action)))
QUEUES = (*map(str, range(10)), MANY, NO_QUEUE)
PURPOSES, OPEN_STAGES = (
    tuple(map(str, Purpose)),
    tuple(str(stage) for stage in OperationStage if stage != OperationStage.CLOSED),
)
_OF_PLANNERS = ("constraint", "ends", "far", "limit", "nodes", "unread", "victims", "pin-asks", "pin-form", "pin-gang")
RULE_NAMES = tuple(sorted({
    *(rule.name for rule in (*JOB_RULES, *NODE_LIST_RULES, *START_RULES) if rule.in_scope),
    *(rule.name for rule in RULES if rule.when == GateTime.PLAN), *_OF_PLANNERS, OTHER,
}))  # fmt: skip

WAIT_BUCKETS_S = (10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
STAGE_BUCKETS_S = (0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RATIO_BUCKETS = (0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the exporter.

    name: without prefix.
    labels: name -> every value it may have; () = as many as the site's own configuration has, and one at a time.
    buckets: upper bounds of a histogram, the infinite one left out.
    """

    name: str
    kind: str
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def samples(self) -> tuple[str, ...]:
        """Names under which its values are exported."""
        if self.kind == HISTOGRAM:
            return tuple(f"{self.full_name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.full_name,)

    @property
    def series(self) -> Iterator[tuple[str, ...]]:
        """Every combination of label values."""
        return product(*self.labels.values())


GPU_STATES = ("idle", "boot", "allocated", "draining", "down", "unknown")  # as model.Nodes.gpu_use

METRICS = (
    Metric("build_info", INFO, "Version, policy and lever at work; always 1.",
           {"version": (), "policy": (), "lever": ()}),
    Metric("cycle_interval_seconds", GAUGE, "Time between two cycles as configured."),
    Metric("cycle_timestamp_seconds", GAUGE, "Unix time at which the last successful cycle ended."),
    Metric("snapshot_timestamp_seconds", GAUGE,
           "Unix time of the snapshot that all gauges belong to. Its age is time() minus this."),
    Metric("cycles_total", COUNTER, "Cycles by result. dropped: another host took the lease meanwhile; standby: "
           "another host leads.", {"outcome": CYCLES}),
    Metric("failed_cycles_in_a_row", GAUGE, "Failed cycles since the last successful one."),
    Metric("cycle_stage_seconds", HISTOGRAM,
           "Time of each stage of a cycle. recall reads the ledger, remember writes it.",
           {"stage": STAGES}, STAGE_BUCKETS_S),
    Metric("leader", GAUGE, "1 if this host may write, 0 if it stands by."),
    Metric("apply", GAUGE, "1 if values are sent to Slurm, 0 in a dry-run."),
    Metric("paused", GAUGE, "1 while the stop file exists."),
    Metric("snapshot_warnings", GAUGE, "Number of things in the last snapshot that could not be read or understood."),
    Metric("managed_jobs", GAUGE, "Pending jobs that slurmsched may write to, by the policy's queue, if it has any.",
           {"queue": QUEUES}),
    Metric("left_alone_jobs", GAUGE, "Jobs in scope that the gate refuses to change, by rule (docs/gate.md).",
           {"rule": RULE_NAMES}),
    Metric("longest_wait_seconds", GAUGE, "Longest present wait of a pending GPU job, by GPUs requested.",
           {"gpus": SIZES}),
    Metric("first_wait_seconds", HISTOGRAM, "From a GPU job's first submission to its first start, by GPUs held.",
           {"gpus": SIZES}, WAIT_BUCKETS_S),
    Metric("planned_writes", GAUGE, "Actions of the last plan."),
    Metric("deferred_writes", GAUGE, "Actions that the last plan put off to the next cycle, by pace.writes_per_cycle."),
    Metric("writes_total", COUNTER, "Actions by result. changed: the job had changed since the snapshot; refused: "
           "Slurm refused it; unknown: no answer came.", {"kind": KINDS, "outcome": OUTCOMES}),
    Metric("early_ends_total", COUNTER, "Cycles in which writing ended early or did not begin, by reason.",
           {"reason": ENDS}),
    Metric("open_operations", GAUGE, "Preemptions and gang reservations under way.",
           {"purpose": PURPOSES, "stage": OPEN_STAGES}),
    Metric("operations_begun_total", COUNTER, "Preemptions and gang reservations begun.", {"purpose": PURPOSES}),
    Metric("operations_given_up_total", COUNTER, "Preemptions and gang reservations taken back before their job ran.",
           {"purpose": PURPOSES}),
    Metric("lost_gpu_seconds_total", COUNTER, "Estimated work lost by requeues of slurmsched, in GPU seconds."),
    Metric("idle_gpu_seconds_total", COUNTER, "GPU seconds idle on nodes that an operation kept.",
           {"purpose": PURPOSES}),
    Metric("placement_quality_ratio", HISTOGRAM, "Link bandwidth of the GPUs of a job at its start, over that of the "
           "best free set. Of jobs of several nodes: the least share kept of cells, --switches and --segment.", {},
           RATIO_BUCKETS),
    Metric("missed_placements_total", COUNTER, "Jobs of several GPUs that started while better linked GPUs were free, "
           "or against their --switches or --segment."),
    Metric("gpus", GAUGE, "GPUs by present state. boot: free after a boot; unknown: use cannot be read.",
           {"state": GPU_STATES}),
    Metric("stranded_gpus", GAUGE, "Free GPUs that no job can get, by what else is used up on the node.",
           {"cause": tuple(CAUSES.values())}),
    Metric("measured_gpus", GAUGE, "GPUs of running jobs whose use is measured (measured_use.every_s)."),
    Metric("used_gpus", GAUGE, "The same GPUs, each counted by the share of the time in which it computed."),
    Metric("unused_gpus", GAUGE, "Those that computed less than 1 % of the time, where each GPU is measured alone."),
    Metric("largest_linked_set_gpus", GAUGE, "GPUs of the largest free set that NVLink or XGMI joins, of any node."),
    Metric("orphan_reservations", GAUGE, "Reservations of slurmsched without an operation on record."),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}
CUMULATIVE = tuple(metric for metric in METRICS if metric.kind in (COUNTER, HISTOGRAM))


def all_samples() -> frozenset[str]:
    """Every name that is exported."""
    return frozenset(name for metric in METRICS for name in metric.samples)


def kind_of_end(exit_code: int, text: str) -> str:
    """The label of Receipt.stopped. exit_code: the receipt's."""
    if exit_code == 75:
        return "paused" if text.startswith("paused") else "busy"
    return {3: "slurm", 4: "ledger", 5: "not-leading", 6: "rights"}.get(exit_code, OTHER)


# The table of docs/metrics.md: python -m slurmsched.observe.metrics.metric_catalog docs/metrics.md

BEGIN, END = "<!-- from slurmsched/observe/metrics/metric_catalog.py -->", "<!-- end -->"


def metrics_table() -> str:
    """A row a metric, in Markdown."""
    rows = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |", *map(_row, METRICS)]
    return "\n".join(rows) + "\n"


def with_metrics_table(page: str) -> str:
    """The page with the table of now between its marks. Raises ValueError where they are not there."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n\n{metrics_table()}\n{END}{tail}"


def _row(metric: Metric) -> str:
    labels = "; ".join(f"{name}: {', '.join(f'`{v}`' for v in values) or 'as configured'}"
                       for name, values in metric.labels.items())  # fmt: skip
    buckets = f" Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}." if metric.kind == HISTOGRAM else ""
    return f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help}{buckets} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_metrics_table(path.read_text(encoding="utf-8")), encoding="utf-8")
