"""A comparison: each trace is replayed under each policy. The figures stand side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from slurmsched import __version__
from slurmsched.errors import ConfigError, InputError, SlurmschedError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes, JobRuns, UsageHistory, by_size
from slurmsched.model.policy_info import PolicyInput, PolicyLever, policy_info
from slurmsched.model.trace import RecordedTrace, Trace, trace_digest
from slurmsched.observe.fairness import (
    FairnessFigures,
    JobTenants,
    TenantChange,
    ended_in_both,
    jct_alone_s,
    tenant_changes,
)
from slurmsched.observe.html_page import TimeUnit, unit_for_jobs
from slurmsched.sim.experiments.back_test import BackTest, back_test
from slurmsched.sim.experiments.released_policies import load_policy
from slurmsched.sim.experiments.replay_request import UNRANKED_POLICIES, ReplayRequest
from slurmsched.sim.experiments.replay_result import Rows, job_rows
from slurmsched.sim.experiments.replay_session import ReplaySession


@dataclass(frozen=True, slots=True)
class ComparisonCase:
    """One replay of a comparison: a trace, by its place among them, and what to do with it.

    beside: it is for the back-test only, no policy of the comparison.
    """

    trace: int
    request: ReplayRequest
    beside: bool = False

    @property
    def is_slurm_alone(self) -> bool:
        """Whether nobody steers Slurm, in the slurmctld model."""
        return self.request == slurm_alone(self.request)


@dataclass(frozen=True, slots=True, eq=False)
class PlayedCase:
    """What came of a case.

    figures: as `replay --json`.
    outcomes: of the jobs that count.
    everyone: of all jobs.
    node_lists: of each job of the trace.
    """

    case: ComparisonCase
    figures: dict[str, Any]
    outcomes: JobOutcomes
    history: UsageHistory
    runs: JobRuns
    everyone: JobOutcomes
    node_lists: Labels

    @property
    def title(self) -> str:
        """The policy as it was named, marked where it takes GPUs from running jobs as the daemon does."""
        return policy_title(self.case.request)

    @property
    def policy(self) -> str:
        """Its name without parameters."""
        return self.case.request.policy.partition(":")[0]

    @property
    def complete(self) -> bool:
        return bool(self.figures.get("complete", True))


def slurm_alone(request: ReplayRequest) -> ReplayRequest:
    """The same on the slurmctld model, where nobody steers Slurm."""
    return replace(request, model="slurm", policy="slurm", preempt=None, parameters={}, hints="", placement="count",
                   tiers=(), age_cap_s=0.0, moldable=False)  # fmt: skip


def policy_title(request: ReplayRequest) -> str:
    """What a request is called beside others."""
    more = {"+preempt": request.preempt is not None, "+moldable": request.moldable}
    return " ".join([request.policy, *(word for word, is_on in more.items() if is_on)])


def with_moldable_starts(requests: Sequence[ReplayRequest]) -> list[ReplayRequest]:
    """Each request, and behind each whose policy ranks jobs the same with jobs that may start with fewer GPUs."""
    made = []
    for request in requests:
        may = request.policy.partition(":")[0] not in UNRANKED_POLICIES or request.model == "ideal"
        made += [replace(request, moldable=False), *([replace(request, moldable=True)] if may else [])]
    return made


def with_daemon_preemption(
    requests: Sequence[ReplayRequest], sections: Mapping[str, Any], hints: str = ""
) -> list[ReplayRequest]:
    """Each request, and behind each whose policy ranks jobs the same with the daemon's own preemption.

    sections: as Request.preempt. hints: comment of every job, in all of them.
    """
    made = []
    for request in requests:
        plain = replace(request, hints=hints)
        taking = request.policy.partition(":")[0] not in UNRANKED_POLICIES
        made += [plain, replace(plain, preempt=sections)] if taking else [plain]
    return made


def comparison_cases(
    traces: int, requests: Sequence[ReplayRequest], recorded: Sequence[RecordedTrace] = ()
) -> list[ComparisonCase]:
    """Every trace under every request, trace by trace. recorded: the traces, for their clocks. Raises ConfigError for a
    policy named twice."""
    named = [policy_title(request) for request in requests]
    for name in named:
        if named.count(name) > 1:
            raise ConfigError(f"{name!r} is named twice; each policy or setting once", key="policy")
    clocks = [each.clock_s for each in recorded] or [None] * traces
    return [
        ComparisonCase(trace, replace(request, origin_s=clocks[trace]))
        for trace in range(traces)
        for request in requests
    ]


def with_back_test(cases: Sequence[ComparisonCase], recorded: Sequence[RecordedTrace]) -> list[ComparisonCase]:
    """The cases, and Slurm alone for each trace with recorded starts that the slurmctld model is to replay, unless it
    is among them."""
    made = list(cases)
    for place, each in enumerate(recorded):
        mine = [case for case in cases if case.trace == place and case.request.model == "slurm"]
        if mine and each.has_starts and not any(case.is_slurm_alone for case in mine):
            made.append(ComparisonCase(place, slurm_alone(mine[0].request), beside=True))
    return made


def checked_cases(
    names: Sequence[str], recorded: Sequence[RecordedTrace], requests: Sequence[ReplayRequest], by: str, *,
    back_test: bool,
) -> list[ComparisonCase]:  # fmt: skip
    """Every trace under every request, and for the back-test under Slurm alone.

    names: of the traces.
    Raises ConfigError for a policy named twice, InputError for a trace and a policy that cannot be compared.
    """
    cases = comparison_cases(len(names), requests, recorded)
    for name, each in zip(names, recorded, strict=True):
        check_comparison(each, name, requests, by)
    return with_back_test(cases, recorded) if back_test else cases


def tested_replay(
    recorded: RecordedTrace, session: ReplaySession, play: Callable[[ReplaySession], bool]
) -> BackTest | None:
    """The back-test of a trace that was replayed; None without recorded starts, and on the ideal cluster.

    play: replays Slurm alone, where that is not what was replayed; False if it was interrupted.
    """
    if session.request.model != "slurm" or not recorded.has_starts:
        return None
    alone = slurm_alone(session.request)
    if alone != session.request:
        session = ReplaySession(recorded.trace, alone)
        if not play(session):
            return None
    return back_test(recorded.trace, session.replayed.all_outcomes)


def _largest(trace: Trace) -> Int64s:
    """The rows of the largest job that counts of each partition, ascending."""
    counted = np.flatnonzero(trace.counted)
    order = counted[np.argsort(-trace.gpus[counted], kind="stable")]
    _, first = np.unique(trace.partition.codes[order], return_index=True)
    return np.sort(order[first]).astype(np.int64)


def check_comparison(recorded: RecordedTrace, source: str, requests: Sequence[ReplayRequest], by: str = "auto") -> None:
    """Find out before the first replay whether each would begin, by the largest job of each partition that counts.

    Raises InputError naming trace and policy, or the trace if it does not tell whose jobs they are (by).
    """
    JobTenants.find(recorded.trace, by, source)
    largest = recorded.trace.take(_largest(recorded.trace))
    for request in requests:
        try:
            ReplaySession(largest, request)
        except SlurmschedError as error:
            raise InputError(
                _in_full(recorded.trace, request, error), source=f"{source} under {policy_title(request)}"
            ) from error


def _in_full(trace: Trace, request: ReplayRequest, error: SlurmschedError) -> str:
    """What is wrong with the whole trace, of which the largest job made this error."""
    try:
        ReplaySession(trace, request)
    except SlurmschedError as whole:
        return str(whole)
    return str(error)


def play_case(trace: Trace, case: ComparisonCase, on_progress: Callable[[int], None]) -> PlayedCase:
    """Replay one case. After an interruption the result holds what ended until then.

    on_progress: called with the number of jobs that ended.
    """
    session = ReplaySession(trace, case.request)
    with contextlib.suppress(KeyboardInterrupt):
        session.run(on_progress)
    made = session.replayed
    history, lists = made.cluster.history, made.node_lists
    return PlayedCase(case, made.figures, made.outcomes, history, made.runs, made.all_outcomes, lists)


@dataclass(frozen=True, eq=False)
class PolicyComparison:
    """The policies of one trace side by side; the first is what the others are measured against.

    played: in the order of the policies.
    top: tenants to name that gain and lose most.
    alone: Slurm alone, where it is none of the policies.
    """

    source: str
    recorded: RecordedTrace
    played: Sequence[PlayedCase]
    by: str = "auto"
    top: int = 5
    alone: PlayedCase | None = None

    @cached_property
    def back_test(self) -> BackTest | None:
        """The recorded schedule beside Slurm alone; None without recorded starts or without the slurmctld model."""
        alone = self.alone or next((each for each in self.played if each.case.is_slurm_alone), None)
        return back_test(self.trace, alone.everyone) if alone and self.recorded.has_starts else None

    @property
    def assumptions(self) -> dict[str, Any]:
        """What the figures rest on: model, cost of a preemption, and what is assumed of the trace."""
        return {**self.played[0].figures["assumptions"], "trace": list(self.recorded.assumed)}

    @property
    def job_rows(self) -> Rows:
        """What became of each job, recorded and under each policy."""
        every = [*self.played, *([self.alone] if self.alone else [])]
        return job_rows(
            self.source, self.recorded, [(each.title, each.everyone, list(each.node_lists)) for each in every]
        )

    @property
    def trace(self) -> Trace:
        return self.recorded.trace

    @cached_property
    def tenants(self) -> JobTenants:
        return JobTenants.find(self.trace, self.by)

    @cached_property
    def alone_s(self) -> Floats:
        """JCT on an isolated share [s]. (J,)."""
        return jct_alone_s(self.trace, self.tenants, self.played[0].outcomes.cluster_gpus)

    @cached_property
    def fairness(self) -> list[FairnessFigures]:
        """One a policy."""
        return [FairnessFigures.of(self.trace, self.tenants, self.alone_s, each.outcomes) for each in self.played]

    @cached_property
    def changes(self) -> list[list[TenantChange]]:
        """One a policy, the first included, which changes nothing."""
        first = self.played[0].outcomes
        return [tenant_changes(self.trace, self.tenants, first, each.outcomes) for each in self.played]

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The figures of each policy, for JSON, table and page."""
        return [self._run(place) for place in range(len(self.played))]

    def _run(self, place: int) -> dict[str, Any]:
        each, changed = self.played[place], self.changes[place]
        gain = [_change_figures(change) for change in changed if change.change_s < 0]
        lose = [_change_figures(change) for change in reversed(changed) if change.change_s > 0]
        return {
            "trace": self.source, "policy": each.title, **each.figures,
            "wait_by_gpus_s": by_size(each.outcomes.delay_s, each.outcomes.gpus),
            "fairness": self.fairness[place].figures(),
            "ratio": ratios_to_first(each, self.played[0]),
            "as_first": as_first(each, self.played[0]) if place else None,
            "gaining": len(gain), "losing": len(lose), "gain": gain[: self.top], "lose": lose[: self.top],
        }  # fmt: skip

    def described(self) -> dict[str, Any]:
        """The trace, for JSON."""
        return {"file": self.source, "kind": self.recorded.kind, "trace_digest": trace_digest(self.trace),
                "jobs": len(self.trace), "gpus": self.played[0].outcomes.cluster_gpus if self.played else None,
                "gpu_hours": float(self.trace.gpu_s.sum()) / 3600, "warnings": self.recorded.warnings,
                "assumptions": self.assumptions if self.played else None,
                "back_test": self.back_test.figures() if self.back_test else None}  # fmt: skip


