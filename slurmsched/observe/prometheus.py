"""Metrics for Prometheus: collected from cycles, served or written as text, with the times of a cycle's stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched import __version__
from slurmsched.config import Config
from slurmsched.errors import ConfigError, InputError
from slurmsched.model.columns import Int64s
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.metric_catalog import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    METRICS,
    Metric,
    MetricCounters,
    Values,
    count_cycle,
    count_starts,
    first_started_since,
    gauges,
    in_first_run,
    restored,
    single,
)
from slurmsched.paths import draft_of, dropped
from slurmsched.protocols import Cluster, DecidingPlanner, Store


@dataclass(frozen=True, slots=True)
class ProcessState:
    """How this process stands.

    apply: it sends.
    leads: it may write and remember.
    paused: the stop file is there.
    """

    apply: bool
    leads: bool = True
    paused: bool = False


class CycleMetrics:
    """Counts cycles. clock: the wall's."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self._clock = clock
        self._tally = MetricCounters()
        self._gauges: Values = {}
        self._in_a_row = 0
        self._ended_s = nan
        self._started: Int64s | None = None
        self._since_s = nan

    def stage(self, name: str, took_s: float) -> None:
        """A stage of a cycle took so long [s]."""
        self._tally.observe("cycle_stage_seconds", took_s, name)

    def done(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """A cycle worked."""
        count_cycle(self._tally, snapshot, plan, receipt)
        count_starts(self._tally, snapshot, first_started_since(snapshot, self._started, self._since_s))
        self._started = snapshot.jobs.job_id[np.flatnonzero(in_first_run(snapshot))]
        self._gauges = gauges(snapshot, plan)
        self._ended_s = self._clock()
        self.ended("done")

    def ended(self, outcome: str) -> None:
        """A cycle went so: one of metric_catalog.CYCLES."""
        self._in_a_row = self._in_a_row + 1 if outcome == "failed" else 0
        self._tally.add("cycles_total", outcome)

    def restore(self, families: Iterable[Any]) -> None:
        """Go on from what an earlier process exported."""
        found = list(families)
        self._tally.restore(found)
        self._gauges = restored(found)

        def value(name: str, default: float) -> float:
            return self._gauges.get(name, {}).get((), default)

        self._since_s = value("snapshot_timestamp_seconds", nan)
        self._ended_s = value("cycle_timestamp_seconds", nan)
        self._in_a_row = int(value("failed_cycles_in_a_row", 0))

    def families(self, standing: ProcessState) -> tuple[Any, ...]:
        """All metrics as prometheus_client has them. Gauges of a snapshot are left out until there is one."""
        values = self._gauges | self._own(standing)
        return tuple(made for metric in METRICS if (made := self._family(metric, values)) is not None)

    def _own(self, standing: ProcessState) -> Values:
        tree = self.config
        plain = {
            "cycle_interval_seconds": tree.cycle.interval_s, "failed_cycles_in_a_row": self._in_a_row,
            "leader": standing.leads, "apply": standing.apply, "paused": standing.paused,
        }  # fmt: skip
        ended = {} if np.isnan(self._ended_s) else {"cycle_timestamp_seconds": self._ended_s}
        info: Values = {"build_info": {(__version__, tree.policy.name, tree.lever.kind): 1.0}}
        return single(plain | ended) | info

    def _family(self, metric: Metric, values: Values) -> Any:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        names = list(metric.labels)
        if metric.kind == COUNTER:
            made: Any = CounterMetricFamily(metric.full_name, metric.help, labels=names)
            for series, total in self._tally.counted(metric):
                made.add_metric(series, total)
        elif metric.kind == HISTOGRAM:
            made = HistogramMetricFamily(metric.full_name, metric.help, labels=names)
            for series, buckets, total in self._tally.distributed(metric):
                made.add_metric(series, buckets, total)
        elif metric.name not in values:
            return None
        else:
            made = GaugeMetricFamily(metric.full_name, metric.help, labels=names)
            zeros = dict.fromkeys(metric.series, 0.0) if metric.kind == GAUGE else {}
            for series, value in (zeros | values[metric.name]).items():
                made.add_metric(series, value)
        return made


def need_client() -> None:
    """Raises ConfigError where prometheus_client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ConfigError("needs prometheus_client: pip install 'slurmsched[metrics]'", key="metrics") from error


# Metric families as text.

MODE = 0o644  # node_exporter is another user


class Families:
    """What prometheus_client takes for a registry."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Sequence[Any]:
        return self._families


def scraped(families: Sequence[Any], accept: str) -> tuple[bytes, str]:
    """The text and its content type. accept: the scraper's Accept header, which chooses between two formats."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(Families(families)), content_type  # type: ignore[arg-type]


def write_textfile(path: Path, families: Sequence[Any]) -> None:
    """Write the file whole or not at all. Raises InputError if it cannot be written."""
    from prometheus_client.exposition import generate_latest

    draft = draft_of(path)  # the collector reads *.prom only
    try:
        draft.write_bytes(generate_latest(Families(families)))  # type: ignore[arg-type]
        draft.chmod(MODE)
        draft.replace(path)
    except OSError as error:
        dropped(draft)
        raise InputError(f"cannot be written: {error.strerror}; see metrics.textfile", source=str(path)) from error


def read_textfile(path: Path) -> list[Any]:
    """The families of a file that write_textfile wrote; none where there is none that can be read."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


# Times of the stages of a cycle

Note = Callable[[str, float], None]  # stage, seconds


@dataclass(frozen=True, slots=True)
class TimedCycle:
    """A cluster, planner and store in one. A stage that fails is not noted."""

    cluster: Cluster
    planner: DecidingPlanner
    store: Store
    note: Note

    def read(self) -> Snapshot:
        with self._noted("read"):
            return self.cluster.read()

    def recall(self, snapshot: Snapshot) -> Snapshot:
        with self._noted("recall"):
            return self.store.recall(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        with self._noted("plan"):
            return self.planner.plan(snapshot)

    def apply(self, plan: Plan) -> Receipt:
        with self._noted("apply"):
            return self.cluster.apply(plan)

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        with self._noted("remember"):
            self.store.append(snapshot, plan, receipt)

    @contextmanager
    def _noted(self, stage: str) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        self.note(stage, time.perf_counter() - begun_s)
