"""Dependencies: whom an end sets free."""

from __future__ import annotations

import pytest

from slurmsched.errors import InputError
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.slurmctld.job_demands import Dependencies, SubmittedRequests, recorded_dependencies


def made(dependency: list[str], **columns: list[object]) -> Dependencies:
    rows = len(dependency)
    trace = Trace.of(range(1, rows + 1), [1] * rows, range(rows), [1] * rows)
    return Dependencies(trace, SubmittedRequests.build(rows, {"dependency": dependency, **columns}))


def test_ended__frees_when_the_last_one_is_done() -> None:
    """Job 3 waits for both."""
    dependencies = made(["", "", "afterany:1:2"])
    assert dependencies.open.tolist() == [0, 0, 2]
    assert (dependencies.ended(0, ok=True), dependencies.ended(1, ok=False)) == (([], []), ([2], []))


@pytest.mark.parametrize(("kind", "ok"), [("afterok", False), ("afternotok", True)])
def test_ended__can_make_a_dependency_impossible(kind: str, ok: bool) -> None:
    """afterok of a failure, afternotok of a success; the other way round they are satisfied."""
    assert made(["", f"{kind}:1"]).ended(0, ok=ok) == ([], [1])
    assert made(["", f"{kind}:1"]).ended(0, ok=not ok) == ([1], [])


def test_started__frees_only_after() -> None:
    """`after` waits for the start, the others for the end."""
    dependencies = made(["", "after:1", "afterany:1"])
    assert (dependencies.started(0), dependencies.ended(0, ok=True)) == ([1], ([2], []))


def test_array__counts_task_by_task() -> None:
    """A dependency on an array is satisfied with its last task."""
    dependencies = made(["", "", "afterany:2"], array_id=[2, 2, 0])
    assert (dependencies.ended(0, ok=True)[0], dependencies.ended(1, ok=True)[0]) == ([], [2])


def test_singleton__waits_for_earlier_namesakes_of_the_same_user() -> None:
    """Not for those of another user."""
    dependencies = made(["", "", "singleton"], user=["a", "b", "a"], name=["x", "x", "x"])
    assert (dependencies.open[2], dependencies.ended(0, ok=False)[0]) == (1, [2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("afterok:9", "job 1 depends on job 9, which is not in the trace"),
        ("afterok:²", "replayed are after, afterany"),
        ("aftercorr:1", "replayed are after, afterany"),
    ],
)
def test_dependency__that_cannot_be_replayed_is_told(text: str, message: str) -> None:
    """Job and reason."""
    with pytest.raises(InputError, match=message):
        made([text])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("afterok:1:99,after:2", "afterany:1,after:2"),  # 99 is not in the trace
        ("afternotok:1,singleton", "afterany:1,singleton"),
        ("afterany:3", ""),  # 3 ends after the job's start: it no longer depended on it
        ("afterany:7", "afterany:7"),  # an array
        ("afterok:1?afterok:2", ""),
        ("after:1+30", ""),
        ("afterok:1_4", ""),
        ("afterok:4", ""),  # the job itself
    ],
)
def test_recorded_dependencies__are_those_that_were_satisfied(text: str, kept: str) -> None:
    """Job 4 started at 100. Whatever a job of the record waited for had ended, as it should."""
    trace = Trace.of([1, 2, 3, 4, 8], [1] * 5, [0.0] * 5, [50.0] * 5, start_s=[10.0, 90.0, 80.0, 100.0, 20.0],
                     dependency=["", "", "", text, ""], array_id=[0, 0, 0, 0, 7])  # fmt: skip
    assert recorded_dependencies(trace)[3] == kept


@pytest.mark.parametrize(
    ("text", "eligible_s", "begin_s"),
    [
        ("afterok:1", 5_000.0, 5_000.0),
        ("afterok:1", 101.0, 0.0),  # slurmctld looked at it then
        ("after:1", 50.0, 50.0),  # job 1 started at 0
        ("singleton", 5_000.0, 0.0),  # until when it waited for namesakes is not looked up
        ("", 5_000.0, 5_000.0),
        ("", 12.0, 0.0),
    ],
)
def test_of_trace__heeds_begin_times_beside_dependencies(text: str, eligible_s: float, begin_s: float) -> None:
    """Job 1 runs from 0 to 100. Job 2, of 10 s, is submitted with --begin, or held, for longer than it depends on 1."""
    trace = Trace.of([1, 2], [1, 1], [0.0, 10.0], [100.0, 10.0], dependency=["", text],
                     start_s=[0.0, 6_000.0], eligible_s=[0.0, eligible_s])  # fmt: skip
    assert SubmittedRequests.of_trace(trace, ClusterLayout.of_gpus([4])).begin_s.tolist() == [0.0, begin_s]
