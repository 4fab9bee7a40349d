"""The hook for commit messages: an area, one idea, and the reason where the product changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".ci" / "hooks" / "commit-msg"
SUBJECT, WHY = "planning: keep levers to their writes", "\n\nThey used the whole budget.\n"
LONG = f"docs: {'x' * 67}"


def refusal(folder: Path, message: str, changed: str, files: int = 1) -> str:
    """What the hook prints when so many files are staged; "" if it accepts the message."""
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / changed).parent.mkdir()
    for number in range(files):
        (folder / changed).with_suffix(f".{number}").write_text("x")
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    (text := folder / "message").write_text(message)
    done = subprocess.run([str(HOOK), str(text)], cwd=folder, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (f"{SUBJECT}{WHY}", "slurmsched/a.py"), (f"{SUBJECT}\n", "docs/a.md"), (f"{LONG[:-1]}\n", "docs/a.md"),
        ("slurm, daemon: read jobs, and keep them\n", "docs/a.md"),
        ("fixup! anything; of, any, form\n", "slurmsched/a.py"), ("amend! anything\n\nAnything\n", "slurmsched/a.py"),
    ],
)  # fmt: skip
def test_hook__accepts(tmp_path: Path, message: str, changed: str) -> None:
    """An area and one idea in 72 characters; the reason where the product changes; whatever will be squashed."""
    assert refusal(tmp_path, message, changed) == ""


@pytest.mark.parametrize(
    ("message", "changed", "why"),
    [
        (f"{SUBJECT}\n", "slurmsched/a.py", "say why in the body"),
        (f"Second look: things{WHY}", "docs/a.md", "begin with the area"),
        ("keep levers to their writes\n", "docs/a.md", "begin with the area"),
        (f"{LONG}\n", "docs/a.md", "73 characters"),
        ("docs: write a page; mend a link\n", "docs/a.md", "several ideas"),
        ("all: one vocabulary, elastic jobs, parts of GPUs\n", "docs/a.md", "several ideas"),
    ],
)
def test_hook__refuses(tmp_path: Path, message: str, changed: str, why: str) -> None:
    """Each rule gives its reason."""
    assert why in refusal(tmp_path, message, changed)


@pytest.mark.parametrize(
    ("files", "body", "expected"), [(150, "", True), (151, "", False), (151, "\nMechanical: rename.py\n", True)]
)
def test_hook__many_files_only_by_a_script(tmp_path: Path, files: int, body: str, expected: bool) -> None:
    """Nobody reads the changes of 151 files; the script can be read."""
    assert (refusal(tmp_path, f"docs: rename a word\n{body}", "docs/a.md", files) == "") is expected
