"""The record of acts: what is remembered after a restart, and what is dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurmsched.db.acts import ActLog
from slurmsched.model import Act, Purpose, Stage, Victim, Wait
from slurmsched.slurm.acting import Acting

ACT = Act("7-1", Purpose.PROMISE, 7, 0.0, "bob", "n1", 60.0, 1_000.0, (Victim(8, 0.0, 0, 8),), 1_500.0, 1_470.0,
          (Wait("n1", 8, 1_500.0),))  # fmt: skip


def log(folder: Path, now_s: float) -> ActLog:
    return ActLog(folder / "journal.jsonl", clock=lambda: now_s, keep_s=600.0)


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
