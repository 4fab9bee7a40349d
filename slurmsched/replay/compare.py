"""A comparison: traces x policies, each replayed by itself, and the figures that set them side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from slurmsched import __version__
from slurmsched.errors import ConfigError, InputError, SlurmschedError
from slurmsched.model.columns import Bools, Floats
from slurmsched.replay.fairness import Change, Fairness, Tenants, changes, in_both, jct_alone_s
from slurmsched.replay.metrics import History, Outcomes, Ran, by_size
from slurmsched.replay.request import Request
from slurmsched.replay.run import Session
from slurmsched.replay.trace_files import Recorded
from slurmsched.replay.traces import Trace, trace_digest


@dataclass(frozen=True, slots=True)
class Case:
    """One replay of a comparison: a trace, by its place among them, and what to do with it."""

    trace: int
    request: Request


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What came of a case. figures: as `replay --json`."""

    case: Case
    figures: dict[str, Any]
    outcomes: Outcomes
    history: History
    runs: Ran

    @property
    def title(self) -> str:
        """The policy as it was named, marked where it takes GPUs from running jobs as the daemon does."""
        return titled(self.case.request)

    @property
    def complete(self) -> bool:
        return bool(self.figures.get("complete", True))


UNRANKED = ("slurm", "easy")  # policies that rank no jobs: nobody can lose GPUs to another one


def titled(request: Request) -> str:
    """What a request is called beside others."""
    return request.policy if request.preempt is None else f"{request.policy} +preempt"


def preempting(requests: Sequence[Request], sections: Mapping[str, Any], hints: str = "") -> list[Request]:
    """Each request, and behind each whose policy ranks jobs the same with the daemon's own preemption.

    sections: as Request.preempt. hints: comment of every job, in all of them.
    """
    made = []
    for request in requests:
        plain = replace(request, hints=hints)
        taking = request.policy.partition(":")[0] not in UNRANKED
        made += [plain, replace(plain, preempt=sections)] if taking else [plain]
    return made


def cases(traces: int, requests: Sequence[Request]) -> list[Case]:
    """Every trace under every request, trace by trace. Raises ConfigError for a policy named twice."""
    named = [titled(request) for request in requests]
    for name in named:
        if named.count(name) > 1:
            raise ConfigError(f"{name!r} is named twice; each policy or setting once", key="policy")
    return [Case(trace, request) for trace in range(traces) for request in requests]


def check(recorded: Recorded, source: str, requests: Sequence[Request], by: str = "auto") -> None:
    """Find out before the first replay whether each would begin, by the trace's largest job.

    Raises InputError naming trace and policy, or the trace if it does not tell whose jobs they are (by).
    """
    Tenants.find(recorded.trace, by, source)
    largest = recorded.trace.take([int(np.argmax(recorded.trace.gpus))])
    for request in requests:
        try:
            Session(largest, request)
        except SlurmschedError as error:
            raise InputError(
                _in_full(recorded.trace, request, error), source=f"{source} under {titled(request)}"
            ) from error


def _in_full(trace: Trace, request: Request, error: SlurmschedError) -> str:
    """What is wrong with the whole trace, of which the largest job made this error."""
    try:
        Session(trace, request)
    except SlurmschedError as whole:
        return str(whole)
    return str(error)


def play(trace: Trace, case: Case, on_progress: Callable[[int], None]) -> Played:
    """Replay one case; after an interruption what there is so far. on_progress: told how many jobs ended."""
    session = Session(trace, case.request)
    with contextlib.suppress(KeyboardInterrupt):
        session.run(on_progress)
    made = session.replayed
    return Played(case, made.figures, made.outcomes, made.cluster.history, made.runs)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The policies of one trace side by side; the first is what the others are measured against.

    played: in the order of the policies. top: tenants to name that gain and lose most.
    """

    source: str
    recorded: Recorded
    played: Sequence[Played]
    by: str = "auto"
    top: int = 5

    @property
    def trace(self) -> Trace:
        return self.recorded.trace

    @cached_property
    def tenants(self) -> Tenants:
        return Tenants.find(self.trace, self.by)

    @cached_property
    def alone_s(self) -> Floats:
        """JCT on an isolated share [s]. (J,)."""
        return jct_alone_s(self.trace, self.tenants, self.played[0].outcomes.cluster_gpus)

    @cached_property
    def fairness(self) -> list[Fairness]:
        """One a policy."""
        return [Fairness.of(self.trace, self.tenants, self.alone_s, each.outcomes) for each in self.played]

    @cached_property
    def changes(self) -> list[list[Change]]:
        """One a policy, the first included, which changes nothing."""
        first = self.played[0].outcomes
        return [changes(self.trace, self.tenants, first, each.outcomes) for each in self.played]

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The figures of each policy, for JSON, table and page."""
        return [self._run(place) for place in range(len(self.played))]

    def _run(self, place: int) -> dict[str, Any]:
        each, changed = self.played[place], self.changes[place]
        gain = [_shown(change) for change in changed if change.change_s < 0]
        lose = [_shown(change) for change in reversed(changed) if change.change_s > 0]
        return {
            "trace": self.source, "policy": each.title, **each.figures,
            "wait_by_gpus_s": by_size(each.outcomes.delay_s, each.outcomes.gpus),
            "fairness": self.fairness[place].figures(),
            "ratio": ratios(each, self.played[0]),
            "gaining": len(gain), "losing": len(lose), "gain": gain[: self.top], "lose": lose[: self.top],
        }  # fmt: skip

    def described(self) -> dict[str, Any]:
        """The trace, for JSON."""
        return {"file": self.source, "kind": self.recorded.kind, "trace_digest": trace_digest(self.trace),
                "jobs": len(self.trace), "gpus": self.played[0].outcomes.cluster_gpus if self.played else None,
                "gpu_hours": float(self.trace.gpu_s.sum()) / 3600, "warnings": self.recorded.warnings}  # fmt: skip


def report(comparisons: Sequence[Comparison], seed: int, *, complete: bool) -> dict[str, Any]:
    """The whole as JSON."""
    return {
        "version": __version__,
        "seed": seed,
        "complete": complete,
        "traces": [each.described() for each in comparisons],
        "runs": [run for each in comparisons for run in each.runs],
    }


RATIOS = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s")


def ratios(ours: Played, first: Played) -> dict[str, float | None]:
    """Our figures over those of the first policy, over the jobs that ended in both; None of nothing.

    makespan_s only where both came to their end.
    """
    pairs = [_times(each.outcomes, in_both(each.outcomes, other.outcomes))
             for each, other in ((ours, first), (first, ours))]  # fmt: skip
    found = {name: _over(a, b) for name, a, b in zip(RATIOS, *pairs, strict=True)}
    whole = ours.complete and first.complete
    makespan = _over(ours.outcomes.makespan_s, first.outcomes.makespan_s) if whole else None
    return found | {"makespan_s": makespan}


def _times(outcomes: Outcomes, chosen: Bools) -> list[float]:
    """The values of RATIOS over some jobs."""
    if not chosen.any():
        return [0.0] * len(RATIOS)
    jct_s, delay_s = outcomes.jct_s[chosen], outcomes.delay_s[chosen]
    return [float(jct_s.mean()), *np.percentile(jct_s, (50, 95, 99)).tolist(), float(delay_s.mean())]


def _over(ours: float, first: float) -> float | None:
    return ours / first if first else None


def _shown(change: Change) -> dict[str, Any]:
    return asdict(change) | {"change_s": change.change_s}
