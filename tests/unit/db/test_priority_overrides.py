"""Whose nice or site factor a job has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig
from slurmsched.db import priority_overrides
from slurmsched.db.priority_overrides import PriorityOverride, PriorityOverrides
from slurmsched.model import Jobs, Outcome, Override, SetNice
from slurmsched.testing import jobs

CONFIG = LeverConfig(backoff_s=1800)


def record(values: Iterable[int]) -> Override:
    """What the log has of job 1."""
    return Override(1, 1000.0, "nice", 5, -800, values=tuple(values))


def written(job_id: int = 1, base: int = 5, sent: int = -800, **changes: Any) -> PriorityOverride:
    return PriorityOverride(job_id, 1000.0, "nice", base, sent, **changes)


@pytest.mark.parametrize(("times", "wait_s"), [(1, 1800.0), (2, 3600.0), (5, 28800.0), (7, 86400.0), (2000, 86400.0)])
def test_check__backoff_doubles_up_to_a_day(times: int, wait_s: float) -> None:
    """A user who insists is left alone for longer each time, never for ever."""
    held = PriorityOverrides.of([written(backoffs=times - 1)])
    check = priority_overrides.check(held, jobs([{"submit_s": 1000.0, "nice": 77}]), 2000.0, CONFIG)
    assert check.changes[0].backoff_until_s == 2000.0 + wait_s


def test_check__a_running_jobs_lever_is_nobodys_business() -> None:
    """Only where a job waits does its nice mean anything."""
    held = PriorityOverrides.of([written()])
    check = priority_overrides.check(held, jobs([{"submit_s": 1000.0, "nice": 77, "state": "RUNNING"}]), 2000.0, CONFIG)
    assert check.changes == []


@pytest.mark.parametrize(("sure", "conflicts"), [(True, 1), (False, 0)])
def test_check__back_at_the_base_is_a_conflict_unless_no_answer_came(sure: bool, conflicts: int) -> None:
    """A write without an answer may have been lost; one that Slurm took was taken back by somebody."""
    held = PriorityOverrides.of([written(values=() if sure else (-700,))])
    assert (
        len(priority_overrides.check(held, jobs([{"submit_s": 1000.0, "nice": 5}]), 2000.0, CONFIG).changes)
        == conflicts
    )


@pytest.mark.parametrize(("listed", "backoff"), [(500.0, True), (float("nan"), False)])
def test_check__a_site_factor_that_slurm_does_not_show_was_not_reset(listed: float, backoff: bool) -> None:
    """sprio lists eligible jobs only; a requeued one waits for its begin time first."""
    config = CONFIG.model_copy(update={"kind": "site_factor"})
    queue = jobs([{"submit_s": 1000.0, "site_factor": 0, "base_priority": listed}])
    check = priority_overrides.check(PriorityOverrides.of([written(base=0, sent=900)]), queue, 2000.0, config)
    assert check.columns["backoff"].tolist() == [backoff]


@pytest.mark.parametrize(
    ("backoff_s", "until_s", "expected"),
    [(300, 3_500.0, 2_300.0), (1_800, 20_000.0, 3_800.0), (1_800, 5_000.0, 5_000.0), (1_800, 1_900.0, 1_900.0)],
)
def test_check__a_long_back_off_is_cut_not_ended(backoff_s: int, until_s: float, expected: float) -> None:
    """backoff_s was lowered, or the clock set back: the job is left alone for as long as after a change now, once."""
    held = PriorityOverrides.of([written(sent=77, base=77, backoffs=1, backoff_until_s=until_s)])
    config = LeverConfig(backoff_s=backoff_s)
    first = priority_overrides.check(held, jobs([{"submit_s": 1000.0, "nice": 77}]), 2_000.0, config)
    assert first.overrides.backoff_until_s.tolist() == [expected]
    assert [lever.backoff_until_s for lever in first.changed] == ([] if expected == until_s else [expected])
    assert (first.columns["backoff"].tolist(), first.changes) == ([expected > 2_000], [])
    later = priority_overrides.check(first.overrides, jobs([{"submit_s": 1000.0, "nice": 77}]), expected, config)
    assert (later.columns["backoff"].tolist(), later.changed) == ([False], [])


def test_check__a_change_without_a_write_of_ours_in_between_does_not_double() -> None:
    """A user who tries several values is not fighting us."""
    held = PriorityOverrides.of([written(sent=40, base=40, backoffs=1, backoff_until_s=2500.0)])
    check = priority_overrides.check(held, jobs([{"submit_s": 1000.0, "nice": 41}]), 2000.0, CONFIG)
    assert (check.changed[0].backoffs, check.changes[0].backoff_until_s) == (1, 3800.0)


@pytest.mark.parametrize(
    ("row", "adopted"),
    [
        ({"submit_s": 1000.0, "nice": -800}, True),
        ({"submit_s": 1500.0, "restarts": 1, "nice": -800}, True),  # requeued since
        ({"submit_s": 1500.0, "nice": -800}, False),  # the id is used again
        ({"submit_s": 1000.0, "nice": -801}, False),  # someone else's value
        ({"submit_s": 1000.0, "nice": 5}, False),  # back at its base
    ],
)
def test_adopt__takes_what_the_journal_knows_and_the_job_holds(row: dict[str, object], adopted: bool) -> None:
    """Value and job must both be those of the record."""
    found = priority_overrides.adopt(PriorityOverrides.build(0, {}), jobs([row]), [record((-700, -800))], "nice")
    assert [(found_.base, found_.sent) for found_ in found] == ([(5, -800)] if adopted else [])


def test_remember__keeps_the_count_of_conflicts() -> None:
    """Writing anew does not make peace: the next conflict waits longer."""
    held = PriorityOverrides.of([written(sent=40, base=40, backoffs=3)])
    outcome = Outcome(SetNice(1, 1000.0, "", 40, -900, 40), "written")
    assert priority_overrides.remember(held, jobs([{"submit_s": 1000.0}]), [outcome], "nice")[0].backoffs == 3


def test_remember__an_array_that_slurm_refused_in_part() -> None:
    """One task says no, the record took the value: both may be there, and neither is the user's wish."""
    queue = jobs([{"job_id": 1, "array_job_id": 1, "submit_s": 1000.0}])
    refused = Outcome(SetNice(1, 1000.0, "", 5, -600, 5), "refused", "1_4: Requested operation is presently disabled")
    held = PriorityOverrides.of(priority_overrides.remember(PriorityOverrides.build(0, {}), queue, [refused], "nice"))
    for found in (5, -600):
        check = priority_overrides.check(held, queue.with_columns(nice=[found]), 2000.0, CONFIG)
        assert (check.columns["base_nice"].tolist(), check.changes) == ([5], [])


