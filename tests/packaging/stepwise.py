"""Long commands, each step of which has a time of its own: one that hangs is ended and told by name, with what it said.

Shown as they go on with pytest's -s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HEAD = "== "  # begins the line of stdout that begins a step
SHOWN = 4000


def run(name: str, *argv: str, limit_s: float) -> str:
    """What a command of one step printed to stdout. Raises as steps() does."""
    return "".join(f"{line}\n" for line in steps(name, argv, {"": limit_s})[""])


def steps(name: str, argv: tuple[str, ...], limits_s: Mapping[str, float]) -> dict[str, list[str]]:
    """Lines of stdout by step; "" is what comes before the first line `== STEP`.

    limits_s: the longest that each step may take [s]. Raises AssertionError, naming the step, if one takes longer or
    the command fails. The command and its children end with this process, and when this returns.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "stdout"), Path(folder, "stderr")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", *argv], stdin=subprocess.DEVNULL, stdout=stdout,
                                       stderr=stderr, start_new_session=True)  # fmt: skip
        try:
            late = _watched(name, process, out, limits_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed = _parts(out)
        fault = late or (f"ended with status {process.returncode}" if process.returncode else "")
        texts = "".join(path.read_text(errors="replace")[-SHOWN:] for path in (out, err)) if fault else ""
        assert not fault, f"{name}: {' '.join(argv)[:200]}: step {list(printed)[-1]!r} {fault}; it printed:\n{texts}"
        return printed


def _watched(name: str, process: subprocess.Popen[bytes], out: Path, limits_s: Mapping[str, float]) -> str:
    """Waits for the end; what is said of the step that takes too long, or ""."""
    step, begun_s = "", time.monotonic()
    while process.poll() is None:
        if (latest := list(_parts(out))[-1]) != step:
            _tell(name, step, begun_s)
            step, begun_s = latest, time.monotonic()
        limit_s = limits_s.get(step, limits_s[""])
        if time.monotonic() - begun_s > limit_s:
            return f"did not end within {limit_s:g} s"
        time.sleep(0.1)
    _tell(name, step, begun_s)
    return ""


def _tell(name: str, step: str, begun_s: float) -> None:
    print(f"{name}{f', {step}' if step else ''}: {time.monotonic() - begun_s:.0f} s", flush=True)


def _parts(out: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"": []}
    for line in out.read_text(errors="replace").splitlines():
        if line.startswith(HEAD):
            found[line.removeprefix(HEAD)] = []
        else:
            found[list(found)[-1]].append(line)
    return found
