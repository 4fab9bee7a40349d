"""The demo: one trace under Slurm alone and under the daemon's own cycle, and its HTML page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurmsched.estimators.requested_time import TimeLimit
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes, UsageHistory, outcome_summary
from slurmsched.model.trace import Trace
from slurmsched.observe.html_page import (
    PagePlot,
    delay_bars,
    figure_html,
    queue_lines,
    rendered_page,
    time_distributions,
    usage_lines,
    write_html,
)
from slurmsched.placements.consolidated import Consolidated
from slurmsched.planning.planner import Planner
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.srsf import Srsf
from slurmsched.sim.event_loop import replay
from slurmsched.sim.experiments.slurmctld_setup import RequeuePlanner
from slurmsched.sim.moldable_starts import EVERY_PARTITION
from slurmsched.sim.replay_stores import MemoryStore
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld, outcomes_of
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

NODES = (8, 8, 8, 8)  # GPUs of each node: few enough for queues to form under the shipped trace
INTERVAL_S = 300.0  # between two cycles: a requeue costs half of it


@dataclass(frozen=True, slots=True)
class DemoPolicy:
    """One way to order the queue. policy: its name, "slurm" for Slurm alone. planner None: Slurm alone."""

    name: str
    title: str
    policy: str
    planner: Planner | RequeuePlanner | None


@dataclass(frozen=True, slots=True, eq=False)
class DemoRun:
    """What came of one contender. wall_s: how long the replay took."""

    contender: DemoPolicy
    outcomes: JobOutcomes
    history: UsageHistory
    cycles: int
    wall_s: float

    @property
    def title(self) -> str:
        return self.contender.title

    @property
    def policy(self) -> str:
        return self.contender.policy

    @property
    def figures(self) -> dict[str, object]:
        """Name, figures of outcome_summary, number of cycles."""
        return {
            "name": self.contender.name,
            "title": self.contender.title,
            **outcome_summary(self.outcomes),
            "cycles": self.cycles,
        }


def demo_policies() -> tuple[DemoPolicy, ...]:
    """Slurm alone, what the daemon does by nice alone, and what preemption adds."""
    las, srsf = DiscretizedLas(), Srsf(TimeLimit())
    by_nice = Planner(las, "discretized-las", EVERY_PARTITION)
    return (
        DemoPolicy("slurm", "Slurm: FIFO + backfill", "slurm", None),
        DemoPolicy("las-nice", "2D-LAS, nice only", "discretized-las", by_nice),
        DemoPolicy("las-requeue", "2D-LAS, nice + requeue", "las", RequeuePlanner(by_nice, Consolidated())),
        DemoPolicy("srsf-nice", "SRSF by time limit, nice only", "srsf", Planner(srsf, "srsf", EVERY_PARTITION)),
    )


@dataclass(frozen=True, slots=True)
class Demo:
    """The trace, the cluster and the contenders of one comparison."""

    trace: Trace
    nodes: Sequence[int] = NODES
    model: SlurmctldSettings = field(default_factory=SlurmctldSettings)
    interval_s: float = INTERVAL_S

    def run(self, contender: DemoPolicy, on_ended: Callable[[int], None] = lambda ended: None) -> DemoRun:
        """Replay the trace under one contender. on_ended: told how many jobs ended so far."""
        cluster = SimulatedSlurmctld(self.trace, self.nodes, self.model)
        began = time.perf_counter()
        cycles = replay(
            cluster, contender.planner, MemoryStore(), interval_s=self.interval_s,
            on_progress=lambda _: on_ended(cluster.ended),
        )  # fmt: skip
        return DemoRun(contender, outcomes_of(cluster), cluster.history, cycles, time.perf_counter() - began)


def demo_table(runs: Sequence[DemoRun]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Column names and rows of the comparison as text, times in hours; a size class without jobs shows "-"."""
    figures = [outcome_summary(run.outcomes) for run in runs]
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


# The page.


def write_demo_page(path: Path, demo: Demo, runs: Sequence[DemoRun]) -> None:
    """Write the page whole or not at all. Raises InputError if the file cannot be written."""
    write_html(path, demo_html(demo, runs))


def demo_html(demo: Demo, runs: Sequence[DemoRun]) -> str:
    """The page as text."""
    columns, rows = demo_table(runs)
    mean = rows[0]
    alt = f"{mean[0]}: " + ", ".join(f"{run.title} {cell}" for run, cell in zip(runs, mean[1:], strict=True))
    plots = (
        (
            "Job completion time",
            "Share of jobs that end within a time of their submission.",
            time_distributions(runs, [run.outcomes.jct_s for run in runs], "job completion time"),
        ),
        ("Queueing delay by size", "Mean time without GPUs at work, by GPUs asked for.", delay_bars(runs)),
        ("GPUs in use", "Share of all GPUs that are held, averaged over equal spans of time.", usage_lines(runs)),
        ("Jobs waiting", "Jobs that could start if there were GPUs, averaged likewise.", queue_lines(runs)),
    )
    return rendered_page(
        "demo.html.j2", demo=demo, runs=runs, columns=columns, rows=rows, gpus=sum(demo.nodes),
        gpu_hours=float((demo.trace.gpus * demo.trace.duration_s).sum()) / 3600, same=_equal_runs(runs),
        plots=[PagePlot(title, text, alt, figure_html(figure, number))
               for number, (title, text, figure) in enumerate(plots)],
    )  # fmt: skip


def _equal_runs(runs: Sequence[DemoRun]) -> list[tuple[str, str]]:
    """Pairs of titles whose every job ended alike: their lines cover each other."""
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    return [(a.contender.title, b.contender.title) for a, b in pairs if a.outcomes.digest == b.outcomes.digest]
