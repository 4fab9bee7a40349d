from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from slurmsched.cli import man
from slurmsched.cli.main import COMMANDS

FOLDER = Path(__file__).parents[3] / "docs" / "man"


def test_pages__on_disk_are_those_of_the_commands():
    """`make man` was run after the last change of a command."""
    on_disk = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.1")}
    assert on_disk == man.pages()


def test_pages__one_a_command():
    """slurmsched(1) and slurmsched-COMMAND(1)."""
    assert set(man.pages()) == {"slurmsched.1", *(f"slurmsched-{name}.1" for name in COMMANDS)}


def test_exit_codes__are_those_of_the_document():
    """docs/exit-codes.md lists the codes of errors.py and no other."""
    text = (FOLDER.parent / "exit-codes.md").read_text(encoding="utf-8")
    listed = [int(line.split("|")[1]) for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert sorted(listed) == sorted(man.exit_codes())


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_pages__are_good_roff():
    """groff has nothing to complain about."""
    for name, text in man.pages().items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True, check=False
        )
        assert (name, done.stderr) == (name, "")
