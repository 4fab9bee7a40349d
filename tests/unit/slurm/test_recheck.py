"""The last look before writing: what changed since the snapshot is left alone."""

from __future__ import annotations

import pytest

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model import Delay, JobState, Join, Requeue, Reserve, SetNice, SetSiteFactor, Signal, Unreserve
from slurmsched.slurm.recheck import Recheck, Seen, changed

PENDING = Seen(100.0, JobState.PENDING, 5, 0)


class Answers:
    """Commands that print what they are given; the calls are kept."""

    def __init__(self, **texts: str | Exception) -> None:
        self.texts, self.calls = texts, []

    def run(self, program: str, *arguments: str) -> str:
        self.calls.append((program, *arguments))
        answer = self.texts[program]
        if isinstance(answer, Exception):
            raise answer
        return answer


def nice(job_id: int = 7, old: int = 5, new: int = -10, base: int = 0) -> SetNice:
    return SetNice(job_id, 100.0, "", old, new, base)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (None, "left the queue"),
        (Seen(101.0, JobState.PENDING, 5), "requeued"),
        (Seen(100.0, JobState.RUNNING, 5), "RUNNING"),
        (Seen(100.0, JobState.PENDING | JobState.COMPLETING, 5), "PENDING+COMPLETING"),
        (Seen(100.0, JobState.CANCELLED, 5), "CANCELLED"),
        (Seen(100.0, JobState.PENDING, 6), "its nice is 6, not 5"),
        (PENDING, ""),
    ],
)
def test_changed__says_what_no_longer_fits(seen, word):
    """Gone, requeued, started, ended, or given another value: each by name; nothing for a job as it was."""
    found = changed(nice(), {7: seen} if seen else {})
    assert word in found
    assert bool(found) == bool(word)


def test_changed__job_without_a_known_submit_time_is_left_alone():
    """Its id may have been used again; and the journal could not name it."""
    action = SetNice(7, float("nan"), "", 5, -10, 0)
    assert "submit time is not known" in changed(action, {7: PENDING})


def test_changed__site_factor_is_compared_where_sprio_shows_the_job():
    """A held job has no row in sprio: its site factor cannot be compared."""
    action = SetSiteFactor(7, 100.0, "", 0, 900, 0)
    assert changed(action, {7: Seen(100.0, JobState.PENDING, 5, 3)}) == (
        "changed since the snapshot: its site_factor is 3, not 0"
    )
    assert changed(action, {7: Seen(100.0, JobState.PENDING, 5, None)}) == ""


def test_changed__base_may_go_back_to_a_job_that_started():
    """Undo reaches running jobs, since a requeue keeps their nice; ended ones it does not."""
    action = nice(old=-10, new=3, base=3)
    assert changed(action, {7: Seen(100.0, JobState.RUNNING, -10)}) == ""
    assert "COMPLETED" in changed(action, {7: Seen(100.0, JobState.COMPLETED, -10)})


def test_recheck__reads_only_the_jobs_of_the_actions():
    """One squeue for them all, no sprio for nice; tasks of the same array that were not asked for are left out."""
    slurm = Answers(squeue="7|100|5|PENDING|night\n7|100|5|PENDING|night\n8|90|-3|RUNNING|(null)\n")
    assert Recheck(slurm)([nice(7), nice(9)]) == {7: Seen(100.0, JobState.PENDING, 5, None, "night")}
    assert [call[0] for call in slurm.calls] == ["squeue"]
    assert "7,9" in slurm.calls[0]


def test_recheck__asks_sprio_for_site_factors():
    """squeue does not show them. A job in several partitions has several rows."""
    slurm = Answers(squeue="7|100|5|PENDING|(null)\n", sprio="7|-12\n7|-12\n8|3\n")
    found = Recheck(slurm)([SetSiteFactor(7, 100.0, "", -12, 0, 0)])
    assert found == {7: Seen(100.0, JobState.PENDING, 5, -12)}


def test_recheck__job_that_is_gone_is_absent():
    """squeue refuses a single id that it does not know."""
    gone = SlurmError("squeue: slurm_load_jobs error: Invalid job id specified")
    assert Recheck(Answers(squeue=gone))([nice(7)]) == {}


@pytest.mark.parametrize("error", [SlurmUnreachableError("away"), SlurmError("another trouble")])
def test_recheck__other_errors_are_raised(error):
    """Only a job that is gone is no error."""
    with pytest.raises(type(error), match=str(error)):
        Recheck(Answers(squeue=error))([nice(7)])


@pytest.mark.parametrize(
    "texts", [{"squeue": "7|100|5\n", "sprio": ""}, {"squeue": "7|100|5|PENDING|(null)\n", "sprio": "7|x\n"}]
)
def test_recheck__unreadable_text_is_an_error(texts):
    """Nothing is written on a guess."""
    with pytest.raises(UnreadableError):
        Recheck(Answers(**texts))([SetSiteFactor(7, 100.0, "", 0, 1, 0)])


OURS, NIGHT = "slurmsched-7-1", "night"


@pytest.mark.parametrize(
    ("action", "seen", "word"),
    [
        (Join(7, 100.0, "", "a", OURS), Seen(100.0, JobState.PENDING, 0), ""),
        (Join(7, 100.0, "", "a", OURS), Seen(100.0, JobState.RUNNING, 0), "RUNNING"),
        (Join(7, 100.0, "", "a", OURS), Seen(100.0, JobState.PENDING, 0, None, NIGHT), "its reservation is night"),
        (Join(7, 100.0, "", "a"), Seen(100.0, JobState.RUNNING, 0, None, OURS), ""),
        (Join(7, 100.0, "", "a"), Seen(100.0, JobState.RUNNING, 0, None, NIGHT), "its reservation is night"),
        (Requeue(7, 100.0, "", "a"), Seen(100.0, JobState.RUNNING, 0), ""),
        (Requeue(7, 100.0, "", "a"), Seen(100.0, JobState.COMPLETED, 0), "COMPLETED"),
        (Requeue(7, 100.0, "", "a"), Seen(160.0, JobState.RUNNING, 0), "requeued"),
        (Signal(7, 100.0, "", "a", "USR1"), Seen(100.0, JobState.PENDING, 0), "PENDING"),
        (Delay(7, 100.0, "", "a", 0.0), Seen(100.0, JobState.RUNNING, 0), "RUNNING"),
        (Reserve(7, 100.0, "", "a"), Seen(100.0, JobState.RUNNING, 0), "RUNNING"),
        (Unreserve(7, 100.0, "", "a", OURS), None, ""),
    ],
)
def test_changed__steps_need_the_job_as_it_was(action, seen, word):
    """What takes from a job needs it running, what gives to it needs it waiting; names of others are left alone."""
    found = changed(action, {7: seen} if seen else {})
    assert (word in found, bool(found)) == (True, bool(word))
