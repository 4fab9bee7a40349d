"""A prepared replay, the figures that come of it, and what became of each job."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched import __version__
from slurmsched.errors import InputError
from slurmsched.model.columns import Floats, Labels
from slurmsched.model.hints import parse_hints
from slurmsched.model.hostlists import fold_hostlist
from slurmsched.model.job_outcomes import JobOutcomes, JobRuns
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.paths import draft_of, dropped
from slurmsched.protocols import DecidingPlanner, Store
from slurmsched.sim.event_loop import StandsUntil
from slurmsched.sim.experiments.adapting_jobs import UNFAIR, AdaptingCluster
from slurmsched.sim.experiments.published_settings import ProfilingStage
from slurmsched.sim.ideal.gpu_parts_cluster import GpuPartsCluster
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld, outcomes_of
from slurmsched.sim.traces.trace_io import import_polars, save_frame


def deadlines_s(trace: Trace) -> Floats:
    """When each job must have ended, on the clock of submit_s [s]; infinity without a deadline. (J,)."""
    if trace.comment.names in ((), ("",)):
        return np.full(len(trace), math.inf)
    deadlines = [parse_hints(comment).deadline for comment in trace.comment]
    pairs = zip(deadlines, trace.submit_s.tolist(), strict=True)
    return np.array([math.inf if due is None else due.due_s(at_s) for due, at_s in pairs], np.float64)


def deadlines_met(done: JobOutcomes, trace: Trace) -> dict[str, Any]:
    """`deadlines`, those of the jobs that ended, and `deadlines_met`, the share of them in time; {} without any."""
    due = dict(zip(trace.job_id.tolist(), deadlines_s(trace).tolist(), strict=True))
    mine = np.array([due[job] for job in done.job_id.tolist()], np.float64)
    known = np.isfinite(mine)
    if not known.any():
        return {}
    return {"deadlines": int(known.sum()), "deadlines_met": float((done.end_s <= mine)[known].mean())}


# A prepared replay, and its results.

SLURM_INTERVAL_S = 60.0
COMPILE_FROM_JOBS = 1_000  # below, loading the compiler takes longer than it saves


@dataclass(slots=True, eq=False)
class ReplayResult:
    """A replay, whole or cut short.

    stage: what jobs did before they came to the cluster, None if nothing.
    figures: the JSON of the command.
    """

    cluster: IdealCluster | SimulatedSlurmctld
    config: dict[str, Any]
    stage: ProfilingStage | None = None
    wall_s: float = 0.0
    cycles: int = 0
    complete: bool = False
    trace_digest: str = ""

    @property
    def trace(self) -> Trace:
        """Whose jobs it replays."""
        return self.stage.trace if self.stage else self.cluster.trace

    @property
    def outcomes(self) -> JobOutcomes:
        """Of the jobs that ended and count."""
        trace = self.trace
        return self.all_outcomes if trace.counted.all() else self.all_outcomes.of_jobs(trace.job_id[trace.counted])

    @property
    def all_outcomes(self) -> JobOutcomes:
        """Of the jobs that ended."""
        if not isinstance(self.cluster, IdealCluster):
            return outcomes_of(self.cluster)
        return self.stage.outcomes(self.cluster.outcomes()) if self.stage else self.cluster.outcomes()

    @property
    def utilisation(self) -> float:
        """Useful GPU time over all there is; where not all jobs count, the share held while those came that do."""
        counted = self.trace.counted
        if counted.all():
            return self.outcomes.utilisation
        submit_s = self.trace.submit_s[counted]
        return self.cluster.history.use_between(float(submit_s.min()), float(submit_s.max()))

    @property
    def runs(self) -> JobRuns:
        """Every run that ended."""
        if isinstance(self.cluster, IdealCluster):
            of_cluster = self.cluster.runs.of(self.cluster.job_id, self.cluster.gpus)
            return self.stage.runs(of_cluster) if self.stage else of_cluster
        return self.cluster.job.runs.of(self.cluster.trace.job_id, self.cluster.trace.gpus)

    @property
    def node_lists(self) -> Labels:
        """Nodes of the last run of each job of the trace as a hostlist, "" where nodes do not matter. (J,)."""
        if isinstance(self.cluster, IdealCluster):
            return Labels.constant("", len(self.trace))
        names, folded = [node.name for node in self.cluster.layout.nodes], dict[bytes, str]()
        lists = [""] * len(self.trace)
        for row, nodes in self.cluster.job.nodes.items():
            key = nodes.tobytes()
            if key not in folded:
                folded[key] = fold_hostlist(names[node] for node in nodes.tolist())
            lists[row] = folded[key]
        return Labels.of(lists)

    @property
    def assumptions(self) -> dict[str, str]:
        """What the cluster is a model of, and what a preemption costs there, as text."""
        if isinstance(self.cluster, IdealCluster):
            parts = "; a job on part of a GPU runs as long as recorded" * isinstance(self.cluster, GpuPartsCluster)
            return {
                "model": f"ideal: a plan is carried out at once{parts}",
                "preemption": self.cluster.model.preemption_text,
            }
        return {"model": "slurmctld", "preemption": self.cluster.model.preemption_text}

    @property
    def refused(self) -> dict[str, int]:
        """Jobs that slurmctld's model did not let in, by the limit that they exceed; they count in no figure."""
        return {} if isinstance(self.cluster, IdealCluster) else self.cluster.refused

    @property
    def figures(self) -> dict[str, Any]:
        done = self.outcomes
        spread = np.percentile(done.jct_s, (50, 95, 99)) if len(done.job_id) else np.full(3, math.nan)
        mean = (float(values.mean()) if len(values) else math.nan for values in (done.jct_s, done.delay_s))
        names = ("p50_jct_s", "p95_jct_s", "p99_jct_s")
        made = {"jobs": len(done.job_id), "avg_jct_s": next(mean)} | dict(zip(names, spread.tolist(), strict=True))
        made |= {"avg_wait_s": next(mean), "makespan_s": done.makespan_s, "preemptions": int(done.preemptions.sum())}
        made |= {"lost_gpu_h": done.lost_gpu_s / 3_600, "gpu_utilisation": self.utilisation}
        made |= {"wall_s": self.wall_s, "version": __version__}
        if isinstance(self.cluster, PhysicsCluster):
            made["mean_slowdown"] = float(done.slowdown.mean()) if len(done.job_id) else math.nan
            made |= {"resizes": int(self.cluster.resizes.sum())} if self.cluster.scales else {}
        made |= deadlines_met(done, self.trace) | (self.stage.figures if self.stage else {})
        if isinstance(self.cluster, AdaptingCluster):
            rho = self.cluster.rho()
            made |= {"worst_rho": float(rho.max(initial=0.0)), "unfair_pct": 100 * float((rho > UNFAIR).mean())}
        made |= {"refused": sum(self.refused.values())} if self.refused else {}
        made |= {"trace_digest": self.trace_digest, "seed": self.cluster.seed, "config": self.config}
        made["assumptions"] = self.assumptions
        return made if self.complete else made | {"complete": False, "jobs_of_trace": len(self.trace)}


