"""Fixtures of the live tests. They run as root inside a lab (make test-live) and fail where there is none."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.lab import Installed, run
from tests.live.parts import shared


def pytest_report_header() -> str:
    """Suite, Slurm and pyslurm this run is about."""
    slurm = run("sinfo", "--version", check=False).out.strip() if shutil.which("sinfo") else "no Slurm"
    packages = {dist.name: dist.version for dist in importlib.metadata.distributions()}
    release = Path("/etc/os-release").read_text().split('PRETTY_NAME="')[1].split('"')[0]
    return f"lab: {release}, {slurm}, pyslurm {packages.get('pyslurm', 'none')}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only the part of the files that was asked for (--part), so that labs share them."""
    part, parts = map(int, config.getoption("--part").split("/"))
    mine = shared(Counter(item.path.name for item in items), parts)[part - 1]
    config.hook.pytest_deselected(items=[item for item in items if item.path.name not in mine])
    items[:] = [item for item in items if item.path.name in mine]


@pytest.fixture(scope="session")
def lab() -> None:
    """A running lab around us."""
    inside = os.geteuid() == 0 and shutil.which("labctl") and shutil.which("scontrol")
    if not inside:
        pytest.fail("live tests run inside the lab: make test-live, or make lab-shell", pytrace=False)


@pytest.fixture(scope="session")
def left_as_found(lab: None) -> Iterator[None]:
    """The lab is reset once more when all tests have ended."""
    yield
    run("labctl", "reset")


@pytest.fixture
def fresh(left_as_found: None) -> None:
    """An empty queue and the lab's own configuration."""
    run("labctl", "reset")


@pytest.fixture
def site(fresh: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """slurmsched set up for the Operator user, nothing written yet."""
    folder = Path("/var/lib/slurmsched-test")
    shutil.rmtree(folder, ignore_errors=True)
    yield Installed(folder)
    shutil.rmtree(folder, ignore_errors=True)
