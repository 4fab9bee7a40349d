"""Node lists on record: before they are sent, and as Slurm's answers leave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.db.pins import PinLog
from slurmsched.errors import LedgerError
from slurmsched.model import JobState, Outcome, Pin, PinNodes, Plan, Retype
from slurmsched.planning.gate import When, refusal
from slurmsched.planning.view import Seen, View
from slurmsched.slurm.pinning import Pinning

GIVEN = Pin(7, 100.0, "n2", "", 50.0, ("n2",))
BACK = replace(GIVEN, nodes="", note="late")
OVER = replace(BACK, over=True)


def action(pin: Pin, was: str = "") -> PinNodes:
    return PinNodes(pin.job_id, pin.submit_s, "", f"pin-{pin.job_id}", pin.nodes, was, pin.base)


def cycle(
    folder: Path, pin: Pin, status: str, was: str = "", queue: tuple[int, ...] = (7,), message: str = ""
) -> tuple[Pin, ...]:
    """What a later process knows after one cycle with this answer; "" = the process ended before any came."""
    now, step = Pinning(PinLog(folder / "journal.jsonl")), action(pin, was)
    now.begin(Plan(actions=(step,), pins=(pin,)), np.array(queue))
    if status:
        now.end([Outcome(step, status, message)])
    return Pinning(PinLog(folder / "journal.jsonl")).known


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
    for seen, known in ((Seen(100.0, JobState.PENDING, 0, bars=("2 nodes",)), True), (None, False)):
        refused = refusal(step, View(seen={7: seen} if seen else {}), When.SEND)
        assert refused is not None
        found = cycle(tmp_path, GIVEN, "refused", message=refused.reason)
        note = "changed since the snapshot: it asks for 2 nodes"
        assert found == ((Pin(7, 100.0, "", "", 50.0, over=True, note=note),) if known else ())


@pytest.mark.parametrize(
    ("status", "expected"), [("", (GIVEN,)), ("refused", (GIVEN,)), ("unknown", (GIVEN,)), ("written", ())]
)
def test_end__a_list_is_ours_until_slurm_took_it_back(tmp_path, status, expected):
    """Whatever goes wrong, a later cycle or undo still knows of it."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, BACK, status, was="n2") == expected


def test_end__a_size_that_was_not_sent_is_not_there(tmp_path):
    """Sending ended before: the job has its own, or the size before, and is asked about again."""
    first = Pin(7, 100.0, "", "", 50.0, gpus="gpu:4", own_gpus="gpu:2", requests=("gpu:4",))
    second = replace(first, gpus="gpu:8", requests=("gpu:4", "gpu:8"))
    for record, sent, known in ((first, False, ()), (first, True, (first,)), (second, False, (first,))):
        now = Pinning(PinLog(tmp_path / "journal.jsonl"))
        step = Retype(7, 100.0, "", "size-7", record.gpus, "gpu:2", "gpu:2", resizes=True)
        now.begin(Plan(actions=(step,), pins=(record,)), np.array([7]))
        now.end([Outcome(step, "written")] if sent else [])
        assert Pinning(PinLog(tmp_path / "journal.jsonl")).known == known


def test_end__a_requeued_job_with_a_size_is_noted_once(tmp_path):
    """Its record changes with no step: the new submission stays, and the next cycle has nothing to note."""
    log = PinLog(tmp_path / "journal.jsonl")
    old = Pin(7, 100.0, "", "", 50.0, gpus="gpu:4", own_gpus="gpu:2", requests=("gpu:4",))
    log.note([old])
    now, renewed = Pinning(log), replace(old, submit_s=990.0)
    now.begin(Plan(pins=(renewed,)), np.array([7]))
    now.end([])
    assert (now.known, Pinning(log).known) == ((renewed,), (renewed,))
    assert len(log.path.read_bytes().splitlines()) == 2


def test_end__a_job_left_to_slurm_stays_on_record(tmp_path):
    """It is not pinned again, by the next process either."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, OVER, "written", was="n2") == (OVER,)


def test_end__a_refused_move_leaves_the_list_before(tmp_path):
    """Both lists are ours, so the record serves whichever the job has."""
    cycle(tmp_path, GIVEN, "written")
    moved = replace(GIVEN, nodes="n3", values=("n2", "n3"))
    assert cycle(tmp_path, moved, "refused", was="n2") == (moved,)


def test_begin__what_changes_by_itself_is_settled_at_once(tmp_path):
    """Somebody else changed the list: there is nothing to send."""
    log = PinLog(tmp_path / "journal.jsonl")
    log.note([GIVEN])
    Pinning(log).begin(Plan(pins=(OVER,)), np.array([7]))
    assert Pinning(log).known == (OVER,)


REWRITTEN = replace(GIVEN, gpus="gpu:i0:2", own_gpus="gpu:2", requests=("gpu:i0:2",))
OWN = replace(REWRITTEN, nodes="", gpus="gpu:2")


def both(folder: Path, pin: Pin, *statuses: str) -> tuple[Pin, ...]:
    """What a later process knows after a list and a request were sent and answered so."""
    now = Pinning(PinLog(folder / "journal.jsonl"))
    steps = (action(pin, "" if pin.open else "n2"), Retype(7, 100.0, "", "pin-7", pin.gpus, "gpu:2", pin.own_gpus))
    now.begin(Plan(actions=steps, pins=(pin,)), np.array([7]))
    now.end(Outcome(step, status) for step, status in zip(steps, statuses, strict=False))
    return Pinning(PinLog(folder / "journal.jsonl")).known


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


def test_known__lines_without_requests(tmp_path):
    """Those written before there were any."""
    log = PinLog(tmp_path / "journal.jsonl")
    line = '{"event": "pin", "pin": {"job_id": 7, "submit_s": 100.0, "nodes": "n2", "base": "", "since_s": 50.0, '
    log.path.write_text(line + '"values": ["n2"], "over": false, "note": ""}}\n')
    assert Pinning(log).known == (GIVEN,)


def test_begin__forgets_jobs_that_left_the_queue(tmp_path, monkeypatch):
    """Their records go when the file is cut down."""
    monkeypatch.setattr("slurmsched.db.pins.COMPACT_BYTES", 0)
    cycle(tmp_path, GIVEN, "written")
    other = replace(GIVEN, job_id=8)
    assert cycle(tmp_path, other, "written", queue=(8,)) == (other,)
    assert len(PinLog(tmp_path / "journal.jsonl").path.read_bytes().splitlines()) == 1


def test_known__a_line_that_cannot_be_read_stops_everything(tmp_path):
    """No list is given or taken back on doubt; the error names file and line."""
    log = PinLog(tmp_path / "journal.jsonl")
    log.note([GIVEN])
    with log.path.open("a") as file:
        file.write('{"event": "pin", "pin": {"job_id": "x"}}\n')
    with pytest.raises(LedgerError, match=r"pins\.jsonl:2: not a line of the pins"):
        _ = Pinning(log).known
