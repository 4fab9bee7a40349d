"""The record of acts: what is remembered after a restart, and what is dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurmsched.db.acts import ActLog
from slurmsched.db.clock import Clock, boot_id, uptime
from slurmsched.model import Act, Purpose, Stage, Victim, Wait
from slurmsched.slurm.acting import Acting

ACT = Act("7-1", Purpose.PROMISE, 7, 0.0, "bob", "n1", 60.0, 1_000.0, (Victim(8, 0.0, 0, 8),), 1_500.0, 1_470.0,
          (Wait("n1", 8, 1_500.0),))  # fmt: skip


def log(folder: Path, now_s: float, step_s: float = 0.0, boot: str = "b") -> ActLog:
    """step_s: by how much the wall clock was set before now."""
    return ActLog(
        folder / "journal.jsonl", clock=Clock(lambda: now_s + step_s, lambda: now_s, lambda: boot), keep_s=600.0
    )


def test_known__reads_back_what_was_put_on_record(tmp_path):
    """With its victims and what its nodes wait for."""
    log(tmp_path, 1_000.0).sent([ACT])
    assert log(tmp_path, 1_100.0).open() == (ACT,)


def test_known__closed_acts_are_remembered_for_a_while(tmp_path):
    """Caps and leases count them, after a restart too; then they go with the next clean-up."""
    closed = replace(ACT, stage=Stage.CLOSED)
    written = log(tmp_path, 1_000.0)
    written.sent([closed])
    written.compact()
    assert (log(tmp_path, 1_500.0).open(), log(tmp_path, 1_500.0).known()) == ((), (closed,))
    assert Acting(log(tmp_path, 1_500.0)).past(1_500.0) == (closed,)
    assert Acting(log(tmp_path, 1_500.0)).past(1_700.0) == ()
    late = log(tmp_path, 1_700.0)
    late.compact()
    assert late.size == 0


@pytest.mark.parametrize("step_s", [3_600.0, -3_600.0])
def test_known__an_act_keeps_its_age_when_the_clock_is_set(tmp_path, step_s):
    """In its stage for 50 s then, and 150 s a hundred later, whatever the wall clock says. The times to come are
    Slurm's; after a restart of the machine it can only be told that nothing on record is of a time to come."""
    act = replace(ACT, stage=Stage.PROMISED, stage_s=1_050.0, seen_s=1_100.0)
    log(tmp_path, 1_100.0).sent([act])
    (found,) = log(tmp_path, 1_200.0, step_s).open()
    assert (1_200.0 + step_s - found.stage_s, 1_200.0 + step_s - found.seen_s) == (150.0, 100.0)
    assert (found.promised_s, found.opens_s) == (act.promised_s, act.opens_s)
    (found,) = log(tmp_path, 1_200.0, step_s, boot="another").open()
    assert 1_200.0 + step_s - found.stage_s == (3_750.0 if step_s > 0 else 50.0)
    assert log(tmp_path, 1_200.0, 0.5).open() == (act,)


@pytest.mark.parametrize("hours", [1, 5, 24])
def test_begin__what_another_clock_put_on_record_for_later_is_not_begun_anew_each_time(tmp_path, hours):
    """The machine was started again with its clock so far behind: a closed act counts for caps and leases by what is
    left of keep_s, and not until the clock has come to where it was. The same of another host."""
    ahead_s = hours * 3_600.0
    log(tmp_path, 50_000.0 + ahead_s).sent([replace(ACT, stage=Stage.CLOSED, begun_s=49_900.0 + ahead_s)])
    first = log(tmp_path, 50_000.0, boot="another")
    assert [each.begun_s for each in first.known()] == [49_900.0]
    first.begin([])
    assert [each.begun_s for each in log(tmp_path, 50_300.0, boot="another").known()] == [49_900.0]
    assert log(tmp_path, 50_501.0, boot="another").known() == ()


def test_acting__reads_the_record_anew_when_the_clock_is_set(tmp_path):
    """A daemon keeps the acts in memory: they are put right there too, once."""
    off_s = [0.0]
    kept = ActLog(tmp_path / "journal.jsonl", clock=Clock(lambda: 1_000.0 + off_s[0], lambda: 1_000.0, lambda: "b"))
    kept.sent([replace(ACT, stage=Stage.WARNED, stage_s=990.0)])
    acting = Acting(kept)
    ages = []
    for off_s[0] in (0.0, 3_600.0, 3_600.0, 0.0):
        ages.append(1_000.0 + off_s[0] - acting.open[0].stage_s)
    assert ages == [10.0] * 4


def test_clock__uptime_goes_on_within_one_start():
    """As the system tells it."""
    assert (0 < uptime() <= uptime(), len(boot_id()) in (0, 36)) == (True, True)