def test_warning__names_a_few_jobs_only() -> None:
    """A lost ledger means thousands of them."""
    queue = jobs([{"job_id": i, "nice": -5000} for i in range(1, 3000)])
    text = priority_overrides.warning(
        queue, priority_overrides.check(PriorityOverrides.build(0, {}), queue, 0.0, CONFIG).suspects, "nice"
    )
    assert text.startswith("2,999 jobs have a nice") and "(jobs 1, 2, 3, 4, 5, ...)" in text


def array(**task: object) -> Jobs:
    """An array's record 1 that holds -800, and its task 2."""
    return jobs(
        [
            {"job_id": 1, "array_job_id": 1, "submit_s": 1000.0, "nice": -800},
            {"job_id": 2, "array_job_id": 1, "submit_s": 1000.0, "nice": -800, **task},
        ]
    )


@pytest.mark.parametrize("task", [{}, {"submit_s": 1500.0, "restarts": 1}, {"array_job_id": 0, "het_job_id": 1}])
def test_check__what_an_array_got_its_tasks_have(task: dict[str, object]) -> None:
    """Slurm writes it through, and a task that starts takes it along: its base is the array's, not our value."""
    check = priority_overrides.check(PriorityOverrides.of([written()]), array(**task), 2000.0, replace_floor(500))
    assert check.columns["base_nice"].tolist() == [5, 5]
    assert (check.suspects.tolist(), check.changes) == ([], [])


