"""Which adapter a configuration gives."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from slurmsched.config import SlurmConfig
from slurmsched.slurm import pyslurm_reader, reader
from slurmsched.slurm.commands import Commands


@pytest.fixture
def slurm_2605(monkeypatch):
    """Commands of Slurm 26.05.5."""
    monkeypatch.setattr(Commands, "run", lambda *_: "slurm 26.05.5\n")


def with_pyslurm(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    def version(_: str) -> str:
        if not installed:
            raise PackageNotFoundError("pyslurm")
        return installed

    monkeypatch.setattr(reader, "version", version)


@pytest.mark.parametrize(
    ("adapter", "installed", "daemon", "expected"),
    [
        ("auto", "26.5.1", True, "pyslurm"),
        ("auto", "26.5.1", False, "cli"),
        ("auto", "25.11.2", True, "cli"),
        ("auto", "", True, "cli"),
        ("pyslurm", "25.11.2", False, "pyslurm"),
        ("cli", "26.5.1", True, "cli"),
    ],
)
def test_open_reader__auto_is_pyslurm_of_the_clusters_release(
    slurm_2605, monkeypatch, adapter, installed, daemon, expected
):
    """pyslurm of another release may crash or read wrong: then, without pyslurm, and in a process of one cycle, which
    would wait for its import, the commands serve."""
    with_pyslurm(monkeypatch, installed)
    monkeypatch.setattr(pyslurm_reader, "slurm_header", lambda commands: Path(__file__))
    assert reader.open_reader(SlurmConfig(adapter=adapter), indices=daemon).name == expected
    monkeypatch.setattr(pyslurm_reader, "slurm_header", lambda commands: Path("/no/slurm.h"))
    if adapter == "auto":
        assert reader.open_reader(SlurmConfig(adapter=adapter), indices=daemon).name == "cli"
