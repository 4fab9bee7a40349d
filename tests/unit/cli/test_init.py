"""`init`: writes once, never over a file; tells rights and what doctor says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from slurmsched.cli import main as cli
from slurmsched.errors import SlurmUnreachableError
from slurmsched.slurm import site
from slurmsched.slurm.doctor import CheckResult, diagnosis
from slurmsched.slurm.site import DiscoveredSite, GpuPartition

SITE = DiscoveredSite("26.05.5", "lab", "slurm", True, True, (GpuPartition("gpu", 4, 32), GpuPartition("old", 1, 2)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A site and doctor's verdict, both to be changed by a test."""
    state: dict[str, Any] = {"site": SITE, "verdict": "ok"}

    def look(commands: object) -> DiscoveredSite:
        if isinstance(state["site"], Exception):
            raise state["site"]
        return state["site"]

    monkeypatch.setattr(site, "discover_site", look)
    monkeypatch.setattr(
        diagnosis, "diagnose", lambda config, path: (CheckResult("ledger", state["verdict"], str(path)),)
    )
    return state


def test_init__writes_a_file_and_tells_the_rest(world, tmp_path: Path, capsys) -> None:
    """To the file of --config; exit code by what doctor finds with it."""
    file = tmp_path / "new" / "slurmsched.toml"
    assert cli.main(["--config", str(file), "init", "--run-as", "sched"]) == 0
    assert tomllib.loads(file.read_text())["scope"] == {"partitions": ["gpu", "old"]}
    assert "sacctmgr add user sched account=root adminlevel=Operator" in capsys.readouterr().out
    world["verdict"] = "fail"
    assert cli.main(["init", str(tmp_path / "other.toml"), "--json"]) == 10
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["findings"][0]["verdict"]) == (str(tmp_path / "other.toml"), "fail")


def test_init__touches_no_file_that_is_there(world, tmp_path: Path, capsys) -> None:
    """Not even an empty one."""
    file = tmp_path / "slurmsched.toml"
    file.touch()
    assert cli.main(["init", str(file)]) == 2
    assert file.read_text() == ""
    assert "already exists and was not changed" in capsys.readouterr().err


def test_init__stdout_writes_nothing(world, tmp_path: Path, capsys, monkeypatch) -> None:
    """A look at what would be written, for the partitions asked for."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--stdout", "-p", "old"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["scope"] == {"partitions": ["old"]}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("site", "words", "code", "said"),
    [
        (SITE, ["-p", "cpu"], 2, "there are gpu, old"),
        (DiscoveredSite("26", "c", "s", True, True, ()), [], 2, "has GPUs"),
        (SlurmUnreachableError("away"), [], 3, "away"),
    ],
)
def test_init__without_gpus_or_slurm_writes_nothing(world, tmp_path: Path, capsys, site, words, code, said) -> None:
    """An error with what to do, and no file."""
    world["site"] = site
    assert cli.main(["init", str(tmp_path / "x.toml"), *words]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_init__without_slurmdbd_names_the_user_to_run_as(world, tmp_path: Path, capsys) -> None:
    """There is no Operator level there."""
    world["site"] = DiscoveredSite("26", "c", "slurm", True, False, SITE.partitions)
    cli.main(["init", str(tmp_path / "x.toml")])
    assert "run slurmsched as slurm" in capsys.readouterr().out


def test_init__history_that_cannot_be_compared_is_said_and_the_default_is_proposed(
    world, tmp_path: Path, capsys, monkeypatch
) -> None:
    """The file says what was not checked, and why, on one line whatever Slurm answered."""
    from slurmsched.sim.experiments import site_history

    def away(*_: object) -> None:
        raise SlurmUnreachableError("slurmdbd is away\n[policy]")

    monkeypatch.setattr(site_history, "site_proposal", away)
    assert cli.main(["init", "--stdout", "--history", "30"]) == 0
    told = capsys.readouterr()
    assert tomllib.loads(told.out)["policy"]["name"] == "response-ratio"
    assert "# Not checked on the jobs of this site: slurmdbd is away" in told.out
    assert "--history: slurmdbd is away" in told.err
