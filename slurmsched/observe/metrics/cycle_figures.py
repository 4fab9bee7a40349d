"""The values of the metrics: counters, gauges of a snapshot, and what a cycle adds. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.operations import Operation, OperationStage
from slurmsched.model.plan import Outcome, Plan, Receipt, Requeue
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import HOLDS_NODES, JobState
from slurmsched.observe.metrics.metric_catalog import (
    BY_NAME,
    CAUSES,
    COUNTER,
    CUMULATIVE,
    GAUGE,
    GPU_STATES,
    MANY,
    NO_QUEUE,
    OPEN_STAGES,
    OTHER,
    PREFIX,
    PURPOSES,
    RULE_NAMES,
    SIZES,
    Metric,
    kind_of_end,
)
from slurmsched.observe.survey.gpu_overview import stranded_gpus
from slurmsched.planning.gate import CHANGED
from slurmsched.resources.node_gpus import node_gpus
from slurmsched.slurm.scontrol_tables import orphan_names

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