def test_check__an_id_used_again_has_no_part_in_an_earlier_array() -> None:
    """Submitted after the write: another array, whose users chose what it has."""
    later = jobs([{"job_id": 2, "array_job_id": 1, "submit_s": 1500.0, "nice": -800}])
    assert priority_overrides.check(PriorityOverrides.of([written()]), later, 2000.0, CONFIG).columns[
        "base_nice"
    ].tolist() == [-800]


def test_check__a_later_write_of_the_array_is_no_change_behind_our_back() -> None:
    """A task written by itself before, and with its array since."""
    held = PriorityOverrides.of([written(sent=-900), written(2, sent=-700)])
    both = array(nice=-900).with_columns(nice=[-900, -900])
    assert priority_overrides.check(held, both, 2000.0, CONFIG).changes == []


@pytest.mark.parametrize("nice", [0, 5, 77])
def test_check__a_task_that_its_user_changed_is_respected(nice: int) -> None:
    """Nobody wrote to the task but with its array: what it has is its base, and it is left alone for a while."""
    check = priority_overrides.check(PriorityOverrides.of([written()]), array(nice=nice), 2000.0, CONFIG)
    assert [(change.job_id, change.expected, change.found, change.base) for change in check.changes] == [
        (2, -800, nice, nice)
    ]
    assert (check.columns["base_nice"][1], check.columns["backoff"].tolist()) == (nice, [False, True])
    again = priority_overrides.check(check.overrides, array(nice=nice), 2001.0, CONFIG)
    assert (again.changes, again.columns["backoff"][1]) == ([], True)
    kept = SetNice(2, 1000.0, "behind its array", nice, nice, nice)
    assert priority_overrides.remember(again.overrides, array(nice=nice), [Outcome(kept, "written")], "nice") == []


@pytest.mark.parametrize("lead", [{"values": (5,)}, {"sent": 5}])
def test_check__a_task_differs_where_its_array_is_not_ours(lead: dict[str, object]) -> None:
    """Without an answer nobody knows what the task got, and an array that was not written says nothing."""
    check = priority_overrides.check(PriorityOverrides.of([written(**lead)]), array(nice=9), 2000.0, CONFIG)
    assert [change.job_id for change in check.changes if change.job_id == 2] == []


def test_gone__an_array_is_remembered_while_a_task_is_left() -> None:
    """Its record leaves the queue first; the task still holds its value."""
    held = PriorityOverrides.of([written(), written(9)])
    assert priority_overrides.gone(held, array().take(np.array([1]))) == [9]


def test_adopt__a_task_by_the_record_of_its_array() -> None:
    """The journal knows arrays by their id, tasks not at all."""
    found = priority_overrides.adopt(
        PriorityOverrides.build(0, {}), array(submit_s=1500.0, restarts=1), [record((-800,))], "nice"
    )
    assert [(found_.job_id, found_.base, found_.sent) for found_ in found] == [(1, 5, -800), (2, 5, -800)]


def test_check__a_users_own_nice_is_none_of_ours_however_large() -> None:
    """Only an operator's is below 0."""
    queue = jobs([{"nice": 10_000}, {"nice": -10_000}])
    check = priority_overrides.check(PriorityOverrides.build(0, {}), queue, 0.0, CONFIG)
    assert check.columns["backoff"].tolist() == [False, True]
    assert check.columns["base_nice"][0] == 10_000


def replace_floor(floor: int) -> LeverConfig:
    return CONFIG.model_copy(update={"floor": floor})
