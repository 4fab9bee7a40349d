"""Earliest starts on record: before they are sent, and as Slurm's answers leave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.config import Lever, Scope
from slurmsched.db.deferrals import DeferralLog
from slurmsched.errors import LedgerError
from slurmsched.model import Defer, Deferral, Outcome, Plan, Ranking, Wants
from slurmsched.planning.deferrals import deferrals, given_back
from slurmsched.slurm.deferring import Deferring
from slurmsched.testing import snapshot

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


def test_end__what_was_not_sent_is_told_from_what_somebody_else_changed(tmp_path: Path) -> None:
    """Sending ended before this renewal had its turn: the record knows the start that the job still has."""
    cycle(tmp_path, GIVEN, "written")
    given = snapshot([{"job_id": 7, "submit_s": 100.0, "eligible_s": 500.0}], "1x8", now_s=400.0, deferrals=(GIVEN,))
    wants = Ranking(np.arange(1), wants=Wants(start_s=np.array([np.inf])))
    moved = deferrals(given, wants, np.array([True]), Lever(start=True), Scope(partitions=("*",)))
    now = Deferring(DeferralLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(actions=moved.actions, deferrals=moved.deferrals), np.array([7]))
    now.end([])
    for known in (now.known, Deferring(DeferralLog(tmp_path / "journal.jsonl")).known):
        back = given_back(replace(given, deferrals=known), "undo")
        assert [(action.job_id, action.was_s, action.back) for action in back.actions] == [(7, 500.0, True)]


def test_known__reads_lines_from_before_there_were_values(tmp_path: Path) -> None:
    """An update keeps what the release before has on record."""
    record = '{"job_id":7,"submit_s":100.0,"until_s":500.0,"over":false,"note":""}'
    line = f'{{"event":"deferral","time_s":1,"deferral":{record}}}\n'
    (tmp_path / "journal.deferrals.jsonl").write_text(line)
    assert DeferralLog(tmp_path / "journal.jsonl").known() == {7: GIVEN}


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
