"""Every metric there is: its kind, its meaning, the closed sets of its labels' values, and its value. Pure.

Names follow Prometheus: base units, `_total` for what only grows. No job, user or node is ever a label. What Slurm's
own endpoint serves from 25.11 on (counts of jobs, nodes and partitions by state) is left to it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.operations import Operation, OperationStage, Purpose
from slurmsched.model.plan import Action, Outcome, Plan, Receipt, Requeue
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import HOLDS_NODES, JobState
from slurmsched.observe.survey.gpu_overview import stranded_gpus
from slurmsched.planning.gate import CHANGED, RULES, GateTime
from slurmsched.planning.job_scope import JOB_RULES, NODE_LIST_RULES, START_RULES
from slurmsched.resources.node_gpus import node_gpus
from slurmsched.slurm.scontrol_tables import orphan_names

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


# The table of docs/metrics.md: python -m slurmsched.observe.metric_catalog docs/metrics.md

BEGIN, END = "<!-- from slurmsched/observe/metric_catalog.py -->", "<!-- end -->"


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


# Counters

SeriesKey = tuple[str, tuple[str, ...]]  # name without prefix, label values


class MetricCounters:
    """Sums of counters, and counts by bucket of histograms with their sums."""

    def __init__(self) -> None:
        self._sums: dict[SeriesKey, float] = {}
        self._buckets: dict[SeriesKey, list[int]] = {}
        for metric in CUMULATIVE:
            for series in metric.series:
                self._sums[metric.name, series] = 0.0
                if metric.kind != COUNTER:
                    self._buckets[metric.name, series] = [0] * (len(metric.buckets) + 1)

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Count. Raises KeyError for a name or label value that the catalogue does not have."""
        self._sums[name, labels] += max(by, 0.0)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Put a value into its bucket. Raises KeyError as `add` does."""
        key = (name, labels)
        self._sums[key] += value
        self._buckets[key][bisect_left(BY_NAME[name].buckets, value)] += 1

    def counted(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        """Label values and sum of each series of a counter."""
        return ((series, self._sums[metric.name, series]) for series in metric.series)

    def distributed(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
        """Label values, cumulative buckets by upper bound, and sum of each series of a histogram."""
        bounds = [*(repr(bound) for bound in metric.buckets), "+Inf"]
        for series in metric.series:
            total, upto = 0, []
            for bound, count in zip(bounds, self._buckets[metric.name, series], strict=True):
                total += count
                upto.append((bound, float(total)))
            yield series, upto, self._sums[metric.name, series]

    def restore(self, families: Iterable[Any]) -> None:
        """Go on from what was exported: families as prometheus_client parses them. What is not known is passed over."""
        samples = {(one.name, tuple(sorted(one.labels.items()))): one.value for fam in families for one in fam.samples}

        def found(name: str, labels: dict[str, str]) -> float:
            return float(samples.get((name, tuple(sorted(labels.items()))), 0.0))

        for metric in CUMULATIVE:
            for series in metric.series:
                labels = dict(zip(metric.labels, series, strict=True))
                name = metric.full_name if metric.kind == COUNTER else f"{metric.full_name}_sum"
                self._sums[metric.name, series] = found(name, labels)
                if metric.kind != COUNTER:
                    bounds = (*(repr(bound) for bound in metric.buckets), "+Inf")
                    upto = [found(f"{metric.full_name}_bucket", labels | {"le": bound}) for bound in bounds]
                    steps = [max(int(b - a), 0) for a, b in zip([0.0, *upto], upto, strict=False)]
                    self._buckets[metric.name, series] = steps


# Gauges of a snapshot and its plan

_UP_TO = (1, 4, 8)  # GPUs of the first three of SIZES

Values = dict[str, dict[tuple[str, ...], float]]  # name without prefix -> label values -> value


def gauges(snapshot: Snapshot, plan: Plan) -> Values:
    """Every gauge that a snapshot and its plan give; series whose value is 0 may be left out."""
    totals = snapshot.nodes.gpu_totals()
    plain = {
        "snapshot_timestamp_seconds": snapshot.now_s,
        "snapshot_warnings": len(snapshot.warnings),
        "planned_writes": len(plan.actions),
        "deferred_writes": plan.deferred,
        "largest_linked_set_gpus": max((part.linked or 0 for part in node_gpus(snapshot) if part.free), default=0),
        "orphan_reservations": len(orphan_names(snapshot.reservations, snapshot.operations, snapshot.tag)),
    }
    return single(plain | _measured_gpus(snapshot)) | {
        "managed_jobs": _keyed(_queues(plan)),
        "left_alone_jobs": _keyed(_left_alone(plan)),
        "longest_wait_seconds": _keyed(_longest_s(snapshot)),
        "gpus": _keyed({state: totals[state] for state in GPU_STATES}),
        "stranded_gpus": _keyed(_stranded(snapshot)),
        "open_operations": {key: float(count) for key, count in _open_operations(plan, snapshot).items()},
    }


def restored(families: Iterable[Any]) -> Values:
    """The gauges among families as prometheus_client parses them; what the catalogue does not have is passed over."""
    found: Values = {}
    for one in (sample for family in families for sample in family.samples):
        metric = BY_NAME.get(one.name.removeprefix(PREFIX))
        if metric is not None and metric.kind == GAUGE:
            series = tuple(one.labels.get(name, "") for name in metric.labels)
            if series in metric.series:
                found.setdefault(metric.name, {})[series] = one.value
    return found


def single(plain: Mapping[str, float]) -> Values:
    """Gauges without labels."""
    return {name: {(): float(value)} for name, value in plain.items()}


def size_class_of(gpus: int) -> str:
    """Size class of a job."""
    return SIZES[int(np.searchsorted(_UP_TO, gpus))]


def _keyed(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(key,): float(value) for key, value in values.items()}


def _queues(plan: Plan) -> Counter[str]:
    managed = int(plan.managed.sum())
    levels = plan.ranking.why.get("queue") if plan.ranking is not None else None
    if levels is None or len(levels) != len(plan.managed):
        return Counter({NO_QUEUE: managed})
    return Counter(str(int(level)) if 0 <= level < 10 else MANY for level in levels[plan.managed].tolist())


def _left_alone(plan: Plan) -> Counter[str]:
    return Counter(refusal.rule if refusal.rule in RULE_NAMES else OTHER for refusal in plan.refused)


def _longest_s(snapshot: Snapshot) -> dict[str, float]:
    jobs = snapshot.jobs
    rows = np.flatnonzero(jobs.pending & ~jobs.held & (jobs.gpus > 0))
    size, wait_s = np.searchsorted(_UP_TO, jobs.gpus[rows]), jobs.waiting_s[rows]
    return {name: float(wait_s[size == place].max(initial=0.0)) for place, name in enumerate(SIZES)}


def _stranded(snapshot: Snapshot) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(CAUSES.values(), 0))
    for one in stranded_gpus(snapshot):
        found[CAUSES[one.cause]] += one.gpus
    return found


def _measured_gpus(snapshot: Snapshot) -> dict[str, float]:
    """GPUs of running jobs by their measured use."""
    jobs = snapshot.jobs
    rows = np.flatnonzero(jobs.running & (jobs.gpu_use >= 0))
    gpus = jobs.gpus[rows]
    return {"measured_gpus": float(gpus.sum()), "used_gpus": float((gpus * jobs.gpu_use[rows]).sum()),
            "unused_gpus": float(np.nansum(jobs.idle_gpus[rows]))}  # fmt: skip


def _open_operations(plan: Plan, snapshot: Snapshot) -> Counter[tuple[str, str]]:
    """Open operations as the plan leaves them; those that it does not touch are as before."""
    found: Counter[tuple[str, str]] = Counter({(p, s): 0 for p in PURPOSES for s in OPEN_STAGES})
    for operation in (
        {operation.id: operation for operation in snapshot.operations}
        | {operation.id: operation for operation in plan.operations}
    ).values():
        if operation.stage in OPEN_STAGES:
            found[str(operation.purpose), str(operation.stage)] += 1
    return found


# What a cycle adds to the counters


def count_cycle(tally: MetricCounters, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
    """Writes, early ends, operations and placements of a cycle."""
    for outcome in receipt.outcomes:
        tally.add("writes_total", outcome.action.kind, _became(outcome))
    if receipt.stopped:
        tally.add("early_ends_total", kind_of_end(receipt.exit_code, receipt.stopped))
    for each in snapshot.placed:
        tally.observe("placement_quality_ratio", each.ratio)
        tally.add("missed_placements_total", by=float(each.missed))
    if not receipt.dry_run:
        _count_operations(tally, snapshot, plan, receipt)


def count_starts(tally: MetricCounters, snapshot: Snapshot, new: Bools) -> None:
    """Waits of the jobs that started for the first time. new: (N,) bool, those not counted before."""
    jobs = snapshot.jobs
    for row in np.flatnonzero(new).tolist():
        wait_s = float(jobs.start_s[row] - jobs.first_submit_s[row])
        tally.observe("first_wait_seconds", max(wait_s, 0.0), size_class_of(int(jobs.gpus[row])))


def in_first_run(snapshot: Snapshot) -> Bools:
    """GPU jobs that run for the first time, or have; one cancelled in the queue has not. (N,) bool."""
    jobs = snapshot.jobs
    ran = jobs.is_state(HOLDS_NODES) | (jobs.run_s > 0) | jobs.is_state(JobState.COMPLETED)
    return (
        ran & ~jobs.pending & (jobs.restarts == 0) & (jobs.gpus > 0) & np.isfinite(jobs.start_s + jobs.first_submit_s)
    )


def first_started_since(snapshot: Snapshot, before: Int64s | None, then_s: float) -> Bools:
    """Jobs in their first run that the last look had not. before: ids in their first run at the last look of this
    process, None if this is the first one; then whoever started after then_s counts, NaN = nobody. (N,) bool."""
    here, jobs = in_first_run(snapshot), snapshot.jobs
    return here & (jobs.start_s > then_s if before is None else ~np.isin(jobs.job_id, before))


def _became(outcome: Outcome) -> str:
    changed = outcome.status == "refused" and outcome.message.startswith(CHANGED)
    return "changed" if changed else outcome.status


def _count_operations(tally: MetricCounters, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
    before = {operation.id: operation for operation in snapshot.operations}
    gone = {one.action.job_id for one in receipt.written if isinstance(one.action, Requeue)}
    for operation in plan.operations:
        old = before.get(operation.id)
        tally.add("operations_begun_total", str(operation.purpose), by=float(old is None))
        tally.add("operations_given_up_total", str(operation.purpose), by=float(_given_up(old, operation)))
        idle_gpu_s = operation.idle_gpu_s - (old.idle_gpu_s if old else 0.0)
        tally.add("idle_gpu_seconds_total", str(operation.purpose), by=idle_gpu_s)
        tally.add("lost_gpu_seconds_total", by=sum(one.lost_gpu_s for one in operation.victims if one.job_id in gone))


def _given_up(old: Operation | None, operation: Operation) -> bool:
    return operation.stage == OperationStage.REVERSING and (old is None or old.stage != OperationStage.REVERSING)
