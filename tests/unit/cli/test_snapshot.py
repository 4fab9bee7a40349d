"""`slurmsched snapshot`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmsched.cli.main import main


@pytest.fixture
def file(run: Callable[..., Any], fakes: Any, tmp_path: Path) -> str:
    """A snapshot of the three jobs, saved."""
    path = str(tmp_path / "s.snapshot")
    assert run("snapshot", "save", path).code == 0
    return path


def elsewhere(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """As run without any configuration, where there is no Slurm."""
    capsys.readouterr()
    code = main(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_run__shows_the_plan_of_the_live_cycle(
    run: Callable[..., Any], file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same changes and digest, from the file alone."""
    live = json.loads(run("plan", "--json").out)
    monkeypatch.delenv("SLURMSCHED_CONFIG", raising=False)
    code, out, _ = elsewhere(capsys, "snapshot", "run", file, "--json")
    told = json.loads(out)
    assert (code, told["same_plan"], told["changes"], told["planned"]) == (0, True, live["changes"], 1)
    assert (told["cluster"], told["digest"] in run("snapshot", "save", file).out) == ("test", True)
    table = elsewhere(capsys, "snapshot", "run", file)[1]
    assert told["assumptions"] == [
        "model: none, one cycle; when jobs would start is not predicted", "preemption: off",
        "2 waiting jobs without a time limit", "the queue of 1970-01-12T13:46:40; policy discretized-las",
    ]  # fmt: skip
    assert f"Assumed: {'; '.join(told['assumptions'])}\n" in table
    assert "of test, 1970-01-12" in table and "3 jobs, 2 nodes, by slurmsched" in table
    assert table.endswith("the plan is that of the cycle when it was saved\n")


def test_run__policy_and_config_take_the_place_of_the_files(
    run: Callable[..., Any], file: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the plan is said to be another."""
    said = elsewhere(capsys, "snapshot", "run", file, "--policy", "discretized-las:thresholds_gpu_s=[1e9]")[1]
    assert "the plan is not that of the cycle when it was saved" in said
    assert "; policy discretized-las:thresholds_gpu_s=[1e9]\n" in said
    site.write_text(site.read_text().replace('["*"]', '["other"]'))
    assert json.loads(run("snapshot", "run", file, "--json").out)["managed"] == 0
    assert json.loads(elsewhere(capsys, "snapshot", "run", file, "--json")[1])["managed"] == 2


def test_save__anonymises_with_a_key(
    run: Callable[..., Any], fakes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No user is named, the plan is the same; the key alone is a mistake."""
    path, key = str(tmp_path / "s"), str(tmp_path / "key")
    told = json.loads(run("snapshot", "save", path, "--anonymise", "--key-file", key, "--json").out)
    assert (told["anonymised"], told["jobs"], told["bytes"]) == (True, 3, Path(path).stat().st_size)
    shown = elsewhere(capsys, "snapshot", "run", path, "--json")[1]
    assert (json.loads(shown)["same_plan"], "bob" in shown, "biology" in shown) == (True, False, False)
    wrong = run("snapshot", "save", path, "--key-file", key)
    assert (wrong.code, "--key-file needs --anonymise" in wrong.err) == (2, True)


def test_run__names_a_file_that_is_none(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    code, _, err = elsewhere(capsys, "snapshot", "run", str(site))
    assert (code, "slurmsched.toml: is no snapshot file, or damaged" in err) == (2, True)


def test_errors__name_where_the_value_is_from(
    run: Callable[..., Any], file: str, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The configuration where it was read, the option where it was given, the snapshot's file for its own policy."""
    bad = str(tmp_path / "bad.snapshot")
    site.write_text(site.read_text().replace("[3600.0]", "[5.0, 1.0]"))
    for words in (("plan",), ("snapshot", "save", bad), ("snapshot", "run", file)):
        assert run(*words).err.startswith(f"slurmsched: {site}: policy.thresholds_gpu_s: must ascend")
    assert run("snapshot", "run", file, "--policy", "srsf:foo=1").err.startswith("slurmsched: --policy: policy: srsf")
    said = elsewhere(capsys, "snapshot", "run", file, "--policy", "srsf:foo=1")[2]
    assert said.startswith("slurmsched: --policy: policy: srsf")


def test_save__refuses_a_folder_that_is_not_there(run: Callable[..., Any], fakes: Any) -> None:
    """Before Slurm is asked."""
    done = run("snapshot", "save", "/nowhere/s.snapshot")
    assert (done.code, "the folder does not exist" in done.err) == (2, True)