def comparisons(
    names: Sequence[str], recorded: Sequence[RecordedTrace], played: Sequence[PlayedCase], by: str, top: int
) -> list[PolicyComparison]:
    """One comparison a trace of which anything was played. names: of the traces."""
    made = []
    for place, (name, each) in enumerate(zip(names, recorded, strict=True)):
        mine = [case for case in played if case.case.trace == place]
        alone = next((case for case in mine if case.case.beside), None)
        if policies := [case for case in mine if not case.case.beside]:
            made.append(PolicyComparison(name, each, policies, by, top, alone))
    return made


def as_first(ours: PlayedCase, first: PlayedCase) -> str | None:
    """Why every job starts and ends as under the first policy; None where one does not."""
    if not same_schedule(ours, first):
        return None
    return f"every job that counts starts and ends as under {first.title}: {_why_same(ours)}"


def same_schedule(a: PlayedCase, b: PlayedCase) -> bool:
    """Whether every job starts and ends alike, to half a second."""
    one, other = a.outcomes, b.outcomes
    times = ((one.first_start_s, other.first_start_s), (one.end_s, other.end_s))
    return len(one.job_id) == len(other.job_id) and all(np.allclose(*pair, atol=0.5, rtol=0) for pair in times)


def _why_same(ours: PlayedCase) -> str:
    """What in the policy's nature explains it, as far as its PolicyInfo says."""
    name = ours.case.request.discipline.policy
    about = None if name in UNRANKED_POLICIES else policy_info(load_policy(name))
    needs = () if about is None else about.needed(ours.case.request.discipline.parameters)
    if about is not None and set(needs) <= {PolicyInput.SERVICE} and PolicyLever.REQUEUE in about.uses:
        return ("it orders by attained service, of which a job that waits for its first start has none; "
                "it can help only where running jobs may be requeued (preemption)")  # fmt: skip
    return "here its order gives every one of them the same time"


