"""What single published simulators do besides: settings of the ideal cluster and a profiling stage, off by default.

docs/reproduced.md names the simulator of each.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Labels
from slurmsched.model.columns import Bools, Floats, Int64s, frozen
from slurmsched.model.job_outcomes import JobOutcomes, JobRuns
from slurmsched.model.trace import Trace
from slurmsched.sim.ideal.ideal_settings import IdealSettings, check_time

NodeChoice = Literal["fullest", "rest-emptiest"]
NODE_CHOICES: tuple[NodeChoice, ...] = ("fullest", "rest-emptiest")
Steps = Sequence[tuple[int, float]]  # from that many GPUs on, that many seconds; GPUs ascending


@dataclass(frozen=True, slots=True)
class PublishedSettings(IdealSettings):
    """IdealSettings, and the habits of single simulators. Times in seconds.

    profile_gpus: GPUs besides the cluster's on which small jobs run first (see profiling_stage). 0: none.
    profile_s: A job runs there for at most so long. A job that has not ended then begins anew on the cluster.
    profile_most_gpus: Larger jobs are not profiled.
    restart_cost_by_gpus: restart_cost_s of jobs with at least that many GPUs.
    event_cost_s: Progress that every running job loses at any event, at most what it made since the event before.
        By model ("": any other) and GPUs.
    costs_known: The time limits that a policy sees grow by such costs, so that limit less executed is what remains.
    node_gpus: The plan counts GPUs, but a job starts only on the fewest nodes of this many GPUs. Without such a place
        it waits for the next plan, and the GPUs it was to get idle. 0: a start always succeeds.
    node_choice: Which node a gang gets there. "fullest": the one with the fewest free GPUs. "rest-emptiest": the same,
        but what a gang needs besides whole nodes is taken from the emptiest.
    refusal_blocks: A start that fails there holds back those behind it in the plan.
    slowdown: Run time of every job over the recorded one. Policies see the longer one.
    rounds_follow: A round begins when the one before is over: after round_s, or when all its jobs have ended.
    hold_s: With rounds_follow a plan stands for so long at least.
    adapts: Table of throughputs by whose steps jobs train. They change their batch size between such rounds (see
        adapting_jobs). "": run times as recorded.
    Raises ConfigError for a negative or infinite time, or steps that do not ascend.
    """

    profile_gpus: int = 0
    profile_s: float = 200.0
    profile_most_gpus: int = 8
    restart_cost_by_gpus: Steps = ()
    event_cost_s: Mapping[str, Steps] = field(default_factory=dict)
    costs_known: bool = False
    node_gpus: int = 0
    node_choice: NodeChoice = "fullest"
    refusal_blocks: bool = False
    slowdown: float = 1.0
    rounds_follow: bool = False
    hold_s: float = 0.0
    adapts: str = ""

    def __post_init__(self) -> None:
        IdealSettings.__post_init__(self)
        check_time("hold_s", self.hold_s)
        if not isinstance(self.slowdown, int | float) or not 0 < self.slowdown < math.inf:
            raise ConfigError(f"must be a number above 0, got {self.slowdown}", key="model.slowdown")
        if self.rounds_follow and not self.round_s:
            raise ConfigError("needs round_s, the longest that a round takes", key="model.rounds_follow")
        self._check_nodes()
        self._check_profile()
        self._check_costs()

    def _check_nodes(self) -> None:
        if self.node_choice not in NODE_CHOICES:
            words = ", ".join(NODE_CHOICES)
            raise ConfigError(f"must be one of {words}, got {self.node_choice!r}; first fit is "
                              "--placement consolidated:node_choice=first", key="model.node_choice")  # fmt: skip
        if not isinstance(self.node_gpus, int) or self.node_gpus < 0:
            raise ConfigError(f"must be a number of GPUs, or 0, got {self.node_gpus}", key="model.node_gpus")

    def _check_costs(self) -> None:
        if not isinstance(self.event_cost_s, Mapping):
            raise ConfigError(f"must be a table of steps by model, got {self.event_cost_s!r}", key="model.event_cost_s")
        _check_steps("restart_cost_by_gpus", self.restart_cost_by_gpus)
        for steps in self.event_cost_s.values():
            _check_steps("event_cost_s", steps)

    def _check_profile(self) -> None:
        for name, least in (("profile_gpus", 0), ("profile_most_gpus", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"must be a number of GPUs of at least {least}, got {value!r}", key=f"model.{name}")
        check_time("profile_s", self.profile_s)
        if self.profile_gpus and not self.profile_s:
            raise ConfigError("must be a time above 0 s: jobs are profiled for so long", key="model.profile_s")
        if self.profile_gpus and (self.adapts or self.rounds_follow or self.slowdown != 1.0):
            raise ConfigError("cannot be combined with adapts, rounds_follow or slowdown", key="model.profile_gpus")

    @property
    def own_cluster(self) -> bool:
        """Whether anything is set that only PublishedCluster does."""
        return bool(self.restart_cost_by_gpus or self.event_cost_s or self.costs_known or self.node_gpus)

    @property
    def costs_vary(self) -> bool:
        """Whether a preemption costs some jobs more than others."""
        return bool(self.restart_cost_by_gpus or self.event_cost_s)

    def restart_costs(self, gpus: Int64s) -> Floats:
        """Run time without progress at a restart of jobs with that many GPUs [s]. (J,)."""
        return _step_at(gpus, self.restart_cost_by_gpus, self.restart_cost_s)

    def event_costs(self, models: Labels, gpus: Int64s) -> Floats:
        """Progress that these jobs lose at an event [s]. models, gpus: (J,)."""
        costs = _step_at(gpus, self.event_cost_s.get("", ()), 0.0)
        for model in self.event_cost_s.keys() & set(models.names):
            costs = np.where(models.isin([model]), _step_at(gpus, self.event_cost_s[model], 0.0), costs)
        return costs


def _step_at(gpus: Int64s, steps: Steps, below: float) -> Floats:
    """The step of each number of GPUs, `below` under the first. (J,)."""
    least = np.array([step[0] for step in steps], np.int64)
    values = np.array([below, *(step[1] for step in steps)], np.float64)
    found: Floats = values[np.searchsorted(least, gpus, side="right")]
    return found


def _check_steps(name: str, steps: Steps) -> None:
    if isinstance(steps, str) or not all(isinstance(step, list | tuple) and len(step) == 2 for step in steps):
        raise ConfigError(f"must be steps of GPUs and seconds, [[1, 5], [9, 60]], got {steps!r}", key=f"model.{name}")
    gpus = [step[0] for step in steps]
    if gpus != sorted(set(gpus)):
        raise ConfigError(f"GPUs must ascend, got {gpus}", key=f"model.{name}")
    for step in steps:
        check_time(name, step[1])


# The profiling stage: before a replay new jobs run for a short capped time on a few GPUs set aside for that.


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
