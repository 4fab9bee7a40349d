"""docs/json.md describes the JSON of the commands that list things: every key, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slurmsched.slurm.doctor import CheckResult, diagnosis
from tests.unit.cli.test_explain import asked  # noqa: F401
from tests.unit.cli.test_gpus import cluster  # noqa: F401
from tests.unit.cli.test_operations import recorded  # noqa: F401  # a ledger with operations
from tests.unit.cli.test_undo import written  # noqa: F401

PAGE = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
ROWS = {"queue": "jobs", "operations": "operations", "history": "history", "plugins": "plugins", "undo": "restore",
        "explain": "explanation", "config": "values", "largest": "largest", "doctor": "findings"}  # fmt: skip


def _top(section: str) -> set[str]:
    """The keys named in the section's first sentence, or in its table where no sentence lists them."""
    if "`: " not in SECTIONS[section].partition("\n|")[0]:
        return _row(section)
    return set(re.findall(r"`(\w+)`", SECTIONS[section].split("`: ", 1)[1].split(".", 1)[0]))


def _row(section: str) -> set[str]:
    """The keys of the section's table."""
    cells = re.findall(r"^\| (`[^|]*) \|", SECTIONS[section], re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(
    ("section", "words"),
    [("queue", ("queue",)), ("plan", ("plan",)), ("operations", ("operations",)), ("history", ("history", "8")),
     ("plugins", ("policy", "list")), ("status", ("status",)), ("config", ("config", "show")),
     ("check", ("config", "check")), ("tick", ("tick", "--dry-run"))],
)  # fmt: skip
def test_json__has_the_keys_of_the_page(run, fakes, recorded, section, words):  # noqa: F811
    """At the top and in the rows, with the schema's name."""
    compared(run, section, words)


def test_json__of_one_job_has_the_keys_of_the_page(run, asked):  # noqa: F811
    """`explain` has one table in place of rows."""
    compared(run, "explain", ("explain", "11", "--as-user"))


@pytest.mark.parametrize(("section", "words"), [("fit", ("fit", "--gpus", "1")), ("largest", ("fit",))])
def test_json__of_requests_has_the_keys_of_the_page(run, cluster, section, words):  # noqa: F811
    """`fit` with a request and without one."""
    compared(run, section, words)


def test_json__of_checks_and_of_undo_has_the_keys_of_the_page(run, written, monkeypatch):  # noqa: F811
    """A finding, and a value to restore."""
    monkeypatch.setattr(diagnosis, "diagnose", lambda *_, **__: [CheckResult("gres", "ok", "there")])
    for command in ("doctor", "undo"):
        compared(run, command, (command,))


def compared(run, section, words):
    """The keys of what a command prints against those of its section."""
    told = json.loads(run(*words, "--json").out)
    assert told.pop("schema") == f"slurmsched/{section}/1"
    assert set(told) == _top(section)
    if section in ROWS:
        rows = told[ROWS[section]]
        assert set(rows if isinstance(rows, dict) else rows[0]) == _row(section)
