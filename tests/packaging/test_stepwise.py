"""A step that hangs is ended and named: what the tests of packages stand on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.packaging import stepwise

NEVER = "sleep 1000000"
HANG_S = 1e-3  # such a step is late at the first look


def test_steps__lines_by_step() -> None:
    """What was printed before the first step is under no name; stderr is not among it."""
    script = "echo early; echo noise >&2; echo == a; echo 1; echo 2; echo == b"
    assert stepwise.steps("x", ("sh", "-c", script), dict.fromkeys(("", "a", "b"), 1e6)) == {
        "": ["early"], "a": ["1", "2"], "b": [],
    }  # fmt: skip


def test_steps__one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """The message names the step and has what it printed; no child is left."""
    script = f"echo == first; {NEVER} & echo $! >{tmp_path}/child; echo why >&2; echo == second; wait"
    with pytest.raises(AssertionError, match=r"(?s)step 'second' did not end within .*why"):
        stepwise.steps("x", ("sh", "-c", script), {"": 1e6, "first": 1e6, "second": HANG_S})
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":  # else this test does not end
        time.sleep(0.01)


def test_steps__one_that_fails_is_named() -> None:
    """With its status and both of its streams."""
    with pytest.raises(AssertionError, match=r"(?s)step 'a' ended with status 3; it printed:.*told.*cause"):
        stepwise.steps("x", ("sh", "-c", "echo == a; echo told; echo cause >&2; exit 3"), {"": 1e6, "a": 1e6})


def test_run__reads_nothing_from_the_terminal() -> None:
    """A question, as dpkg asks, gets no answer instead of waiting for one."""
    assert stepwise.run("x", "sh", "-c", "cat; echo $PPID", limit_s=1e6) == f"{os.getpid()}\n"
