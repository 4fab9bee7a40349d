"""Back to the base, for values on record as ours only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from slurmsched.model import Allocations, Jobs, JobState, Nodes, Override, Partitions, Plan, Snapshot
from slurmsched.planning.levers import undo_plan


def record(
    job_id: int = 7, submit_s: float = 10.0, kind: str = "nice", base: int = 50,
    values: Iterable[int] = (-900, -950), last: int = -950,
) -> Override:  # fmt: skip
    return Override(job_id, submit_s, kind, base, last, values=tuple(values))


def undone(snapshot: Snapshot, records: Iterable[Override]) -> Plan:
    return undo_plan(replace(snapshot, overrides=tuple(records)))


def one_job(**columns: Any) -> Snapshot:
    jobs = Jobs.build(1, {"job_id": [7], "submit_s": [10.0], "nice": [-950]} | columns)
    return Snapshot(0.0, jobs, Nodes.build(0, {}), Partitions.build(0, {}), Allocations.build(0, {}))


def changes(snapshot: Snapshot, *records: Override) -> list[tuple[str, int, int]]:
    return [(action.kind, action.old, action.new) for action in undone(snapshot, records).actions]


def test_undo__gives_the_base_back():
    """A value we wrote becomes the user's own again."""
    assert changes(one_job(), record()) == [("nice", -950, 50)]


def test_undo__also_for_a_running_job():
    """It may be requeued one day."""
    assert changes(one_job(state=[int(JobState.RUNNING)]), record()) == [("nice", -950, 50)]


def test_undo__leaves_a_foreign_value_alone_and_says_so():
    """Somebody changed it since: that wish counts."""
    plan = undone(one_job(nice=[123]), [record()])
    assert plan.actions == ()
    assert [refusal.rule for refusal in plan.refused] == ["foreign"]


def test_undo__nothing_to_do_at_the_base():
    """No write for a job that is back already."""
    assert changes(one_job(nice=[50]), record()) == []


def test_undo__finds_a_requeued_job_under_its_new_submit_time():
    """A requeue moves the submit time; the last base on record counts, any value ever sent is ours."""
    earlier, later = record(submit_s=1.0, base=0, values=frozenset({-950})), record(submit_s=2.0, base=60)
    assert changes(one_job(restarts=[1]), earlier, later) == [("nice", -950, 60)]


def test_undo__an_id_used_again_is_another_job():
    """Same id, other submit time, never restarted: not ours."""
    assert changes(one_job(), record(submit_s=3.0)) == []


def test_undo__both_levers_of_one_job():
    """A site that changed lever.kind gets both back."""
    site = record(kind="site_factor", base=0, values=frozenset({77}))
    assert changes(one_job(site_factor=[77]), record(), site) == [("nice", -950, 50), ("site_factor", 77, 0)]


def test_undo__a_site_factor_that_slurm_does_not_show_goes_back_too():
    """sprio leaves out jobs that wait for a dependency or a time: what was sent last counts."""
    site = record(kind="site_factor", base=0, values=frozenset({77, 0}), last=77)
    assert changes(one_job(nice=[0]), site) == [("site_factor", 0, 0)]
    assert changes(one_job(nice=[0]), replace(site, sent=0)) == []


def test_undo__a_task_that_took_its_arrays_value_along():
    """The array is gone from the queue; its task ran and was requeued with the nice it had."""
    task = one_job(job_id=[8], array_job_id=[7], restarts=[1], submit_s=[99.0])
    assert changes(task, record()) == [("nice", -950, 50)]


def test_undo__an_array_is_written_with_all_its_tasks():
    """One write of the record reaches them; a second one would find them changed."""
    columns = {"job_id": [7, 8], "array_job_id": [7, 7], "submit_s": [10.0, 10.0], "nice": [-950, -950]}
    snapshot = replace(one_job(), jobs=Jobs.build(2, columns))
    assert [action.job_id for action in undone(snapshot, [record()]).actions] == [7]


@pytest.mark.parametrize(
    ("task", "records", "expected"),
    [
        (77, [], [(7, -950, 50), (8, 77, 77)]),  # its user set it, and nobody wrote to it since
        (50, [], [(7, -950, 50)]),  # to what all of them had
        (-873, [record(job_id=8, base=77, values=frozenset({-873}), last=-873)], [(7, -950, 50), (8, -873, 77)]),
        (60, [record(job_id=8, base=77, values=frozenset({-873}), last=-873)], [(7, -950, 50), (8, 60, 60)]),
    ],
)
def test_undo__a_task_with_a_nice_of_its_own_keeps_it(task, records, expected):
    """What its array gets back reaches the task as well: it gets its own right behind."""
    columns = {"job_id": [7, 8], "array_job_id": [7, 7], "submit_s": [10.0, 10.0], "nice": [-950, task]}
    snapshot = replace(one_job(), jobs=Jobs.build(2, columns))
    plan = undone(snapshot, [record(), *(replace(each, submit_s=10.0) for each in records)])
    assert [(action.job_id, action.old, action.new) for action in plan.actions] == expected
    assert all(action.base == action.new for action in plan.actions)
    assert plan.refused == ()
