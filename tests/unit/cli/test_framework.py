from __future__ import annotations

import json
import sys

import click
import numpy as np
import pytest

from slurmsched.cli import framework
from slurmsched.cli.framework import MANY, Output


def test_json__reads_back(capsys):
    """numpy values, tuples, NaN and sets come out as plain JSON."""
    Output(as_json=True).json({"a": np.int64(3), "b": float("nan"), "c": (1, 2), "d": {"y", "x"}, "e": np.arange(2)})
    assert json.loads(capsys.readouterr().out) == {"a": 3, "b": None, "c": [1, 2], "d": ["x", "y"], "e": [0, 1]}


def test_table__of_a_pipe_is_plain_and_never_cut(capsys):
    """Piped tables have no escape codes, and a row stays one line whatever its width. A CJK character takes two."""
    long = "word " * 100
    Output().table(("job>", "reason"), [(7, long), (12345, "short")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["  job  reason", f"    7  {long.rstrip()}", "12345  short"]
    Output().table(("user", "job>"), [("\u738b\u5c0f", 7), ("al\x1b", None)], title="jobs")
    assert capsys.readouterr().out.splitlines() == ["jobs", "user    job", "\u738b\u5c0f      7", "al\\x1b"]
    for noheader, expected in ((False, "user\n"), (True, "\n")):
        Output().table(("user",), [], noheader=noheader)
        assert capsys.readouterr().out == expected


@pytest.mark.parametrize(("terminal", "rows"), [(False, 2), (True, MANY + 1)])
def test_table__of_many_rows_needs_no_rich(capsys, monkeypatch, terminal, rows):
    """rich takes a millisecond a row: minutes for a queue of 100,000 jobs."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    Output(color=False).table(("job>", "name"), [(job, "train") for job in range(rows)])
    assert len(capsys.readouterr().out.splitlines()) == rows + 1


def test_table__takes_brackets_as_text(capsys):
    """Hostlists in brackets are no markup."""
    Output().table(("nodes",), [("n[1-4]",)])
    assert capsys.readouterr().out.splitlines() == ["nodes", "n[1-4]"]


@pytest.mark.parametrize(
    ("terminal", "variable", "option", "expected"),
    [(True, "", True, True), (True, "1", True, False), (True, "", False, False), (False, "", True, False)],
)
def test_color__needs_a_terminal_and_no_veto(terminal, variable, option, expected, monkeypatch):
    """Colours only on a terminal, and never with NO_COLOR or --no-color."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("NO_COLOR", variable)
    assert Output(color=option).color == expected


def test_fact__breaks_its_lines_on_a_terminal_alone(capsys, monkeypatch):
    """Under its own column, no word cut; a pipe has one line a fact."""
    monkeypatch.setenv("COLUMNS", "40")
    Output().fact("why", "word " * 8 + "\x1b[1m")
    assert capsys.readouterr().out == "why        " + "word " * 8 + "\\x1b[1m\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Output(color=False).fact("why", "word " * 8 + "scontrol-update")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["why        word word word word word word", " " * 11 + "word word scontrol-update"]


def test_table__that_is_too_wide_breaks_its_heads(capsys, monkeypatch):
    """On a terminal; no column is lost. One that fits stays on a line."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for longest in ("", "of all of them "):
        Output(color=False).table(("from", "mean [s]>", f"90 % {longest}[s]>"), [("2026-03-01 02:40", "1.00", "2.00")])
    fits, numbers, *heads, last = capsys.readouterr().out.splitlines()
    assert fits.split() == ["from", "mean", "[s]", "90", "%", "[s]"]
    assert numbers.split() == last.split() == ["2026-03-01", "02:40", "1.00", "2.00"]
    assert (len(heads), heads[-1].split()) == (6, ["from", "[s]", "[s]"])


@pytest.mark.parametrize("column", ["reason", "why", "note"])
def test_table__never_cuts_the_reason(capsys, monkeypatch, column):
    """On 80 columns it is wrapped between words; names are cut in its place."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    reason = "attained 12.5 GPU h, fair share 0.31, in this queue since yesterday evening"
    numbers = ("rank>", "job>", "gpus>", "GPU h>", "queue>", "now>", "wanted>")
    row = (1, 123456, "a_user_with_a_long_name", "partition_with_a_long_name", *[99_999] * 5, reason)
    Output(color=False).table((*numbers[:2], "user", "partition", *numbers[2:], column), [row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [word for word in reason.split() if not any(word in line for line in lines)] == []
    assert any("…" in line for line in lines)


def test_command_line__types_the_same_again():
    """What was given, in the order of the parameters; quoted where the shell needs it; no defaults."""
    told = []

    @click.command("show")
    @click.argument("files", nargs=-1)
    @click.option("-p", "--policy", "policies", multiple=True)
    @click.option("--requeue/--no-requeue", default=True)
    @click.option("--seed", default=0)
    @click.option("--json", "as_json", is_flag=True)
    def show(**values):
        told.append(framework.command_line())

    show.main(
        ["a b", "c", "-p", "las:x=[1]", "--policy", "fifo", "--no-requeue"], prog_name="prog", standalone_mode=False
    )
    show.main(["--seed", "3", "--json"], prog_name="prog", standalone_mode=False)
    assert told == ["prog 'a b' c --policy 'las:x=[1]' --policy fifo --no-requeue", "prog --seed 3 --json"]
