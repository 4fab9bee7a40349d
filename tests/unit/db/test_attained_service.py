"""Attained service adds up however rarely we look."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given, settings

from slurmsched.db import attained_service, services
from slurmsched.db.attained_service import ObservedJob, RunEnded, Service
from slurmsched.db.services import RunSources, Services
from slurmsched.testing import snapshot
from tests.unit.db.ledger_suite import Run

SUBMIT_S = 1000.0


@dataclass(frozen=True)
class Life:
    """A job's true life: runs (start, end, GPUs), each but the last ended by a requeue at its end."""

    runs: tuple[tuple[float, float, int], ...]

    def row(self, at_s: float) -> dict[str, object] | None:
        """The job record as Slurm would show it at at_s; None once it is forgotten (300 s after the end)."""
        ended = [run for run in self.runs if run[1] <= at_s]
        restarts = min(len(ended), len(self.runs) - 1)
        row = {"job_id": 1, "submit_s": self.runs[restarts - 1][1] if restarts else SUBMIT_S, "restarts": restarts}
        start_s, end_s, gpus = self.runs[restarts]
        if at_s < start_s:
            return row | {"state": "PENDING", "gpus": gpus}
        if at_s < end_s:
            return row | {"state": "RUNNING", "gpus": gpus, "start_s": start_s, "run_s": at_s - start_s}
        over = {"state": "COMPLETED", "gpus": gpus, "start_s": start_s, "end_s": end_s, "run_s": end_s - start_s}
        return row | over if at_s < end_s + 300 else None

    def gpu_s(self, at_s: float) -> float:
        return sum(max(min(end_s, at_s) - start_s, 0.0) * gpus for start_s, end_s, gpus in self.runs)

    def records(self, at_s: float) -> list[Run]:
        submits = [SUBMIT_S, *(end_s for _, end_s, _ in self.runs)]
        return [
            Run(1, submits[i], start_s, end_s, 0.0, gpus, "COMPLETED" if i == len(self.runs) - 1 else "REQUEUED")
            for i, (start_s, end_s, gpus) in enumerate(self.runs)
            if end_s <= at_s
        ]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Up to five runs with gaps between them."""
    clock, runs = SUBMIT_S, []
    for _ in range(draw(st.integers(1, 5))):
        start_s = clock + draw(st.integers(1, 500))
        clock = start_s + draw(st.integers(1, 2000))
        runs.append((float(start_s), float(clock), draw(st.sampled_from([1, 2, 8]))))
    return Life(tuple(runs))


def watch(life: Life, looks: list[float], *, sacct: bool) -> tuple[list[tuple[float, float]], list[object]]:
    """(attained service as recalled, the true one) at each look that shows the job, and all facts."""
    held, last_s, facts, seen = Services.build(0, {}), float("nan"), [], []
    for at_s in [*looks, looks[-1] + 10_000]:
        row = life.row(at_s)
        now = snapshot([row] if row else [], now_s=at_s)
        ends = [fact for fact in facts if isinstance(fact, RunEnded)]
        lookups = RunSources(
            lambda _, ends=ends: {1: ends}, (lambda _, t=at_s: life.records(t)) if sacct else None, sacct
        )
        look = services.observe(held, now, last_s, lookups, gpu_jobs_only=True)
        facts += look.facts
        held, last_s = look.services, at_s
        if row:
            found = services.columns(held, now.jobs, at_s)["attained_gpu_s"][0]
            seen.append((float(found), life.gpu_s(at_s)))
    return seen, facts


looks = st.lists(st.integers(1001, 14_000).map(float), min_size=1, max_size=12, unique=True).map(sorted)


@given(life=lives(), looks=looks)
@settings(deadline=None)
def test_observe__with_sacct_every_look_tells_the_true_service(life: Life, looks: list[float]) -> None:
    """However many runs passed unseen."""
    seen, _ = watch(life, looks, sacct=True)
    assert [found for found, _ in seen] == [true for _, true in seen]


@given(life=lives(), looks=looks)
@settings(deadline=None)
def test_observe__without_sacct_nothing_is_counted_twice(life: Life, looks: list[float]) -> None:
    """What nobody saw may be missing, nothing is made up."""
    seen, _ = watch(life, looks, sacct=False)
    assert [found for found, true in seen if found > true] == []


@given(life=lives(), looks=looks)
@settings(deadline=None)
def test_observe__a_job_completes_at_most_once_with_its_whole_service(life: Life, looks: list[float]) -> None:
    """History has each job once."""
    _, facts = watch(life, looks, sacct=True)
    done = [fact.gpu_s for fact in facts if type(fact).__name__ == "Completion"]
    assert done in ([], [life.gpu_s(float("inf"))])


@given(life=lives())
@settings(deadline=None)
def test_observe__looks_close_together_need_no_sacct(life: Life) -> None:
    """Slurm's own records are exact for who looks often enough."""
    end_s = int(life.runs[-1][1])
    changes = {at_s + d for run in life.runs for at_s in run[:2] for d in (0.0, 0.5)}
    seen, _ = watch(life, sorted(changes | {SUBMIT_S + 0.5, end_s + 1.0}), sacct=False)
    assert [found for found, _ in seen] == [true for _, true in seen]


def sight(**changes: object) -> ObservedJob:
    values = {"job_id": 1, "submit_s": 1000.0, "restarts": 0, "start_s": 1100.0, "end_s": float("nan"), "run_s": 100.0,
              "gpus": 4, "active": True, "paused": False, "finished": False, "completed": False}  # fmt: skip
    return ObservedJob(**values | changes)


def test_same_job__ids_wrap_around() -> None:
    """Fewer restarts than known, or a later submit without any, is a new job; a requeue is not."""
    known = Service(1, 1000.0, 1500.0, 1)
    cases = [sight(restarts=0), sight(restarts=1, submit_s=1500.0), sight(restarts=2, submit_s=1900.0)]
    fresh = Service(1, 1000.0, 1000.0, 0)
    assert [attained_service.same_job(known, case) for case in cases] == [False, True, True]
    assert not attained_service.same_job(fresh, sight(submit_s=1000.5))


def test_settle__parts_of_a_resized_run_are_one_run() -> None:
    """sacct gives a record per size, all under one submit time."""
    told = [Run(1, 1000.0, 1100.0, 1200.0, 0.0, 8, "RESIZING"), Run(1, 1000.0, 1200.0, 1400.0, 20.0, 2)]
    service = attained_service.first_sight(sight(submit_s=1400.0, restarts=1, active=False))
    settled, ends = attained_service.merge_sacct_runs(service, [], told, fresh=True)
    assert (settled.gpu_s, settled.executed_s, settled.missing) == (800.0 + 360.0, 280.0, 0)
    assert [(end.run, end.start_s, end.end_s) for end in ends] == [(0, 1100.0, 1400.0)]


def test_settle__what_sacct_does_not_know_yet_counts_as_we_saw_it() -> None:
    """slurmdbd lags behind: own account for that run, and the question stays open."""
    own = RunEnded(1, 1000.0, 0, 1100.0, 1190.0, 90.0, 360.0, "observed")
    service = Service(1, 1000.0, 1600.0, 2, executed_s=90.0, gpu_s=360.0, runs=2, missing=1)
    settled, ends = attained_service.merge_sacct_runs(service, [own], [], fresh=False)
    assert (settled.gpu_s, settled.missing, settled.asks, ends) == (360.0, 1, 1, [])
