"""Dependencies: whom an end sets free."""

from __future__ import annotations

import pytest

from slurmsched.errors import InputError
from slurmsched.replay.dependencies import Dependencies
from slurmsched.replay.requests import Requests
from slurmsched.replay.traces import Trace


def made(dependency: list[str], **columns: list[object]) -> Dependencies:
    rows = len(dependency)
    trace = Trace.of(range(1, rows + 1), [1] * rows, range(rows), [1] * rows)
    return Dependencies(trace, Requests.build(rows, {"dependency": dependency, **columns}))


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