def comparison_report(
    comparisons: Sequence[PolicyComparison], seed: int, command: str = "", *, complete: bool
) -> dict[str, Any]:
    """The whole as JSON. command: the command line that makes it again."""
    return {
        "version": __version__,
        "seed": seed,
        "command": command,
        "complete": complete,
        "traces": [each.described() for each in comparisons],
        "runs": [run for each in comparisons for run in each.runs],
    }


RATIOS = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s")


def ratios_to_first(ours: PlayedCase, first: PlayedCase) -> dict[str, float | None]:
    """Our figures over those of the first policy, over the jobs that ended in both; None of nothing.

    makespan_s only where both came to their end.
    """
    pairs = [_ratio_figures(each.outcomes, ended_in_both(each.outcomes, other.outcomes))
             for each, other in ((ours, first), (first, ours))]  # fmt: skip
    found = {name: _quotient(a, b) for name, a, b in zip(RATIOS, *pairs, strict=True)}
    whole = ours.complete and first.complete
    makespan = _quotient(ours.outcomes.makespan_s, first.outcomes.makespan_s) if whole else None
    return found | {"makespan_s": makespan}


def _ratio_figures(outcomes: JobOutcomes, chosen: Bools) -> list[float]:
    """The values of RATIOS over some jobs."""
    if not chosen.any():
        return [0.0] * len(RATIOS)
    jct_s, delay_s = outcomes.jct_s[chosen], outcomes.delay_s[chosen]
    return [float(jct_s.mean()), *np.percentile(jct_s, (50, 95, 99)).tolist(), float(delay_s.mean())]


