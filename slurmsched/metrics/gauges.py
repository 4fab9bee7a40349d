"""What is so now: gauges of one snapshot and its plan. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from slurmsched.metrics.catalog import (
    BY_NAME,
    CAUSES,
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
)  # fmt: skip
from slurmsched.model.plan import Plan
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.reservations import orphan_names
from slurmsched.survey.stock import parts
from slurmsched.survey.stranded import stranded

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
        "largest_linked_set_gpus": max((part.linked or 0 for part in parts(snapshot) if part.free), default=0),
        "orphan_reservations": len(orphan_names(snapshot.reservations, snapshot.acts, snapshot.tag)),
    }
    return single(plain) | {
        "managed_jobs": _keyed(_queues(plan)),
        "left_alone_jobs": _keyed(_left_alone(plan)),
        "longest_wait_seconds": _keyed(_longest_s(snapshot)),
        "gpus": _keyed({state: totals[state] for state in GPU_STATES}),
        "stranded_gpus": _keyed(_stranded(snapshot)),
        "open_acts": {key: float(count) for key, count in _acts(plan, snapshot).items()},
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


def size_of(gpus: int) -> str:
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
    for one in stranded(snapshot):
        found[CAUSES[one.cause]] += one.gpus
    return found


def _acts(plan: Plan, snapshot: Snapshot) -> Counter[tuple[str, str]]:
    """Open acts as the plan leaves them; those that it does not touch are as before."""
    found: Counter[tuple[str, str]] = Counter({(p, s): 0 for p in PURPOSES for s in OPEN_STAGES})
    for act in ({act.id: act for act in snapshot.acts} | {act.id: act for act in plan.acts}).values():
        if act.stage in OPEN_STAGES:
            found[str(act.purpose), str(act.stage)] += 1
    return found
