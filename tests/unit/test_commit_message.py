"""The hook for commit messages: an area, and the reason where the product changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".ci" / "hooks" / "commit-msg"


@pytest.mark.parametrize(
    ("message", "changed", "taken"),
    [
        ("planning: levers keep to their writes\n\nThey used the whole budget.\n", "slurmsched/a.py", True),
        ("planning: levers keep to their writes\n", "slurmsched/a.py", False),
        ("planning: levers keep to their writes\n", "docs/a.md", True),
        ("Second look: things\n\nWhy.\n", "docs/a.md", False),
        ("levers keep to their writes\n", "docs/a.md", False),
        ("fixup! anything\n", "slurmsched/a.py", True),
        ("amend! anything\n\nAnything\n", "slurmsched/a.py", True),
    ],
)
def test_hook__takes_an_area_and_a_reason(tmp_path: Path, message: str, changed: str, taken: bool) -> None:
    """What git would say of such a message when this file is staged."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (file := tmp_path / changed).parent.mkdir()
    file.write_text("x")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (text := tmp_path / "message").write_text(message)
    done = subprocess.run([str(HOOK), str(text)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0, bool(done.stderr)) == (taken, not taken)
