"""Node lists on record: before they are sent, and as Slurm's answers leave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.db.pins import PinLog
from slurmsched.errors import LedgerError
from slurmsched.model import Outcome, Pin, PinNodes, Plan
from slurmsched.slurm.pinning import Pinning

GIVEN = Pin(7, 100.0, "n2", "", 50.0, ("n2",))
BACK = replace(GIVEN, nodes="", note="late")
OVER = replace(BACK, over=True)


def action(pin: Pin, was: str = "") -> PinNodes:
    return PinNodes(pin.job_id, pin.submit_s, "", f"pin-{pin.job_id}", pin.nodes, was, pin.base)


def cycle(folder: Path, pin: Pin, status: str, was: str = "", queue: tuple[int, ...] = (7,)) -> tuple[Pin, ...]:
    """What a later process knows after one cycle with this answer; "" = the process ended before any came."""
    now, step = Pinning(PinLog(folder / "journal.jsonl")), action(pin, was)
    now.begin(Plan(actions=(step,), pins=(pin,)), np.array(queue))
    if status:
        now.end([Outcome(step, status)])
    return Pinning(PinLog(folder / "journal.jsonl")).known


@pytest.mark.parametrize("status", ["", "written", "unknown"])
def test_begin__a_list_is_on_record_before_it_is_sent(tmp_path, status):
    """Also if the process ends, or no answer comes: the job may have it."""
    assert cycle(tmp_path, GIVEN, status) == (GIVEN,)


def test_end__a_refused_list_is_not_there(tmp_path):
    """The job has its own: nothing to give back."""
    assert cycle(tmp_path, GIVEN, "refused") == ()


@pytest.mark.parametrize(
    ("status", "expected"), [("", (GIVEN,)), ("refused", (GIVEN,)), ("unknown", (GIVEN,)), ("written", ())]
)
def test_end__a_list_is_ours_until_slurm_took_it_back(tmp_path, status, expected):
    """Whatever goes wrong, a later cycle or undo still knows of it."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, BACK, status, was="n2") == expected


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
