"""Node lists on record: before they are sent, and as Slurm's answers leave them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError
from slurmsched.model import JobState, Outcome, Plan, SetGpuRequest, SetNodeList, SetSize
from slurmsched.planning.gate import CurrentJob, GateContext, GateTime, refusal
from slurmsched.planning.job_overrides import JobOverrides, by_job, records_of
from slurmsched.slurm.recorder import OverrideRecorder
from tests.unit.planning.node_lists.node_list_cases import list_overrides, size_override

GIVEN = list_overrides(7, "n2", submit_s=100.0, since_s=50.0)
BACK = GIVEN.with_nodes(sent="").with_all(note="late")
OVER = BACK.left_to_slurm("late")


def action(pin: JobOverrides, was: str = "") -> SetNodeList:
    return SetNodeList(pin.job_id, pin.submit_s, "", f"pin-{pin.job_id}", str(pin.nodes.sent), was, str(pin.nodes.base))


def cycle(
    folder: Path, pin: JobOverrides, status: str, was: str = "", queue: tuple[int, ...] = (7,), message: str = ""
) -> tuple[JobOverrides, ...]:
    """What a later process knows after one cycle with this answer; "" = the process ended before any came."""
    now, step = OverrideRecorder(OverrideLog(folder / "journal.jsonl")), action(pin, was)
    now.begin(Plan(actions=(step,), overrides=records_of((pin,))), np.array(queue))
    if status:
        now.end([Outcome(step, status, message)])
    return by_job(OverrideRecorder(OverrideLog(folder / "journal.jsonl")).known)


@pytest.mark.parametrize("status", ["", "written", "unknown"])
def test_begin__a_list_is_on_record_before_it_is_sent(tmp_path, status):
    """Also if the process ends, or no answer comes: the job may have it."""
    assert cycle(tmp_path, GIVEN, status) == (GIVEN,)


def test_end__a_refused_list_is_not_there(tmp_path):
    """The job has its own: nothing to give back."""
    assert cycle(tmp_path, GIVEN, "refused") == ()


def test_end__a_list_refused_by_what_the_job_asks_for_is_the_last(tmp_path):
    """The plan would choose it again in each cycle, and take the node from the jobs after it."""
    step = action(GIVEN)
    for seen, known in ((CurrentJob(100.0, JobState.PENDING, 0, bars=("2 nodes",)), True), (None, False)):
        refused = refusal(step, GateContext(seen={7: seen} if seen else {}), GateTime.SEND)
        assert refused is not None
        found = cycle(tmp_path, GIVEN, "refused", message=refused.reason)
        never = GIVEN.with_nodes(sent="", values=()).left_to_slurm("changed since the snapshot: it asks for 2 nodes")
        assert found == ((never,) if known else ())


@pytest.mark.parametrize(
    ("status", "expected"), [("", (GIVEN,)), ("refused", (GIVEN,)), ("unknown", (GIVEN,)), ("written", ())]
)
def test_end__a_list_is_ours_until_slurm_took_it_back(tmp_path, status, expected):
    """Whatever goes wrong, a later cycle or undo still knows of it."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, BACK, status, was="n2") == expected


