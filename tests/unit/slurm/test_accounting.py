"""Runs from accounting."""

from __future__ import annotations

import math

import pytest
from structlog.testing import capture_logs

from slurmsched.errors import UnreadableError
from slurmsched.slurm.accounting import JOBS_PER_CALL, AccountedRun, earlier_runs, parse_runs, with_parts
from slurmsched.testing import snapshot
from tests.recorded.playback import HERE, recorded_versions

HEADER = "JobIDRaw|Submit|Start|End|Suspended|State|AllocTRES"
PUBLIC = (HERE / "public" / "sacct-P-gpu-mixed-states.txt").read_text()


def runs_by_id(text: str) -> dict[int, AccountedRun]:
    return {run.job_id: run for run in parse_runs(text, [])}


def test_parse_runs__of_a_published_answer():
    """51 rows of 23.x to 24.x: steps skipped, a typed and an untyped GPU once, states without the user."""
    runs = runs_by_id(PUBLIC)
    assert len(runs) == 26
    assert (runs[1_902_893].gpus, runs[1_955_319].gpus, runs[1_956_889].gpus, runs[1_918_094].gpus) == (4, 1, 1, 0)
    assert {run.state for run in runs.values()} == {"RUNNING", "PENDING", "TIMEOUT", "FAILED", "COMPLETED", "CANCELLED"}


def test_parse_runs__knows_what_never_started():
    """Unknown and None are no times; a job that never ran held nothing."""
    runs = runs_by_id(PUBLIC)
    running, waiting, cancelled = runs[1_879_824], runs[1_903_070], runs[1_956_890]
    assert [math.isnan(run.end_s) for run in (running, waiting, cancelled)] == [True, True, False]
    assert [math.isnan(run.start_s) for run in (running, waiting, cancelled)] == [False, True, True]
    assert (waiting.gpus, cancelled.gpus) == (0, 0)


def test_parse_runs__numbers_the_runs_of_a_job():
    """A requeue closes a record; the next one has a later submit time, whatever their order in the answer."""
    rows = ("7|200|Unknown|Unknown|00:00:00|PENDING|", "7|100|110|190|00:00:30|REQUEUED|gres/gpu:a100=3,gres/gpu=3")
    first, second = parse_runs("\n".join([HEADER, *rows, ""]), [])
    assert first == AccountedRun(7, 100.0, 110.0, 190.0, 30.0, 3, "REQUEUED", 0)
    assert (second.submit_s, second.restart, second.gpus) == (200.0, 1, 0)


def test_with_parts__counts_shards_as_the_part_that_they_are():
    """One of four shards is a fourth of a GPU, 25 of 100 MPS too. With whole GPUs they add nothing, nor where GPUs have
    several numbers of shards."""
    held = {7: "gres/shard=1", 8: "gres/gpu=2", 9: "cpu=1"}
    rows = (f"{job}|1|2|9|00:00:00|COMPLETED|{tres}" for job, tres in held.items())
    runs = parse_runs("\n".join([HEADER, *rows, ""]), [])
    for shown, parts in (("2/4,0/4", [0.25, 2, 0]), ("2/4,0/8", [0, 2, 0]), ("", [0, 2, 0])):
        assert [run.gpus for run in with_parts(runs, snapshot((), [{"name": "n1", "shards": shown}]).nodes)] == parts
    (mps,) = parse_runs(f"{HEADER}\n7|1|2|9|00:00:00|COMPLETED|gres/mps=25\n", [])
    assert with_parts([mps], snapshot((), [{"name": "n1", "shards": "mps:0/100"}]).nodes)[0].gpus == 0.25


def test_parse_runs__keeps_bars_in_a_last_job_name():
    """JobName may hold "|" when it is the last field."""
    assert parse_runs(f"{HEADER}|JobName\n7|1|2|3|00:00:00|COMPLETED|gres/gpu=1|a|b||c\n", [])[0].gpus == 1


@pytest.mark.parametrize("text", ["", "JobID|State\n1|RUNNING\n"])
def test_parse_runs__refuses_other_text(text):
    """An answer without the fields is an error that names them."""
    with pytest.raises(UnreadableError, match="AllocTRES"):
        parse_runs(text, [])


def test_parse_runs__refuses_a_short_row():
    """A row cut in the middle is not taken for a run."""
    with pytest.raises(UnreadableError, match="2 fields, not 7"):
        parse_runs(f"{HEADER}\n7|1\n", [])


@pytest.mark.parametrize("version", recorded_versions())
def test_parse_runs__of_the_labs(version):
    """The requeued job has two records, and the running ones their GPUs."""
    runs = parse_runs((HERE / version / "sacct.txt").read_text(), [])
    twice = [run for run in runs if run.restart == 1]
    assert len(twice) == 1
    first = next(run for run in runs if run.job_id == twice[0].job_id and run.restart == 0)
    assert (first.state, first.gpus, twice[0].state) == ("REQUEUED", 1, "PENDING")
    assert sum(run.gpus for run in runs if run.state == "RUNNING") == 20


class Sacct:
    """Answers with one run for each id that is asked, and with a task nobody asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        self.asked.append((program, *arguments))
        ids = arguments[-1].removeprefix("--jobs=").split(",")
        return "\n".join([HEADER, *(f"{job}|1|2|3|00:00:00|COMPLETED|" for job in [*ids, "999999"])]) + "\n"


def test_earlier_runs__asks_in_chunks():
    """Many ids take several calls; what comes unasked is left out; order is by job."""
    commands = Sacct()
    runs = earlier_runs(commands, list(range(JOBS_PER_CALL + 2, 0, -1)))
    assert (len(commands.asked), [run.job_id for run in runs]) == (2, list(range(1, JOBS_PER_CALL + 3)))
    assert all("--duplicates" in asked for asked in commands.asked)


def test_earlier_runs__of_nothing_asks_nothing():
    """No ids, no call."""
    commands = Sacct()
    assert (earlier_runs(commands, []), commands.asked) == ([], [])


def test_parse_runs__counts_rows_that_it_leaves_out():
    """In one warning, the first of them by its text; a step is none of them."""
    rows = ["7|1|2|3|00:00:00|COMPLETED|gres/gpu=1", "7.batch|x|x|x|x|x|x", "²|1|2|3|00:00:00|COMPLETED|",
            "8|1e99|2|3|00:00:00|COMPLETED|", "9|1|2|3|00:00:00|COMPLETED|gres/gpu=x"]  # fmt: skip
    warnings: list[str] = []
    assert [run.job_id for run in parse_runs("\n".join([HEADER, *rows, ""]), warnings)] == [7]
    assert warnings == [f"3 rows of sacct cannot be read; the first: {rows[2]!r}"]

    class Odd(Sacct):
        def run(self, program: str, *arguments: str, stdin: str = "") -> str:
            return "\n".join([HEADER, *rows, ""])

    with capture_logs() as log:
        assert [run.job_id for run in earlier_runs(Odd(), [7, 8, 9])] == [7]
    assert [entry["message"] for entry in log] == warnings
