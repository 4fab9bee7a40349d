"""The demo: one trace under Slurm alone and under the daemon's own cycle, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurmsched.config import Scope
from slurmsched.estimators.time_limit import TimeLimit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.planning.planner import Planner
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.srsf import Srsf
from slurmsched.replay.bare_requeue import BareRequeue
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import replay
from slurmsched.replay.memory_store import MemoryStore
from slurmsched.replay.metrics import SIZE_CLASSES, History, Outcomes, summary
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace

NODES = (8, 8, 8, 8)  # GPUs of each node: few enough for queues to form under the shipped trace
INTERVAL_S = 300.0  # between two cycles: a requeue costs half of it
ALL = Scope(partitions=("*",))


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to order the queue. planner None: Slurm alone."""

    name: str
    title: str
    planner: Planner | BareRequeue | None


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What came of one contender. wall_s: how long the replay took."""

    contender: Contender
    outcomes: Outcomes
    history: History
    cycles: int
    wall_s: float

    @property
    def title(self) -> str:
        return self.contender.title

    @property
    def figures(self) -> dict[str, object]:
        """Name, figures of metrics.summary, number of cycles."""
        return {
            "name": self.contender.name,
            "title": self.contender.title,
            **summary(self.outcomes),
            "cycles": self.cycles,
        }


def contenders() -> tuple[Contender, ...]:
    """Slurm alone, what the daemon does by nice alone, and what preemption adds."""
    las, srsf = DiscretizedLas(), Srsf(TimeLimit())
    by_nice = Planner(las, "discretized-las", ALL)
    return (
        Contender("slurm", "Slurm: FIFO + backfill", None),
        Contender("las-nice", "2D-LAS, nice only", by_nice),
        Contender("las-requeue", "2D-LAS, nice + requeue", BareRequeue(by_nice, Consolidated())),
        Contender("srsf-nice", "SRSF by time limit, nice only", Planner(srsf, "srsf", ALL)),
    )


@dataclass(frozen=True, slots=True)
class Demo:
    """The trace, the cluster and the contenders of one comparison."""

    trace: Trace
    nodes: Sequence[int] = NODES
    model: SlurmModel = field(default_factory=SlurmModel)
    interval_s: float = INTERVAL_S

    def run(self, contender: Contender, on_ended: Callable[[int], None] = lambda ended: None) -> Run:
        """Replay the trace under one contender. on_ended: told how many jobs ended so far."""
        cluster = EmbeddedCluster(self.trace, self.nodes, self.model)
        began = time.perf_counter()
        cycles = replay(
            cluster, contender.planner, MemoryStore(), interval_s=self.interval_s,
            on_progress=lambda _: on_ended(cluster.ended),
        )  # fmt: skip
        return Run(contender, Outcomes.of(cluster), cluster.history, cycles, time.perf_counter() - began)


def table(runs: Sequence[Run]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Column names and rows of the comparison as text, times in hours; a size class without jobs shows "-"."""
    figures = [summary(run.outcomes) for run in runs]
    rows = [(f"JCT {name} [h]", *(_hours(f["jct_s"], name) for f in figures)) for name in ("mean", "p50", "p95", "p99")]
    for size, _, _ in SIZE_CLASSES:
        label = f"{size} GPU" + ("" if size == "1" else "s")
        for name in ("mean", "p95"):
            cells = (_hours(f["queueing_delay_by_gpus_s"][size], name) for f in figures)
            rows.append((f"queueing delay {name}, {label} [h]", *cells))
    rows.append(("makespan [h]", *(f"{f['makespan_s'] / 3600:.1f}" for f in figures)))
    rows.append(("preemptions", *(str(f["preemptions"]) for f in figures)))
    rows.append(("GPU utilisation [%]", *(f"{100 * f['gpu_utilisation']:.1f}" for f in figures)))
    return ("", *(run.contender.title for run in runs)), rows


def _hours(spread: dict[str, float] | None, name: str) -> str:
    return "-" if spread is None else f"{spread[name] / 3600:.2f}"