def test_end__a_size_that_was_not_sent_is_not_there(tmp_path):
    """Sending ended before: the job has its own, or the size before, and is asked about again."""
    first = size_override("gpu:4", job_id=7, submit_s=100.0, since_s=50.0)
    second = first.with_request(sent="gpu:8", values=("gpu:4", "gpu:8"))
    for record, sent, known in ((first, False, ()), (first, True, (first,)), (second, False, (first,))):
        now = OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl"))
        step = SetSize(7, 100.0, "", "size-7", str(record.request.sent), "gpu:2", "gpu:2")
        now.begin(Plan(actions=(step,), overrides=records_of((record,))), np.array([7]))
        now.end([Outcome(step, "written")] if sent else [])
        assert by_job(OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl")).known) == known


def test_end__a_requeued_job_with_a_size_is_noted_once(tmp_path):
    """Its record changes with no step: the new submission stays, and the next cycle has nothing to note."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    old = size_override("gpu:4", job_id=7, submit_s=100.0, since_s=50.0)
    log.record(records_of([old]))
    now, renewed = OverrideRecorder(log), old.with_all(submit_s=990.0)
    now.begin(Plan(overrides=records_of((renewed,))), np.array([7]))
    now.end([])
    assert (by_job(now.known), by_job(OverrideRecorder(log).known)) == ((renewed,), (renewed,))
    assert len(log.path.read_bytes().splitlines()) == 2


def test_end__a_job_left_to_slurm_stays_on_record(tmp_path):
    """It is not pinned again, by the next process either."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, OVER, "written", was="n2") == (OVER,)


def test_end__a_refused_move_leaves_the_list_before(tmp_path):
    """Both lists are ours, so the record serves whichever the job has."""
    cycle(tmp_path, GIVEN, "written")
    moved = GIVEN.with_nodes(sent="n3", values=("n2", "n3"))
    assert cycle(tmp_path, moved, "refused", was="n2") == (moved,)


def test_begin__what_changes_by_itself_is_settled_at_once(tmp_path):
    """Somebody else changed the list: there is nothing to send."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    log.record(records_of([GIVEN]))
    OverrideRecorder(log).begin(Plan(overrides=records_of((OVER,))), np.array([7]))
    assert by_job(OverrideRecorder(log).known) == (OVER,)


REWRITTEN = GIVEN.with_request(base="gpu:2", sent="gpu:i0:2", values=("gpu:i0:2",))
OWN = REWRITTEN.with_nodes(sent="").with_request(sent="gpu:2")


def both(folder: Path, pin: JobOverrides, *statuses: str) -> tuple[JobOverrides, ...]:
    """What a later process knows after a list and a request were sent and answered so."""
    now = OverrideRecorder(OverrideLog(folder / "journal.jsonl"))
    steps = (
        action(pin, "" if pin.open else "n2"),
        SetGpuRequest(7, 100.0, "", "pin-7", str(pin.request.sent), "gpu:2", str(pin.request.base)),
    )
    now.begin(Plan(actions=steps, overrides=records_of((pin,))), np.array([7]))
    now.end(Outcome(step, status) for step, status in zip(steps, statuses, strict=False))
    return by_job(OverrideRecorder(OverrideLog(folder / "journal.jsonl")).known)


@pytest.mark.parametrize("statuses", [(), ("written",), ("written", "written"), ("written", "refused")])
def test_end__a_request_is_on_record_whatever_became_of_it(tmp_path, statuses):
    """A refused one is found by the next cycle, which then gives the list back."""
    assert both(tmp_path, REWRITTEN, *statuses) == (REWRITTEN,)


def test_end__a_refused_list_takes_its_request_along(tmp_path):
    """The request was never sent."""
    assert both(tmp_path, REWRITTEN, "refused", "refused") == ()


@pytest.mark.parametrize(
    "statuses", [("written",), ("written", "refused"), ("refused", "written"), ("written", "unknown")]
)
def test_end__both_must_be_taken_back(tmp_path, statuses):
    """Else a later cycle, or undo, tries again."""
    both(tmp_path, REWRITTEN, "written", "written")
    assert both(tmp_path, OWN, *statuses) == (REWRITTEN,)
    assert both(tmp_path, OWN, "written", "written") == ()


def test_begin__forgets_jobs_that_left_the_queue(tmp_path):
    """Their records go when the log is cut down, as does what a later record of a field replaces."""
    cycle(tmp_path, GIVEN, "written")
    other = GIVEN.with_all(job_id=8)
    now = OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(), np.array([8]))
    assert now.known == ()
    cycle(tmp_path, other, "written", queue=(8,))
    log = OverrideLog(tmp_path / "journal.jsonl")
    log.record(records_of([other])[:1])
    log.compact([8])
    assert [line["job_id"] for line in log.lines()] == [8]


def test_known__a_line_that_cannot_be_read_stops_everything(tmp_path):
    """No list is given or taken back on doubt; the error names file and line."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    log.record(records_of([GIVEN]))
    with log.path.open("a") as file:
        file.write('{"event": "override", "field": "node_list", "job_id": "x"}\n')
    with pytest.raises(LedgerError, match=r"journal\.jsonl:3: not a line of the journal"):
        _ = OverrideRecorder(log).known