def _quotient(ours: float, first: float) -> float | None:
    return ours / first if first else None


def _change_figures(change: TenantChange) -> dict[str, Any]:
    return asdict(change) | {"change_s": change.change_s}


# The figures as text.


def unit_of_runs(runs: Sequence[Mapping[str, Any]]) -> TimeUnit:
    """The unit of the times of jobs in a table of these runs."""
    return unit_for_jobs(max((run["avg_jct_s"] for run in runs if run["jobs"]), default=0.0))


@dataclass(frozen=True, slots=True)
class ComparisonMeasure:
    """One figure of a run.

    path: keys that lead to it.
    title: `{unit}` stands for that of times.
    form: of the text; "" for a time.
    scale: what to multiply by.
    better: -1 where less is better, 1 where more is, 0 where neither.
    """

    title: str
    path: tuple[str, ...]
    form: str = ""
    scale: float = 1.0
    better: int = -1

    def value(self, run: Mapping[str, Any]) -> float | None:
        """The figure as in the JSON, None if nothing is known."""
        found: Any = run
        for key in self.path:
            found = None if found is None else found[key]
        return None if found is None or found != found else found

    def text(self, run: Mapping[str, Any], unit: TimeUnit) -> str:
        """The figure for people."""
        value = self.value(run)
        if value is None:
            return "-"
        return format(value * self.scale, self.form) if self.form else unit.text(value)

    def best(self, runs: Sequence[Mapping[str, Any]], unit: TimeUnit) -> frozenset[str]:
        """The policies with the best figure, by the digits that are shown; none where all are alike."""
        values = {run["policy"]: value for run in runs if (value := self.value(run)) is not None}
        if not self.better or not values:
            return frozenset()
        shown = {run["policy"]: self.text(run, unit) for run in runs if run["policy"] in values}
        top = shown[max(values, key=lambda name: self.better * values[name])]
        found = frozenset(name for name, text in shown.items() if text == top)
        return frozenset() if len(found) == len(runs) else found

    def ratio(self, run: Mapping[str, Any]) -> float | None:
        """Over the figure of the first policy, None if there is none."""
        found: float | None = run["ratio"].get(self.path[0]) if len(self.path) == 1 else None
        return found


def _sized(name: str) -> str:
    return f"{name} GPU" if name == "1" else f"{name} GPUs"


