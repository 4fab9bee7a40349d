"""Examples for frameworks, beside stand-ins for these: what the examples do themselves, not what PyTorch does."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.unit.plugin.lua import PLUGIN

EXAMPLES = PLUGIN / "requeue" / "examples"
TORCH = """
import json, os, runpy, signal, sys
from unittest.mock import MagicMock
torch = MagicMock()
torch.cuda.is_available.return_value = False
torch.save = lambda state, out: out.write(json.dumps({"step": state["step"]}).encode())
torch.load = lambda path, **_: {**json.load(open(path)), "model": 0, "optimiser": 0, "chance": 0}
example, cut, *sys.argv[1:] = sys.argv[1:]
Adam, taken = torch.optim.Adam.return_value, []
def step():
    taken.append(1)
    if len(taken) == int(cut):
        os.kill(os.getpid(), signal.SIGUSR1)
Adam.step = step
sys.modules["torch"] = torch
runpy.run_path(example, run_name="__main__")
"""


def trained(state: Path, steps: int, cut: int) -> tuple[int, str]:
    """Exit code and output of the PyTorch example, which gets the signal in its step number `cut`, 0 = never."""
    argv = [sys.executable, "-c", TORCH, str(EXAMPLES / "train_torch.py"), str(cut), str(steps), str(state)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_torch__saves_after_the_step_and_goes_on_there(tmp_path: Path) -> None:
    """No step is lost, none taken twice, however often it must leave, in its first step or its last too."""
    state = tmp_path / "state.pt"
    assert trained(state, 10, 1) == (75, "saved at step 1\n")
    assert trained(state, 10, 4) == (75, "goes on at step 1\nsaved at step 5\n")
    assert trained(state, 10, 5) == (75, "goes on at step 5\nsaved at step 10\n")
    assert trained(state, 10, 0) == (0, "goes on at step 10\ndone at step 10\n")
    assert (json.loads(state.read_text()), [*tmp_path.iterdir()]) == ({"step": 10}, [state])


def test_torch__saves_now_and_then_unasked(tmp_path: Path) -> None:
    """A node may fail without a signal."""
    state = tmp_path / "state.pt"
    code, _ = trained(state, 1_200, 0)
    assert (code, json.loads(state.read_text())["step"]) == (0, 1_200)
    text = (EXAMPLES / "train_torch.py").read_text().replace("step += 1\n", "step += 1\n        assert step < 1_100\n")
    cut = tmp_path / "requeue" / "examples" / "train_torch.py"
    cut.parent.mkdir(parents=True)
    (cut.parent.parent / "slurmsched_requeue.py").write_bytes((EXAMPLES.parent / "slurmsched_requeue.py").read_bytes())
    cut.write_text(text)
    state.unlink()
    argv = [sys.executable, "-c", TORCH, str(cut), "0", "5000", str(state)]
    assert b"AssertionError" in subprocess.run(argv, capture_output=True, check=False).stderr
    assert json.loads(state.read_text())["step"] == 1_000


class Batches:
    """As much of a DataLoader as the example builds on."""

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.count = len(dataset)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the Lightning example."""
    torch, lightning = MagicMock(), MagicMock(LightningModule=object)
    torch.utils.data = types.SimpleNamespace(Dataset=object, DataLoader=Batches)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "lightning", lightning)
    for name in ("pytorch", "pytorch.callbacks", "pytorch.plugins", "pytorch.plugins.environments"):
        monkeypatch.setitem(sys.modules, f"lightning.{name}", MagicMock(Callback=object))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(EXAMPLES / "train_lightning.py"))


@pytest.fixture
def handler() -> Iterator[None]:
    """The test's own handler comes back."""
    kept = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, kept)


def trainer(save: Callable[[str], object], heard: list[bool]) -> MagicMock:
    """A trainer whose other processes heard what `heard` says, and whose checkpoint is written by `save`."""
    made = MagicMock(global_step=7, is_global_zero=True)
    made.strategy.reduce_boolean_decision = lambda own, all: any((own, *heard)) and not all
    made.save_checkpoint = save
    return made


@pytest.mark.parametrize("own", [True, False])
def test_lightning__all_processes_leave_at_one_step(example, handler, tmp_path, capsys, own: bool) -> None:
    """Whichever of them heard the signal; the old checkpoint stays until the new one is whole."""
    state = tmp_path / "state.ckpt"
    state.write_text("old")
    leave = example["Leave"](str(state))

    def save(path: str) -> None:
        assert state.read_text() == "old"
        Path(path).write_text("new")

    quiet, loud = trainer(save, [False]), trainer(save, [not own])
    leave.on_train_batch_end(quiet, None, None, None, 0)
    assert state.read_text() == "old"
    if own:
        os.kill(os.getpid(), signal.SIGUSR1)
    with pytest.raises(SystemExit) as left:
        leave.on_train_batch_end(loud, None, None, None, 1)
    assert (left.value.code, state.read_text(), [*tmp_path.iterdir()]) == (75, "new", [state])
    assert capsys.readouterr().out == "saved at step 7\n"


@pytest.mark.parametrize(("taken", "left"), [(0, [0, 1, 2, 3]), (1, [1, 2, 3]), (3, [3]), (4, [0, 1, 2, 3])])
def test_lightning__goes_on_within_an_epoch(example, taken: int, left: list[int]) -> None:
    """At the next batch; after the last one with a new epoch. Epochs after that are whole."""
    loader = example["Loader"](range(4), batch_size=1)
    batches = iter(loader)
    assert [next(batches) for _ in range(taken)] == list(range(taken))
    again = example["Loader"](range(4), batch_size=1)
    again.load_state_dict(loader.state_dict())
    assert (list(again), list(again)) == (left, [0, 1, 2, 3])