def assumptions_text(assumed: Mapping[str, Any]) -> str:
    """What the figures rest on, in one line. assumed: of ReplayResult.assumptions, and `trace`, a list of texts."""
    return "; ".join((f"Assumed: model {assumed['model']}", f"preemption: {assumed['preemption']}", *assumed["trace"]))


@dataclass(frozen=True, slots=True, eq=False)
class PreparedReplay:
    """A replay that has not begun.

    planner: None if Slurm alone decides.
    compiled: loading the compiler pays.
    stands_until: as replay takes it.
    """

    replayed: ReplayResult
    planner: DecidingPlanner | None
    store: Store
    compiled: bool
    stands_until: StandsUntil | None = None


# What became of each job, recorded and under each policy: rows for a file, or for one job.


RECORDED = "recorded"
COLUMNS = ("trace", "schedule", "job_id", "user", "account", "partition", "qos", "gpus", "submit_s", "eligible_s",
           "start_s", "end_s", "wait_s", "nodes", "node_list", "counted")  # fmt: skip
Rows = dict[str, list[Any]]  # column -> values


def job_rows(source: str, recorded: RecordedTrace, schedules: Sequence[tuple[str, JobOutcomes, Sequence[str]]]) -> Rows:
    """A row a job and schedule, in the order of the trace; times are Unix seconds where the trace has a calendar.

    schedules: name, outcomes, and node list of each job of the trace ("" = not known).
    start_s: of the first run. A job without a start in a schedule has empty times there.
    """
    parts = [_recorded_rows(recorded)] if bool((~np.isnan(recorded.trace.start_s)).any()) else []
    parts += [_scheduled(recorded, name, outcomes, lists) for name, outcomes, lists in schedules]
    rows = {name: [part[name] for part in parts] for name in COLUMNS[1:]}
    made = {name: [value for row in zip(*columns, strict=True) for value in row] for name, columns in rows.items()}
    return {"trace": [source] * (len(parts) * len(recorded.trace))} | made


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several traces, one after the other."""
    return {name: [value for part in parts for value in part[name]] for name in COLUMNS}


def _recorded_rows(recorded: RecordedTrace) -> Rows:
    """The schedule of the trace. Of nodes it may tell the number only."""
    trace = recorded.trace
    times = {"start_s": trace.start_s, "end_s": trace.start_s + trace.duration_s}
    return _rows(recorded, RECORDED, times, [count or None for count in trace.nodes.tolist()], list(trace.node_list))


def _scheduled(recorded: RecordedTrace, name: str, outcomes: JobOutcomes, lists: Sequence[str]) -> Rows:
    place = {job: row for row, job in enumerate(outcomes.job_id.tolist())}
    at = np.array([place.get(job, -1) for job in recorded.trace.job_id.tolist()], np.int64)
    times = {"start_s": np.append(outcomes.first_start_s, np.nan)[at], "end_s": np.append(outcomes.end_s, np.nan)[at]}
    from slurmsched.model.hostlists import expand_hostlist

    counts = {text: len(expand_hostlist(text)) if text else None for text in set(lists)}
    return _rows(recorded, name, times, [counts[text] for text in lists], list(lists))


def _rows(
    recorded: RecordedTrace, schedule: str, times: dict[str, Any], nodes: Sequence[int | None], lists: list[str]
) -> Rows:
    trace, origin_s = recorded.trace, 0.0 if math.isnan(recorded.origin_s) else recorded.origin_s
    wait_s = times["start_s"] - trace.submit_s
    made: Rows = {name: list(getattr(trace, name)) for name in ("user", "account", "partition", "qos")}
    made |= {name: getattr(trace, name).tolist() for name in ("job_id", "gpus", "counted")}
    moments = {
        "submit_s": trace.submit_s,
        "eligible_s": np.where(np.isnan(trace.eligible_s), trace.submit_s, trace.eligible_s),
        **times,
    }
    made |= {name: _numbers(values + origin_s) for name, values in moments.items()}
    made |= {"wait_s": _numbers(wait_s), "nodes": list(nodes), "node_list": lists}
    return made | {"schedule": [schedule] * len(trace)}


def _numbers(values: Any) -> list[float | None]:
    """To the millisecond; None of what is not known."""
    return [None if math.isnan(value) else round(value, 3) for value in values.tolist()]


def of_job(rows: Rows, job_id: int, source: str) -> list[dict[str, Any]]:
    """The rows of one job. Raises InputError where the trace has no such job."""
    found = places_of(rows["job_id"], job_id, source)
    return [{name: values[place] for name, values in rows.items()} for place in found]


def places_of(jobs: Sequence[int], job_id: int, source: str) -> list[int]:
    """Where a job stands among these. Raises InputError where it does not."""
    if found := [place for place, job in enumerate(jobs) if job == job_id]:
        return found
    raise InputError(f"has no job {job_id} among those that are replayed", source=source)


def check_schedule_name(path: Path) -> None:
    """Raises InputError for a name that `write_job_rows` would refuse."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError("must end in .csv or .parquet", source=str(path))


def write_job_rows(path: Path, rows: Rows) -> None:
    """Write them whole or not at all: parquet, or CSV. Raises InputError if the name or the file does not allow it."""
    check_schedule_name(path)
    draft = draft_of(path)
    try:
        if path.suffix == ".parquet":
            save_frame(draft, import_polars(path).DataFrame(rows))
        else:
            draft.write_text(_csv(rows), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
    finally:
        dropped(draft)


def _csv(rows: Rows) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return file.getvalue()
