"""Helpers of users: the signal reaches the command, what it says by its end is done, files are whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.plugin.lua import PLUGIN

FOLDER = PLUGIN / "requeue"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of a job, and a scontrol that only notes what it is asked."""
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexit 1\n')
    scontrol.chmod(0o755)
    yield {"PATH": f"{scontrol.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}


def begun(world: dict[str, str], *command: str) -> subprocess.Popen[str]:
    """The wrapper at work on a command that has said "ready"."""
    argv = [str(FOLDER / "slurmsched-requeue"), *command]
    process = subprocess.Popen(argv, env=world, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def asked(tmp_path: Path) -> str:
    return (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""


SAYS = "trap 'echo got; exit {code}' {signal}; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("code", "sent", "requeued"), [(75, "USR1", True), (0, "USR1", False), (3, "USR1", False), (75, "TERM", False)]
)
def test_requeue__does_what_the_commands_end_says(world, tmp_path, code, sent, requeued) -> None:
    """75 after the signal: back to the queue. Done, failed, or told to end: that is how the job ends."""
    process = begun(world, "bash", "-c", SAYS.format(code=code, signal=sent))
    process.send_signal(getattr(signal, f"SIG{sent}"))
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode, asked(tmp_path)) == ("got\n", code, "requeue 17\n" if requeued else "")


def test_requeue__a_command_that_knows_no_signal_goes_back_too(world, tmp_path) -> None:
    """It dies of it, and starts from its last checkpoint. The wrapper's own signal may be another."""
    process = begun(world, "-s", "SIGUSR2", "bash", "-c", "echo ready; exec sleep 60")
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=30)
    assert (process.returncode, asked(tmp_path)) == (128 + signal.SIGUSR2, "requeue 17\n")


ARRAY = {"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "4"}


def test_requeue__a_task_of_an_array_goes_back_alone(world, tmp_path, monkeypatch) -> None:
    """The task that starts last has the id of its array, by which Slurm requeues all tasks."""
    process = begun(world | ARRAY, "bash", "-c", SAYS.format(code=75, signal="USR1"))
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=30)
    monkeypatch.syspath_prepend(str(FOLDER))
    import slurmsched_requeue

    for name, value in (world | ARRAY).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurmsched_requeue, "_is_batch_script", lambda: True)
    with pytest.raises(SystemExit):  # the scontrol of this test refuses
        slurmsched_requeue.Asked.__new__(slurmsched_requeue.Asked).leave()
    assert asked(tmp_path) == "requeue 17_4\n" * 2


def test_requeue__two_signals_are_two_for_the_command(world, tmp_path) -> None:
    """The second may come while it saves itself; the end counts, not the wait that was cut short."""
    script = "n=0; trap 'n=$((n+1)); echo $n' USR1; echo ready; while [ $n -lt 2 ]; do sleep 0.05; done; exit 0"
    process = begun(world, "bash", "-c", script)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=30)[0] == "2\n"
    assert (process.returncode, asked(tmp_path)) == (0, "")


def test_requeue__to_children_where_asked(world, tmp_path) -> None:
    """-g: a script that runs a program in its foreground."""
    inner = SAYS.format(code=75, signal="USR1")
    process = begun(world, "-g", "bash", "-c", 'trap : USR1; bash -c "$0"; exit $?', inner)
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=30)[0] == "got\n"
    assert (process.returncode, asked(tmp_path)) == (75, "requeue 17\n")


@pytest.mark.parametrize("words", [(), ("-s", "NOSUCH", "true"), ("-x", "true")])
def test_requeue__tells_how_it_is_used(world, words) -> None:
    """Nothing runs."""
    done = subprocess.run([FOLDER / "slurmsched-requeue", *words], env=world, capture_output=True, check=False)
    assert done.returncode == 64


def test_example__saves_and_goes_on(world, tmp_path) -> None:
    """Told to leave, it ends with 75 and a whole file; begun again it goes on from there and ends with 0."""
    state = tmp_path / "state.json"
    command = [sys.executable, str(FOLDER / "examples" / "train.py")]
    first = subprocess.Popen([*command, "100000", str(state)], env=world, stdout=subprocess.PIPE, text=True)
    limit_s = time.monotonic() + 30
    while not _handles(first.pid, signal.SIGUSR1):
        assert time.monotonic() < limit_s
        time.sleep(0.05)
    first.send_signal(signal.SIGUSR1)
    out, _ = first.communicate(timeout=30)
    step = json.loads(state.read_text())["step"]
    assert (first.returncode, out) == (75, f"begins\nsaved at step {step}\n")
    again = subprocess.run([*command, str(step + 1), str(state)], env=world, capture_output=True, text=True, check=True)
    assert again.stdout == f"goes on at step {step}\ndone at step {step + 1}\n"


def _handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, as /proc says."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt:")).split()[1]
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_save__keeps_the_old_file_when_writing_fails(tmp_path, monkeypatch) -> None:
    """And leaves nothing else behind."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import slurmsched_requeue

    path = tmp_path / "state"
    slurmsched_requeue.save(path, "one")
    with pytest.raises(TypeError):
        slurmsched_requeue.save(path, 7)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["one"]
    slurmsched_requeue.save(path, b"two")
    assert path.read_bytes() == b"two"
