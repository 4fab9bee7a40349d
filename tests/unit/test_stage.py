"""packaging/stage.py: a package has what is ours, and nothing that those inside it would put into the system."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a few files in place of what pip installs."""
    spec = importlib.util.spec_from_file_location("stage_of_packages", ROOT / "packaging" / "stage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def install(library: Path, *, vendor: bool) -> None:
        module.put(library / "share/man/man1/clush.1", "")
        for file in (
            "share/slurmsched/plugin/requeue/slurmsched-requeue",
            "share/slurmsched/plugin/job/slurmsched-job",
            "share/jupyter/a.json",
            "bin/f2py",
        ):
            module.put(library / file, "")

    monkeypatch.setattr(module, "install", install)
    monkeypatch.setattr(module, "completion", lambda library, shell: shell)
    monkeypatch.setattr(module, "manual", lambda library, folder: module.put(folder / "man1/slurmsched.1", ""))
    return module


@pytest.mark.parametrize("vendor", [True, False])
def test_stage__takes_what_is_ours(stage: ModuleType, tmp_path: Path, vendor: bool) -> None:
    """Manual pages and data of Python packages are left out, their commands too."""
    stage.stage(tmp_path, vendor=vendor)
    share = tmp_path / "usr/share"
    assert {path.name for path in (share / "man/man1").iterdir()} == {"slurmsched.1"}
    assert not (share / "jupyter").exists()
    assert [path.name for path in (tmp_path / "usr/lib/slurmsched").iterdir()] == ["upgrade-ledger"]
    assert {path.name for path in (tmp_path / "usr/bin").iterdir()} == {
        "slurmsched",
        "slurmsched-requeue",
        "slurmsched-job",
    }


@pytest.mark.parametrize("vendor", [True, False])
def test_stage__command_runs_by_the_python_it_has_packages_for(stage: ModuleType, tmp_path: Path, vendor: bool) -> None:
    """Compiled packages inside fit no other Python; without them it is the system's."""
    stage.stage(tmp_path, vendor=vendor)
    first = (tmp_path / "usr/bin/slurmsched").read_text().splitlines()[0]
    assert first == "#!/usr/bin/python" + (sysconfig.get_python_version() if vendor else "3")
