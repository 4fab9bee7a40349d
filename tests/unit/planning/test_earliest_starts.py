"""Earliest starts written for the policy: given, moved, renewed, given back, and left alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from slurmsched.config import GangsConfig, LeverConfig, PaceConfig, PreemptionConfig, ScopeConfig, StarvationConfig
from slurmsched.model import (
    JobChanges,
    Labels,
    Operation,
    Override,
    OverrideState,
    Purpose,
    Ranking,
    Rights,
    SetStart,
    Site,
    Snapshot,
)
from slurmsched.model.ordering import ordered
from slurmsched.planning.earliest_starts import own_starts, restore_proposal, unwritten_changes
from slurmsched.planning.planner import Planner
from slurmsched.testing import snapshot

NOW = 1_000.0
INF = np.inf


@dataclass(frozen=True)
class Wanting:
    """A policy that wants each job, by id, to start at a time. It notes whether it may start as its user says."""

    preemptive: ClassVar[bool] = False
    start_s: dict[int, float] = field(default_factory=dict)

    def rank(self, given: Snapshot) -> Ranking:
        jobs = given.jobs
        start_s = np.array([self.start_s.get(int(job), -INF) for job in jobs.job_id])
        may = np.nan_to_num(jobs.eligible_s) <= given.now_s
        return Ranking(ordered(jobs), why={"may_start": may}, changes=JobChanges(start_s=start_s))


def queue(*rows: dict[str, Any], **others: Any) -> Snapshot:
    jobs = [{"job_id": number, "submit_s": 900.0, "eligible_s": 900.0, **row} for number, row in enumerate(rows, 1)]
    return snapshot(jobs, "1x8", now_s=NOW, site=Site(rights=Rights.OPERATOR), **others)


def planner(start_s: dict[int, float], **lever: Any) -> Planner:
    return Planner(Wanting(start_s), scope=ScopeConfig(partitions=("gpu",)),
                   lever=LeverConfig(**{"start": True, "start_most_s": 600, **lever}))  # fmt: skip


def starts(plan: Any) -> dict[int, tuple[float, bool]]:
    """What is written: job -> start, and whether it gives it back."""
    return {action.job_id: (action.new, action.restores) for action in plan.actions if action.kind == "defer"}


def held(until_s: float, job: int = 1, base_s: float = 0.0, *, over: bool = False, **others: Any) -> Override:
    state = OverrideState.ABANDONED if over else OverrideState.ACTIVE
    return Override(job, 900.0, "start_time", base_s, until_s, state, **others)


def test_deferrals__nothing_is_written_by_default() -> None:
    """lever.start is off: the policy wants, and nobody tells Slurm."""
    plan = Planner(Wanting({1: 1_300.0}), scope=ScopeConfig(partitions=("gpu",))).plan(queue({}))
    assert (starts(plan), plan.overrides) == ({}, ())
    assert plan.notes == ("the policy would start 1 job later; set lever.start = true to write that",)


def test_unwritten_changes__sizes_and_types_that_slurm_does_not_hear_of() -> None:
    """One job of another size, one of a type that it does not ask for; what it asks for already is no news."""
    given = queue({"gpus": 2}, {"gpus": 2}, {"gpu_request": "gpu:a100:1"}, {"gpu_request": "gpu:1"})
    wants = JobChanges(gpus=np.array([4, 2, 0, 0], np.int32), gpu_type=Labels.of(["", "", "a100", "v100"]))
    found = unwritten_changes(given, Ranking(np.arange(4), changes=wants), np.ones(4, np.bool_), LeverConfig())
    assert found == (
        "the policy would give 1 job another number of GPUs; set lever.size = true to write that",
        "the policy would run 1 job on a certain GPU type; set placement.types = true to send them there",
    )


def test_unwritten_changes__who_would_be_on_the_gpus_of_another_job() -> None:
    """Two guests that wait count; without one nothing is said."""
    given = queue({}, {}, {})
    found = [
        unwritten_changes(
            given, Ranking(np.arange(3), changes=JobChanges(beside=np.array(ids))), np.ones(3, np.bool_), LeverConfig()
        )
        for ids in ([-1, 1, 1], [-1, -1, -1])
    ]
    words = "the policy would run 2 jobs on GPUs of another job; Slurm shares GPUs only as shards or MPS"
    assert found == [(words,), ()]


def test_deferrals__a_start_is_given_in_whole_seconds_and_not_too_far_away() -> None:
    """Job 1 in 300.5 s; job 2 in hours, job 3 nobody knows when: both for 600 s; job 4 at once."""
    plan = planner({1: 1_300.5, 2: 9_000.0, 3: INF}).plan(queue({}, {}, {}, {}))
    assert starts(plan) == {1: (1_301.0, False), 2: (1_600.0, False), 3: (1_600.0, False)}
    first = {"base_s": 900.0}  # what they have now
    assert plan.overrides == (held(1_301.0, **first), held(1_600.0, 2, **first), held(1_600.0, 3, **first))


@pytest.mark.parametrize(
    ("until_s", "want_s", "written"),
    [
        (1_300.0, 1_300.0, {}),  # it has it
        (1_300.0, 1_400.0, {1: (1_400.0, False)}),  # the policy wants another one
        (1_301.0, 1_300.0, {}),  # Slurm keeps whole seconds
        (1_590.0, INF, {}),  # nobody knows when: more than half is left
        (1_299.0, INF, {1: (1_600.0, False)}),  # less than half: renewed
        (1_900.0, INF, {1: (1_600.0, False)}),  # the most was made less
        (1_300.0, -INF, {1: (1_000.0, True)}),  # it may start now
    ],
)
def test_deferrals__a_start_on_record_is_kept_moved_or_given_back(until_s: float, want_s: float, written: Any) -> None:
    """Fewest writes: only what differs."""
    given = queue({"eligible_s": until_s}, overrides=(held(until_s),))
    plan = planner({1: want_s}).plan(given)
    assert starts(plan) == written
    assert plan.overrides == tuple(held(0.0, note="it may start now") if back else held(at_s, values=(until_s,))
                                   for at_s, back in written.values())  # fmt: skip
    assert {action.old for action in plan.actions if isinstance(action, SetStart)} <= {until_s}


def test_deferrals__a_policy_sees_jobs_without_starts_of_ours() -> None:
    """Else it would take a job that it made wait for one that cannot start."""
    given = queue({"eligible_s": 1_300.0}, {"eligible_s": 1_300.0}, overrides=(held(1_300.0),))
    assert own_starts(given).jobs.eligible_s.tolist() == [900.0, 1_300.0]
    assert planner({1: 1_300.0}).plan(given).ranking.why["may_start"].tolist() == [True, False]  # type: ignore[union-attr]


def test_deferrals__a_start_that_somebody_else_changed_is_left_alone() -> None:
    """Here to now: the job is theirs, in this cycle and later ones."""
    given = queue({}, overrides=(held(1_300.0),))
    plan = planner({1: 1_300.0}).plan(given)
    over = held(0.0, over=True, note="somebody else changed its start")
    assert (starts(plan), plan.overrides) == ({}, (over,))
    assert starts(planner({1: 1_300.0}).plan(replace(given, overrides=(over,)))) == {}


def test_deferrals__a_renewal_that_was_not_sent_is_no_change_by_somebody_else() -> None:
    """The process ended before it was, or sending did: the job has the start before, which is renewed or given back."""
    given = queue({"eligible_s": 1_200.0}, overrides=(held(1_600.0, values=(1_200.0,), base_s=900.0),))
    plan = planner({1: INF}).plan(given)
    assert starts(plan) == {1: (1_600.0, False)}
    assert plan.overrides == (held(1_600.0, values=(1_200.0, 1_600.0), base_s=900.0),)  # whichever it has then
    assert own_starts(given).jobs.eligible_s.tolist() == [900.0]
    assert [(action.job_id, action.old) for action in restore_proposal(given, "undo").actions] == [(1, 1_200.0)]
    foreign = queue({"eligible_s": 1_400.0}, overrides=given.overrides)
    assert [record.abandoned for record in planner({1: INF}).plan(foreign).overrides] == [True]


def test_deferrals__values_that_are_past_are_forgotten() -> None:
    """So that a record of a job that waits for weeks stays short."""
    given = queue({"eligible_s": 1_200.0}, overrides=(held(1_200.0, values=(500.0, 990.0, 1_100.0)),))
    assert [record.values for record in planner({1: INF}).plan(given).overrides] == [(1_100.0, 1_200.0)]


def test_deferrals__a_first_start_that_was_not_sent_may_be_given_anew() -> None:
    """The job has what it had before: nobody changed anything, and there is nothing to give back."""
    given = queue({}, overrides=(held(1_500.0, base_s=900.0),))
    plan = planner({1: INF}).plan(given)
    assert (starts(plan), plan.overrides) == (
        {1: (1_600.0, False)}, (held(1_600.0, values=(1_500.0,), base_s=900.0),))  # fmt: skip
    assert restore_proposal(given, "undo").actions == ()


def test_deferrals__a_start_before_an_unsent_one_may_be_reached() -> None:
    """It waits no more; given anew it is known what it has."""
    given = queue({"eligible_s": 990.0}, overrides=(held(1_600.0, values=(990.0,), base_s=900.0),))
    plan = planner({1: INF}).plan(given)
    assert plan.overrides == (held(1_600.0, values=(1_600.0,), base_s=990.0),)


def test_deferrals__who_was_left_alone_is_deferred_again_after_a_run() -> None:
    """A requeue gives it another submit time."""
    given = queue({"submit_s": 950.0}, {}, overrides=(held(0.0, over=True), held(0.0, 2, over=True)))
    assert starts(planner({1: INF, 2: INF}).plan(given)) == {1: (1_600.0, False)}


def test_deferrals__a_job_for_which_others_leave_is_not_made_to_wait() -> None:
    """Its operation goes on: nodes are kept for it, and jobs may have been requeued."""
    operation = Operation("1-9", Purpose.PREEMPT, 1, 900.0, "bob", "n1", 60.0, 990.0)
    assert starts(planner({1: INF, 2: INF}).plan(queue({}, {}, operations=(operation,)))) == {2: (1_600.0, False)}


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize(
    "means",
    [
        {"preemption": PreemptionConfig(enabled=True, quantum_s=60, restart_cost_s=1)},
        {"gangs": GangsConfig(reserve=True, least_gpus=1)},
    ],
    ids=["preemption", "reserve"],
)
def test_plan__nobody_makes_room_for_a_job_that_is_to_start_later(means: dict[str, Any], start: bool) -> None:
    """Jobs outside the round may go before running ones; whether Slurm is told to start them later or not."""
    victim = {"job_id": 2, "state": "RUNNING", "submit_s": 950.0, "start_s": 0.0, "end_s": 90_000.0, "gpus": 8,
              "run_s": 1_000.0, "cpus": 8, "requeueable": True,
              "comment": "slurmsched: preempt=yes ckpt=USR2@9"}  # fmt: skip
    given = queue({"gpus": 8, "cpus": 8, "time_limit_s": 600.0}, victim,
                  allocations=[{"job_id": 2, "node": "n1", "gpus": 8}])  # fmt: skip
    for start_s, operations in ((-INF, [1]), (INF, [])):
        plan = replace(planner({1: start_s}, start=start), **means).plan(given)
        assert [operation.job_id for operation in plan.operations] == operations


def test_deferrals__a_start_that_is_reached_may_be_given_anew() -> None:
    """The lapse was reached between two cycles; the policy still wants the job to wait."""
    given = queue({"eligible_s": 990.0}, overrides=(held(990.0),))
    assert starts(planner({1: INF}).plan(given)) == {1: (1_600.0, False)}


@pytest.mark.parametrize(
    "row",
    [{"eligible_s": 5_000.0}, {"state": "RUNNING", "start_s": 950.0}, {"priority": 0}, {"partition": "cpu"},
     {"dependency": "afterok:7(unfulfilled)"}],
    ids=["begins later by itself", "running", "held", "not in scope", "dependent"],
)  # fmt: skip
def test_deferrals__only_managed_jobs_that_could_start_get_one(row: dict[str, Any]) -> None:
    """All others wait, or run, without us."""
    assert starts(planner({1: 1_300.0}).plan(queue(row))) == {}


def test_deferrals__arrays_and_het_jobs_are_told_why_not() -> None:
    """One start is that of all tasks, and components start together."""
    given = queue({"array_job_id": 1, "array_tasks": 4}, {"het_job_id": 2})
    plan = planner({1: 1_300.0, 2: 1_300.0}).plan(given)
    assert starts(plan) == {}
    assert {refusal.job_id: refusal.rule for refusal in plan.refused} == {1: "start-array", 2: "start-het"}


def test_deferrals__turned_off_everything_goes_back() -> None:
    """Also a job that has left the scope meanwhile."""
    given = queue({"eligible_s": 1_300.0}, {"eligible_s": 1_300.0, "partition": "cpu"},
                  overrides=(held(1_300.0), held(1_300.0, 2)))  # fmt: skip
    assert starts(planner({1: 1_300.0, 2: 1_300.0}, start=False).plan(given)) == {1: (NOW, True), 2: (NOW, True)}
    assert starts(planner({1: 1_300.0, 2: 1_300.0}).plan(given)) == {2: (NOW, True)}


def test_deferrals__who_waited_past_the_age_cap_may_start() -> None:
    """The hard cap stands above what the policy wants."""
    one = replace(planner({1: INF}), starvation=StarvationConfig(age_cap_s=50))
    given = queue({"eligible_s": 1_300.0, "waiting_s": 100.0}, overrides=(held(1_300.0),))
    assert starts(one.plan(given)) == {1: (NOW, True)}


def test_deferrals__without_operator_rights_nothing_is_planned() -> None:
    """StartTime of others' jobs needs Operator."""
    given = replace(queue({}), site=Site(rights=Rights.NONE))
    assert starts(planner({1: 1_300.0}).plan(given)) == {}


