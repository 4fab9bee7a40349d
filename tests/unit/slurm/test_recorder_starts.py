"""Earliest starts on record: before they are sent, and as Slurm's answers leave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import JobChanges, Outcome, Override, OverrideState, Plan, Ranking, SetStart
from slurmsched.planning.earliest_starts import deferrals, restore_proposal
from slurmsched.slurm.recorder import OverrideRecorder
from slurmsched.testing import snapshot

GIVEN = Override(7, 100.0, "start_time", 0.0, 500.0)
MOVED = replace(GIVEN, sent=900.0)
BACK = GIVEN.closed("it may start now")
OVER = replace(BACK, state=OverrideState.ABANDONED)


def cycle(folder: Path, record: Override, status: str, queue: tuple[int, ...] = (7,)) -> tuple[Override, ...]:
    """What a later process knows after one cycle with this answer; "" = the process ended before any came."""
    now = OverrideRecorder(OverrideLog(folder / "journal.jsonl"))
    step = SetStart(7, 100.0, "", "defer-7", record.sent, base=record.base)
    now.begin(Plan(actions=(step,), overrides=(record,)), np.array(queue))
    if status:
        now.end([Outcome(step, status)])
    return OverrideRecorder(OverrideLog(folder / "journal.jsonl")).known


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
    tmp_path: Path, status: str, expected: tuple[Override, ...]
) -> None:
    """Whatever goes wrong, a later cycle or undo still knows of it."""
    cycle(tmp_path, GIVEN, "written")
    assert cycle(tmp_path, BACK, status) == expected


def test_end__what_was_not_sent_is_told_from_what_somebody_else_changed(tmp_path: Path) -> None:
    """Sending ended before this renewal had its turn: the record knows the start that the job still has."""
    cycle(tmp_path, GIVEN, "written")
    given = snapshot([{"job_id": 7, "submit_s": 100.0, "eligible_s": 500.0}], "1x8", now_s=400.0, overrides=(GIVEN,))
    wants = Ranking(np.arange(1), changes=JobChanges(start_s=np.array([np.inf])))
    moved = deferrals(given, wants, np.array([True]), LeverConfig(start=True), ScopeConfig(partitions=("*",)))
    now = OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(actions=moved.actions, overrides=moved.overrides), np.array([7]))
    now.end([])
    for known in (now.known, OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl")).known):
        back = restore_proposal(replace(given, overrides=known), "undo")
        assert [(action.job_id, action.old, action.restores) for action in back.actions] == [(7, 500.0, True)]


def test_begin__a_record_without_an_action_is_settled_at_once(tmp_path: Path) -> None:
    """A job whose start somebody else changed is left alone, by the next process too."""
    cycle(tmp_path, GIVEN, "written")
    now = OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(overrides=(OVER,)), np.array([7]))
    now.end([])
    assert OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl")).known == (OVER,)


def test_begin__jobs_that_left_the_queue_are_forgotten(tmp_path: Path) -> None:
    """Within a process that goes on."""
    now = OverrideRecorder(OverrideLog(tmp_path / "journal.jsonl"))
    now.begin(Plan(overrides=(GIVEN,)), np.array([7]))
    now.begin(Plan(), np.array([8]))
    assert now.known == ()
