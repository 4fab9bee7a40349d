"""What users write is data: none of it steers a terminal, fails a cycle or becomes part of a command."""

from __future__ import annotations

import pytest

from slurmsched.plain_text import escape_terminal
from tests.live.lab import USERS, Installed, column, nices, run, submit

pytestmark = [pytest.mark.live, pytest.mark.newest]

NASTY = (
    "\x1b[2J\x1b]0;owned\x07", "\x9b31m\r", "\u202egpj.exe\u2066", "a\nJobId=1 Nice=0\n", "a|b|c|1|2|3",
    "%A %n {0} $(id)", "`reboot`;rm -rf /tmp/x&'\"\\", "\u6f22\u5b57 \U0001f600 \u00e4\u0301",
    "slurmsched: dur=\x1b[31m", "JobId=9 UserId=root(0)",
)  # fmt: skip
HIDDEN = "nobody-must-see-this-made"
COMMANDS = (("plan",), ("queue",), ("status",), ("tick", "--dry-run", "-v"), ("undo",))


@pytest.fixture
def hostile(site: Installed) -> list[int]:
    """Jobs that wait, named and commented so, one with a comment as long as Slurm takes, and one of 100,000 tasks."""
    site.configure(policy='{ name = "srsf" }', scope__partitions='["*"]')
    jobs = []
    for i, text in enumerate(NASTY):
        options = (f"--comment={text}", "--partition=phantom", f"--time={90 - i}")
        jobs.append(submit(USERS[i % 4], 1, *options, name=text.replace("\n", " ")))
    jobs.append(longest())
    array = ("--array=0-99999", f"--comment=$(touch /tmp/{HIDDEN})")
    jobs.append(submit("alice", 1, *array, "--partition=phantom", "--time=4"))
    return jobs


def longest() -> int:
    """A job whose comment is as long as this Slurm takes it, from 32 KB down."""
    request = ("sbatch", "--parsable", "--output=/dev/null", "--partition=phantom", "--gpus=1", "--mem=1G", "--time=5")
    for length in (32_768, 16_384, 8_192, 4_096, 1_024, 1_000):
        text = "slurmsched: dur=1h ".ljust(length, "x")
        answer = run(*request, f"--comment={text}", "--wrap=sleep 600", user="bob", check=False)
        if not answer.rc:
            return int(answer.out)
    raise AssertionError(answer.err)


def steering(text: str) -> list[str]:
    """Lines of an output that are not harmless."""
    return [line for line in text.split("\n") if escape_terminal(line) != line]


def test_hostile_jobs__every_command_works_and_says_nothing_that_steers(site, hostile):
    """Tables, JSON, log and journal; the order is written, and undone."""
    for command in COMMANDS:
        for form in ((), ("--json",)):
            done = site(*command, *form)
            assert "Traceback" not in done.err
            assert steering(done.out + done.err) == [], command
    queued = {row["job_id"] for row in site("queue", "--json").json()["jobs"]}
    assert set(hostile) <= queued
    assert site.tick()["written"] > 0
    assert site.tick()["planned"] == 0
    assert run("sh", "-c", f"ls /tmp/{HIDDEN}", check=False).rc != 0
    assert steering(site.journal.read_text()) == []
    site("undo", "--apply", "--yes")
    assert {nice for job, nice in nices().items() if job in hostile} == {0}
    assert len(set(column("%A", "PENDING")) & set(hostile)) == len(hostile), "nobody's job was touched otherwise"
