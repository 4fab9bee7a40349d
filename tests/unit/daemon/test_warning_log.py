"""Each warning and note once in the log of a daemon."""

from __future__ import annotations

from structlog.testing import capture_logs

from slurmsched.daemon.observers import MOST_NEW_TEXTS, WarningLog
from slurmsched.model import PlacedJob, Plan, Receipt
from slurmsched.testing.builders import snapshot


def logged(
    told: WarningLog, warnings: tuple[str, ...] = (), notes: tuple[str, ...] = (), stopped: str = ""
) -> list[str]:
    """What one cycle adds to the log."""
    with capture_logs() as logs:
        told(snapshot([], warnings=warnings), Plan(notes=notes), Receipt(stopped=stopped))
    return [f"{entry['log_level']} {entry['event']} {entry['text']}" for entry in logs]


def test_told__logs_each_text_when_it_is_new():
    """Again only after a cycle without it."""
    told = WarningLog(placing=True)
    first = logged(told, ("odd gres",), ("scope is empty",), "no Operator right")
    assert first == [
        "warning snapshot.warned odd gres", "info plan.noted scope is empty", "warning apply.stopped no Operator right",
    ]  # fmt: skip
    assert logged(told, ("odd gres",), ("scope is empty",), "no Operator right") == []
    assert logged(told, ("odd gres", "odd state")) == ["warning snapshot.warned odd state"]
    assert logged(told, stopped="no Operator right") == ["warning apply.stopped no Operator right"]


def test_told__a_count_that_moves_is_no_news():
    """slurmdbd away for a night, or many jobs of another tool: one line, not one a cycle. A job's own number counts."""
    told = WarningLog(placing=True)
    busy = "slurmctld is busy: {} messages to slurmdbd, more than 5000"
    assert len(logged(told, ("9 jobs are left alone (jobs 1, 2, ...)",), ("job 5: odd",), busy.format(6973))) == 3
    again = logged(told, ("8 jobs are left alone (jobs 2, 4, 7, ...)",), ("job 6: odd",), busy.format(6975))
    assert again == ["info plan.noted job 6: odd"]


def test_told__counts_a_flood():
    """A bad hint in each of thousands of jobs does not fill the log."""
    lines = logged(WarningLog(placing=True), tuple(f"job {i}" for i in range(MOST_NEW_TEXTS + 5)))
    assert (len(lines), lines[-1]) == (
        MOST_NEW_TEXTS + 1, "warning snapshot.warned and 5 more; `slurmsched plan` shows all"
    )  # fmt: skip


def test_told__warns_of_each_job_that_missed_better_gpus():
    """By name, every time; those that got the best are no news."""
    good = PlacedJob(1, 1.0, 5.0, "n1", 2, 50.0, 50.0, 1.0, True)
    bad = PlacedJob(2, 1.0, 5.0, "n1", 2, 25.0, 50.0, 0.5, False, "n2 had GPUs 0,3")
    with capture_logs() as logs:
        WarningLog(placing=True)(snapshot([], placed=(good, bad)), Plan(), Receipt())
    expected = {"event": "placement.missed", "log_level": "warning", "job_id": 2, "nodes": "n1", "gpus": 2}
    assert logs == [expected | {"ratio": 0.5, "pinned": False, "better": "n2 had GPUs 0,3"}]


def missed_by(job_id: int, *, pinned: bool = False) -> PlacedJob:
    return PlacedJob(job_id, 1.0, 5.0, "n1", 2, 25.0, 50.0, 0.5, pinned, "n2 had GPUs 0,3")


def test_told__counts_misses_of_slurm_where_nothing_is_placed():
    """One line that is no warning: slurmsched could have done nothing. A job still on nodes of ours is named."""
    with capture_logs() as logs:
        WarningLog(placing=False)(snapshot([], placed=tuple(map(missed_by, range(1, 31)))), Plan(), Receipt())
    (entry,) = logs
    assert (entry["event"], entry["log_level"], entry["jobs"]) == ("placement.missed", "info", 30)
    with capture_logs() as logs:
        WarningLog(placing=False)(snapshot([], placed=(missed_by(1), missed_by(2, pinned=True))), Plan(), Receipt())
    told = [(entry["log_level"], entry.get("job_id"), entry.get("jobs")) for entry in logs]
    assert told == [("warning", 2, None), ("info", None, 1)]


def test_told__counts_a_flood_of_misses():
    """Those over the first so many are not dropped in silence, however many good starts come before them."""
    good = [PlacedJob(job, 1.0, 5.0, "n1", 2, 50.0, 50.0, 1.0, True) for job in range(MOST_NEW_TEXTS)]
    bad = [missed_by(job) for job in range(100, 100 + MOST_NEW_TEXTS + 3)]
    with capture_logs() as logs:
        WarningLog(placing=True)(snapshot([], placed=(*good, *bad)), Plan(), Receipt())
    assert (len(logs), logs[0]["job_id"]) == (MOST_NEW_TEXTS + 1, 100)
    assert logs[-1]["text"] == "and 3 more; `slurmsched topology quality` shows all"
