"""Earliest starts on record: before they are sent, and as Slurm's answers leave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.db.deferrals import DeferralLog
from slurmsched.errors import LedgerError
from slurmsched.model import Defer, Deferral, Outcome, Plan
from slurmsched.slurm.deferring import Deferring

GIVEN = Deferral(7, 100.0, 500.0)
MOVED = replace(GIVEN, until_s=900.0)
BACK = replace(GIVEN, until_s=0.0, note="it may start now")
OVER = replace(BACK, over=True)


def cycle(folder: Path, record: Deferral, status: str, queue: tuple[int, ...] = (7,)) -> tuple[Deferral, ...]:
    """What a later process knows after one cycle with this answer; "" = the process ended before any came."""
    now = Deferring(DeferralLog(folder / "journal.jsonl"))
    step = Defer(7, 100.0, "", "defer-7", record.until_s, back=not record.open)
    now.begin(Plan(actions=(step,), deferrals=(record,)), np.array(queue))
    if status:
        now.end([Outcome(step, status)])
    return Deferring(DeferralLog(folder / "journal.jsonl")).known


@pytest.mark.parametrize("status", ["", "written", "unknown"])
def test_begin__a_start_is_on_record_before_it_is_sent(tmp_path: Path, status: str) -> None:
    """Also if the process ends, or no answer comes: the job may have it."""
    assert cycle(tmp_path, GIVEN, status) == (GIVEN,)


def test_end__a_refused_start_is_not_there(tmp_path: Path) -> None:
    """The first one: nothing to give back. A later one: the job has the one before."""
    assert cycle(tmp_path, GIVEN, "refused") == ()
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, MOVED, "refused") == (GIVEN,)


@pytest.mark.parametrize(
    ("status", "expected"), [("", (GIVEN,)), ("refused", (GIVEN,)), ("unknown", (GIVEN,)), ("written", ())]
)
def test_end__a_start_is_ours_until_slurm_took_it_back(
    tmp_path: Path, status: str, expected: tuple[Deferral, ...]
) -> None:
    """Whatever goes wrong, a later cycle or undo still knows of it."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, BACK, status) == expected


def test_begin__a_record_without_an_action_is_settled_at_once(tmp_path: Path) -> None:
    """A job whose start somebody else changed is left alone, by the next process too."""
    cycle(tmp_path, GIVEN, "written")
    now = Deferring(DeferralLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(deferrals=(OVER,)), np.array([7]))
    now.end([])
    assert Deferring(DeferralLog(tmp_path / "journal.jsonl")).known == (OVER,)


def test_begin__jobs_that_left_the_queue_are_forgotten(tmp_path: Path) -> None:
    """Within a process that goes on."""
    now = Deferring(DeferralLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(deferrals=(GIVEN,)), np.array([7]))
    now.begin(Plan(), np.array([8]))
    assert now.known == ()


def test_known__refuses_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    """No start may be given or taken back on doubt."""
    path = tmp_path / "journal.deferrals.jsonl"
    path.write_text('{"event":"deferral","deferral":{"job_id":7}}\n')
    with pytest.raises(LedgerError, match="not a line of the deferrals"):
        DeferralLog(tmp_path / "journal.jsonl").known()