def test_deferrals__count_against_the_writes_of_a_cycle() -> None:
    """Two starts and two writes a cycle: nice values wait for the next one."""
    one = planner({1: INF, 2: INF})
    plan = replace(one, pace=one.pace.model_copy(update={"writes_per_cycle": 2})).plan(queue({}, {}, {}))
    assert {action.kind for action in plan.actions} == {"defer"}
    left = queue({}, {}, {"partition": "cpu", "nice": -5, "written": True})  # its nice goes back first
    plan = replace(one, pace=one.pace.model_copy(update={"writes_per_cycle": 2})).plan(left)
    assert [action.kind for action in plan.actions].count("defer") == 1 and len(plan.actions) == 2


def test_deferrals__no_more_than_a_cycle_may_write() -> None:
    """Given back first, then moved, then given to the most urgent; the rest is counted and waits for the next cycle."""
    rows = ({"submit_s": 800.0}, {"submit_s": 700.0}, {"eligible_s": 1_100.0}, {"eligible_s": 1_100.0})
    given = queue(*rows, overrides=(held(1_100.0, 3), held(1_100.0, 4)))
    found = {}
    for most in range(1, 5):
        one = replace(planner({1: INF, 2: INF, 3: INF}), pace=PaceConfig(writes_per_cycle=most))
        plan = one.plan(given)
        found[most] = list(starts(plan))
        assert (plan.deferred >= 4 - most, len(plan.actions)) == (True, most)
        assert [record.job_id for record in plan.overrides] == found[most]
    assert found == {1: [4], 2: [4, 3], 3: [4, 3, 2], 4: [4, 3, 2, 1]}


def test_given_back__is_what_undo_sends() -> None:
    """Every start on record of a job that still waits for it."""
    given = queue({"eligible_s": 1_300.0}, {}, overrides=(held(1_300.0), held(0.0, 2)))
    back = restore_proposal(given, "undo")
    assert [(action.job_id, action.restores) for action in back.actions] == [(1, True)]
    assert back.overrides == (held(0.0, note="undo"),)
