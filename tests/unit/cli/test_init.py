"""`init`: writes once, never over a file; tells rights and what doctor says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from slurmsched.cli import main as cli
from slurmsched.errors import SlurmUnreachableError
from slurmsched.slurm import doctor, first_look
from slurmsched.slurm.finding import Finding
from slurmsched.slurm.first_look import FirstLook, GpuPartition

SITE = FirstLook("26.05.5", "lab", "slurm", True, True, (GpuPartition("gpu", 4, 32), GpuPartition("old", 1, 2)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A site and doctor's verdict, both to be changed by a test."""
    state: dict[str, Any] = {"site": SITE, "verdict": "ok"}

    def look(commands: object) -> FirstLook:
        if isinstance(state["site"], Exception):
            raise state["site"]
        return state["site"]

    monkeypatch.setattr(first_look, "first_look", look)
    monkeypatch.setattr(doctor, "findings", lambda config, path: (Finding("ledger", state["verdict"], str(path)),))
    return state


def test_init__writes_a_file_and_tells_the_rest(world, tmp_path: Path, capsys) -> None:
    """To the file of --config; exit code by what doctor finds with it."""
    file = tmp_path / "new" / "slurmsched.toml"
    assert cli.main(["--config", str(file), "init", "--user", "sched"]) == 0
    assert tomllib.loads(file.read_text())["scope"] == {"partitions": ["gpu", "old"]}
    assert "sacctmgr add user sched account=root adminlevel=Operator" in capsys.readouterr().out
    world["verdict"] = "fail"
    assert cli.main(["init", str(tmp_path / "other.toml"), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["findings"][0]["verdict"]) == (str(tmp_path / "other.toml"), "fail")


def test_init__touches_no_file_that_is_there(world, tmp_path: Path, capsys) -> None:
    """Not even an empty one."""
    file = tmp_path / "slurmsched.toml"
    file.touch()
    assert cli.main(["init", str(file)]) == 2
    assert file.read_text() == ""
    assert "left as it is" in capsys.readouterr().err


def test_init__stdout_writes_nothing(world, tmp_path: Path, capsys, monkeypatch) -> None:
    """A look at what would be written, for the partitions asked for."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--stdout", "-p", "old"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["scope"] == {"partitions": ["old"]}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("site", "words", "code", "said"),
    [(SITE, ["-p", "cpu"], 2, "there are gpu, old"), (FirstLook("26", "c", "s", True, True, ()), [], 2, "has GPUs"),
     (SlurmUnreachableError("away"), [], 3, "away")],
)  # fmt: skip
def test_init__without_gpus_or_slurm_writes_nothing(world, tmp_path: Path, capsys, site, words, code, said) -> None:
    """An error with what to do, and no file."""
    world["site"] = site
    assert cli.main(["init", str(tmp_path / "x.toml"), *words]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_init__without_slurmdbd_names_the_user_to_run_as(world, tmp_path: Path, capsys) -> None:
    """There is no Operator level there."""
    world["site"] = FirstLook("26", "c", "slurm", True, False, SITE.partitions)
    cli.main(["init", str(tmp_path / "x.toml")])
    assert "run slurmsched as slurm" in capsys.readouterr().out
