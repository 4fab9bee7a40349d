from __future__ import annotations

import json

import numpy as np
import pytest

from slurmsched.cli.output import Output, gpu_hours, seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0s"), (42.4, "42s"), (61, "1m 1s"), (3600, "1h"), (90_061, "1d 1h"), (-5, "-5s"), (float("nan"), "-"),
     (float("inf"), "-")],
)  # fmt: skip
def test_seconds__shows_the_two_largest_units(value, expected):
    """Durations are for people."""
    assert seconds(value) == expected


def test_gpu_hours__counts_hours():
    """Attained service in GPU hours."""
    assert gpu_hours(5400.0) == "1.5"


def test_json__reads_back(capsys):
    """numpy values, tuples, NaN and sets come out as plain JSON."""
    Output(as_json=True).json({"a": np.int64(3), "b": float("nan"), "c": (1, 2), "d": {"y", "x"}, "e": np.arange(2)})
    assert json.loads(capsys.readouterr().out) == {"a": 3, "b": None, "c": [1, 2], "d": ["x", "y"], "e": [0, 1]}


def test_table__of_a_pipe_is_plain_and_never_cut(capsys):
    """Piped tables have no escape codes, and a row stays one line whatever its width."""
    long = "word " * 100
    Output().table(("job>", "reason"), [(7, long), (12345, "short")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["  job  reason", f"    7  {long.rstrip()}", "12345  short"]


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
