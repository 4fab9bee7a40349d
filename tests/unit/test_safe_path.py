"""No Python process that slurmsched starts takes a module from the working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmsched.sim.experiments import worker_processes
from slurmsched.sim.experiments.worker_processes import local_processes
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.pyslurm_reader import PyslurmChild, PyslurmError

# what a child imports early, and what slurmsched's own modules import
NAMES = ("multiprocessing", "pickle", "struct", "numpy", "slurmsched", "pyslurm", "selectors", "site", "sitecustomize")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory full of modules that leave a file behind; the file."""
    mark = tmp_path / "ran"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # as in an interactive Python
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return mark


def test_child__of_pyslurm(trap: Path, tmp_path: Path) -> None:
    """It starts, and says that there is no pyslurm, or which. Slurm's folders have what it looks for first."""
    squeue, header = tmp_path / "slurm" / "bin" / "squeue", tmp_path / "slurm" / "include" / "slurm" / "slurm.h"
    for file in (squeue, header):
        file.parent.mkdir(parents=True)
        file.touch(mode=0o755)
    try:
        PyslurmChild(Commands(squeue.parent, timeout_s=30)).close()
    except PyslurmError as error:
        assert "pyslurm" in str(error)
    assert not trap.exists()


def test_processes__of_sweep(trap: Path) -> None:
    """They work."""
    with local_processes(1) as workers:
        assert workers.executor.submit(os.getpid).result() != os.getpid()
    assert not trap.exists()


def test_play_all__in_processes(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of replay and compare are told the same before they are started."""
    monkeypatch.setattr(worker_processes, "WorkerChannel", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        worker_processes._in_processes((), (), 2, lambda _: None)
    assert os.environ["PYTHONSAFEPATH"] == "1"