TIME_MEASURES = (
    ComparisonMeasure("JCT mean [{unit}]", ("avg_jct_s",)), ComparisonMeasure("JCT p50 [{unit}]", ("p50_jct_s",)),
    ComparisonMeasure("JCT p95 [{unit}]", ("p95_jct_s",)), ComparisonMeasure("JCT p99 [{unit}]", ("p99_jct_s",)),
    ComparisonMeasure("wait mean [{unit}]", ("avg_wait_s",)),
)  # fmt: skip
WAIT_MEASURES = tuple(ComparisonMeasure(f"wait mean, {_sized(name)} [{{unit}}]", ("wait_by_gpus_s", name, "mean"))
              for name, _, _ in SIZE_CLASSES)  # fmt: skip
USE_MEASURES = (
    ComparisonMeasure("makespan [{unit}]", ("makespan_s",)),
    ComparisonMeasure("preemptions", ("preemptions",), ",.0f", better=0),
    ComparisonMeasure("work lost [GPU h]", ("lost_gpu_h",), "z,.1f"),
    ComparisonMeasure("GPU utilisation [%]", ("gpu_utilisation",), ".1f", 100.0, better=1),
)  # fmt: skip
SIZED_MEASURES = USE_MEASURES[2:]  # these count a job at the size that it asks for
FAIRNESS_MEASURES = (
    ComparisonMeasure("Jain's index of slowdown", ("fairness", "jain_slowdown"), ".3f", better=1),
    ComparisonMeasure("rho mean", ("fairness", "mean_rho"), ".2f"),
    ComparisonMeasure("rho max", ("fairness", "max_rho"), ".2f"),
)
COST_MEASURES = (
    ComparisonMeasure("jobs ended", ("jobs",), ",.0f", better=1),
    ComparisonMeasure("replay took [s]", ("wall_s",), ".1f", better=0),
)
SLOWDOWN_MEASURE = ComparisonMeasure("slowdown mean", ("mean_slowdown",), ".3f")  # where there is physics
# Only for traces with deadlines.
DEADLINE_MEASURE = ComparisonMeasure("deadlines met [%]", ("deadlines_met",), ".1f", 100.0, 1)


def use_measures(runs: Sequence[Mapping[str, Any]]) -> tuple[ComparisonMeasure, ...]:
    """The figures of USE, and slowdown and deadlines where all these runs have them.

    Work lost and utilisation count a job at the size that it asks for. With elastic jobs none of them is the best.
    """
    more = (SLOWDOWN_MEASURE, DEADLINE_MEASURE)
    use = tuple(replace(each, better=0) if each in SIZED_MEASURES else each for each in USE_MEASURES)
    first = use if any("resizes" in run for run in runs) else USE_MEASURES
    return (*first, *(measure for measure in more if all(measure.path[0] in run for run in runs)))


def all_measures(runs: Sequence[Mapping[str, Any]]) -> tuple[ComparisonMeasure, ...]:
    """The figures that a table of these runs has."""
    return (*TIME_MEASURES, *WAIT_MEASURES, *use_measures(runs), *FAIRNESS_MEASURES, *COST_MEASURES)


def comparison_rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row a measure, a cell a policy; behind a figure of another than the first policy its ratio to that one. A star
    is before the best."""
    unit = unit_of_runs(runs)
    made = []
    for measure in all_measures(runs):
        cells = [measure.text(runs[0], unit), *(_with_ratio(measure, run, unit) for run in runs[1:])]
        best = measure.best(runs, unit)
        marked = [f"* {cell}" if run["policy"] in best else cell for run, cell in zip(runs, cells, strict=True)]
        made.append((measure.title.format(unit=unit.name), *marked))
    return made


def _with_ratio(measure: ComparisonMeasure, run: Mapping[str, Any], unit: TimeUnit) -> str:
    text, ratio = measure.text(run, unit), measure.ratio(run)
    return text if ratio is None else f"{text} ({ratio_text(ratio)})"


def ratio_text(ratio: float) -> str:
    """A ratio for people: "0.52x", "0.0040x"."""
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


CHANGE_COLUMNS = ("jobs", "GPU hours", "wait before [{unit}]", "wait after [{unit}]", "change [{unit}]")


def change_rows(changes: Sequence[Mapping[str, Any]], unit: TimeUnit) -> list[tuple[str, ...]]:
    """Name, then the cells of CHANGE_COLUMNS, of the tenants in `gain` or `lose` of a run."""
    return [
        (change["tenant"] or "(unknown)", f"{change['jobs']:,}", f"{change['gpu_hours']:,.1f}",
         unit.text(change["wait_before_s"]), unit.text(change["wait_after_s"]),
         f"{change['change_s'] / unit.seconds:+,.2f}") for change in changes
    ]  # fmt: skip
