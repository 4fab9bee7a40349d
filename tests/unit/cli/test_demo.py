"""`slurmsched demo`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmsched import __version__
from slurmsched.cli.main import main
from slurmsched.model.trace import trace_digest
from slurmsched.sim.experiments import demo_runs
from slurmsched.sim.traces.trace_io import sample_trace


def test_demo__prints_json_and_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout holds one JSON value with a run for each contender."""
    path = tmp_path / "page.html"
    assert main(["demo", "--first", "6", "--page", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in made["runs"]] == ["slurm", "las-nice", "las-requeue", "srsf-nice"]
    assert {run["jobs"] for run in made["runs"]} == {6}
    assert (made["version"], made["trace_digest"]) == (__version__, trace_digest(sample_trace().first(6)))
    assert Path(made["page"]).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_demo__ends_in_the_table_and_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Progress goes to stderr, the table and the path to stdout."""
    path = tmp_path / "page.html"
    assert main(["demo", "--first", "6", "--page", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith(("JCT mean", "GPU util"))] == [
        "JCT mean [h]", "GPU utilisation [%]",
    ]  # fmt: skip
    assert lines[-1] == f"Plots: {path}"


def test_demo__refuses_a_missing_folder_before_it_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the path is named."""
    assert main(["demo", "--page", str(tmp_path / "no" / "page.html")]) == 2
    assert "the folder does not exist" in capsys.readouterr().err


def test_demo__interrupted_ends_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves no page behind."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_runs.Demo, "run", interrupted)
    assert main(["demo", "--first", "6", "--page", str(tmp_path / "page.html")]) == 130
    assert list(tmp_path.iterdir()) == []
