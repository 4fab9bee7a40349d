"""A profiling stage before a replay: new jobs run for a short capped time on a few GPUs set aside for that."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Floats, frozen
from slurmsched.model.job_outcomes import JobOutcomes, JobRuns
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.published_settings import PublishedSettings


@dataclass(frozen=True, slots=True, eq=False)
class ProfilingStage:
    """What became of a trace's jobs in the stage.

    start_s, end_s: (J,) [s], NaN of a job that is too large for it.
    done: (J,) it ended there by itself.
    gpus: of the stage, which the cluster does not have.
    """

    trace: Trace
    gpus: int
    start_s: Floats
    end_s: Floats
    done: Bools

    @property
    def rest(self) -> Trace:
        """The jobs that the cluster is left with, as they come to it from the stage, to be run from their start."""
        came_s = np.where(np.isnan(self.end_s), self.trace.submit_s, self.end_s)
        moved = self.trace.with_columns(submit_s=frozen(came_s, np.float64)).take(~self.done)
        return moved.take(np.lexsort((moved.job_id, moved.submit_s)))

    def outcomes(self, of_cluster: JobOutcomes) -> JobOutcomes:
        """Of all jobs that ended, in the trace's order. A run that the stage stopped counts as a preemption, and made
        no progress."""
        trace, place = self.trace, {job: row for row, job in enumerate(of_cluster.job_id.tolist())}
        at = np.array([place.get(job, -1) for job in trace.job_id.tolist()], np.int64)
        here = np.where(np.isnan(self.end_s), 0.0, self.end_s - self.start_s)
        stopped = ~np.isnan(self.end_s) & ~self.done

        def beside(column: Any, otherwise: Any) -> Any:
            return np.where(at >= 0, np.append(column, 0)[at], otherwise)

        columns: dict[str, Any] = {
            "job_id": trace.job_id, "gpus": trace.gpus, "submit_s": trace.submit_s,
            "first_start_s": np.where(np.isnan(self.start_s), beside(of_cluster.first_start_s, np.nan), self.start_s),
            "end_s": beside(of_cluster.end_s, self.end_s), "executed_s": here + beside(of_cluster.executed_s, 0.0),
            "useful_s": beside(of_cluster.useful_s, here), "preemptions": stopped + beside(of_cluster.preemptions, 0),
        }  # fmt: skip
        ended = self.done | (at >= 0)
        cut = {name: frozen(column[ended], column.dtype) for name, column in columns.items()}
        return replace(of_cluster, **cut, cluster_gpus=of_cluster.cluster_gpus + self.gpus)

    def runs(self, of_cluster: JobRuns) -> JobRuns:
        """Every run, those of the stage too, in order of the ends."""
        ran = ~np.isnan(self.start_s)
        mine = (self.trace.job_id, self.trace.gpus, self.start_s, self.end_s)
        columns = [np.concatenate([theirs, own[ran]]) for theirs, own in zip(of_cluster, mine, strict=True)]
        order = np.argsort(columns[3], kind="stable")
        return JobRuns(*(column[order] for column in columns))

    @property
    def figures(self) -> dict[str, Any]:
        """`profiled`, jobs that ran in the stage; `profiled_done`, those that ended there; mean wait for it [s]."""
        ran = ~np.isnan(self.start_s)
        wait_s = float((self.start_s - self.trace.submit_s)[ran].mean()) if ran.any() else 0.0
        return {"profiled": int(ran.sum()), "profiled_done": int(self.done.sum()), "profile_wait_s": wait_s}


def profiled(trace: Trace, model: PublishedSettings) -> ProfilingStage:
    """The trace's jobs through the stage that the model's settings describe.

    The job of the fewest GPUs goes first, then the one that came first; the first that does not fit waits, and all
    behind it. A job runs until it ends or for profile_s.
    Source: Hu et al. (Lucid), ASPLOS '23, for the stage, its time limit and the order by GPUs; that GPUs are counted
    and nodes do not matter there is ours.
    """
    start_s, end_s = np.full(len(trace), np.nan), np.full(len(trace), np.nan)
    most = min(model.profile_gpus, model.profile_most_gpus)
    rows = [row for row, gpus in enumerate(trace.gpus.tolist()) if gpus <= most]
    run_s, gpus, submit_s = np.minimum(trace.duration_s, model.profile_s).tolist(), trace.gpus.tolist(), trace.submit_s
    waiting, running, free, arrived = list[tuple[int, int]](), list[tuple[float, int]](), model.profile_gpus, 0
    while arrived < len(rows) or running:
        came_s = float(submit_s[rows[arrived]]) if arrived < len(rows) else math.inf
        now_s = min(came_s, running[0][0] if running else math.inf)
        while running and running[0][0] <= now_s:
            free += gpus[heapq.heappop(running)[1]]
        while arrived < len(rows) and submit_s[rows[arrived]] <= now_s:
            heapq.heappush(waiting, (gpus[rows[arrived]], rows[arrived]))
            arrived += 1
        while waiting and waiting[0][0] <= free:
            row = heapq.heappop(waiting)[1]
            start_s[row], end_s[row], free = now_s, now_s + run_s[row], free - gpus[row]
            heapq.heappush(running, (end_s[row], row))
    done = ~np.isnan(end_s) & (trace.duration_s <= model.profile_s)
    return ProfilingStage(trace, model.profile_gpus, start_s, end_s, done)
