"""Whatever users write, a terminal shows it and does nothing else: tables, lines, JSON and logs."""

from __future__ import annotations

import io
import json
import unicodedata

import click
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched import logs
from slurmsched.cli.framework import Output, complain
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import Operation, Purpose, SetNice
from slurmsched.plain_text import escape_terminal, escape_terminal_json
from slurmsched.slurm.writer import command

NASTY = (
    "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "a\rb", "\u202egpj.exe", "\u2066x\u2069", "line\nslurmsched: job 1: written",
    "tab\tnul\x00del\x7f", "\ud800", "$(reboot)`id`;|&'\"\\", "{0}%s%n{x!r}", "[red]x[/red]", "x" * 32_768,
    "\U000e0041", "\u6f22\u00e4\U0001f600", "'; DROP TABLE levers; --",
)  # fmt: skip
texts = st.one_of(st.sampled_from(NASTY), st.text(st.characters(codec=None), max_size=60), st.text(max_size=60))


def steers(text: str) -> list[str]:
    """The characters of one line that do something else than being seen."""
    bidi = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    return [
        c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c) in bidi
    ]


@given(texts)
def test_harmless__leaves_nothing_that_steers(text):
    """No control, no direction, no half character; what is plain stays as it is."""
    shown = escape_terminal(text)
    assert steers(shown) == []
    assert shown == text or steers(text) or any(c in "\ufeff\u200e\u200f\u061c" or ord(c) >= 0xE0000 for c in text)


@given(texts)
def test_harmless_json__means_the_same(text):
    """Escapes of JSON itself: whoever parses it gets the user's text, whoever prints it is safe."""
    value = {"comment": text.encode("utf-8", "replace").decode()}
    safe = escape_terminal_json(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    assert json.loads(safe) == value
    assert steers(safe.replace("\n", "")) == []


@pytest.mark.parametrize("text", NASTY)
def test_table__shows_a_row_a_job_whatever_it_is_called(text, capsys):
    """One line under the header, from its begin, and nothing that steers."""
    Output().table(("job>", "user"), [(7, text)])
    lines = capsys.readouterr().out.split("\n")
    assert (len(lines), lines[2], steers("".join(lines))) == (3, "", [])
    assert lines[1][5:105] == escape_terminal(text).rstrip()[:100]


@pytest.mark.parametrize("text", NASTY)
def test_line__and_complaint_and_json(text, capsys):
    """Every way out of a command."""
    Output().line(f"note: {text}", "warning")
    complain(f"job 7: refused: {text}")
    Output(as_json=True).json({"why": text, "rows": [{"comment": text}]})
    told = capsys.readouterr()
    assert steers((told.out + told.err).replace("\n", "")) == []
    assert told.err == f"slurmsched: job 7: refused: {escape_terminal(text)}\n"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("text", NASTY)
def test_log__one_line_an_event(text, form, monkeypatch):
    """A text log goes to a terminal, JSON lines to a collector: no text makes a second event."""
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    logs.configure("info", form)
    logs.get_logger().warning("plan.noted", text=text, jobs=[text])
    (line, rest) = click.unstyle(stream.getvalue()).split("\n")
    logs.configure("info")
    assert (rest, steers(line)) == ("", [])


@pytest.mark.parametrize("text", NASTY)
def test_journal__reads_back_what_it_was_given(text, tmp_path):
    """A line an action, whatever its reason says; the operations likewise. Halves of characters are replaced."""
    journal = OverrideLog(tmp_path / "journal.jsonl")
    journal.intend("c1", [SetNice(7, 100.0, text, 0, -5, 0), SetNice(8, 100.0, "plain", 0, -6, 0)])
    assert [line["job_id"] for line in journal.lines()] == [7, 8]
    assert next(journal.lines())["reason"] == text.encode("utf-8", "replace").decode()
    operations = OperationLog(tmp_path / "journal.jsonl")
    operations.begin([Operation("7-1", Purpose.PREEMPT, 7, 100.0, text, "n1", 600.0, 1_000.0)])
    assert [operation.id for operation in operations.open()] == ["7-1"]


@pytest.mark.parametrize("text", [text for text in NASTY if not text.isalnum()])
def test_command__takes_no_word_of_a_user(text):
    """Names go into a command only if they are one harmless word."""
    from slurmsched.model import JoinReservation

    with pytest.raises(ValueError, match="is not a word that may go into a command"):
        command(JoinReservation(7, 100.0, "", "7-1", text))
