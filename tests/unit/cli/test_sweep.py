"""`slurmsched sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmsched.replay.sweep import Sweep

ROWS = ("1,2,0,6", "2,4,1,4", "3,1,2,3", "4,2,3,5", "5,1,4,9", "6,3,5,2")
SET = ("--set", "cluster=1x4", "--workers", "1")


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Six jobs; the working folder is empty but for them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "six.csv").write_text("job_id,num_gpus,submit_s,duration_s\n" + "\n".join(ROWS) + "\n")
    return "six.csv"


def test_sweep__ranks_a_grid_and_is_taken_up_again(run: Callable[..., Any], trace: str, tmp_path: Path) -> None:
    """The best first, as a table and as JSON; the second run plays nothing."""
    (tmp_path / "g.toml").write_text('policy = ["fifo", "srtf"]\nseed = [0, 1]\n')
    said = run("sweep", trace, "--grid", "g.toml", *SET)
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()[1:3]] == ["srtf", "fifo"]
    assert "4 of 4 points in" in said.out and "4 of them played now" in said.out
    again = run("sweep", trace, "--grid", "g.toml", *SET, "--json")
    made = json.loads(again.out)
    assert [made[name] for name in ("points", "found", "played", "missing", "failed")] == [4, 4, 0, 0, []]
    assert [(row["policy"], row["seeds"], row["pareto"]) for row in made["best"]] == [
        ("srtf", 2, True),
        ("fifo", 2, True),
    ]
    assert made["best"][1]["avg_jct_s"] == pytest.approx(65 / 6)


def test_sweep__lists_what_failed(run: Callable[..., Any], trace: str) -> None:
    """Exit code 2, one line an error, and the rest is there."""
    said = run("sweep", trace, *SET, "--set", "policy=fifo", "--set", "cluster=1x2", "--set", "cluster=1x1")
    assert said.code == 2
    assert "failed: 1 point: job 2 asks for 4 GPUs" in said.out and "the first: trace six.csv, cluster 1x2" in said.out
    assert "1 of 3 points in" in said.out


def test_sweep__top_cuts_the_table_and_says_so(run: Callable[..., Any], trace: str) -> None:
    """--top 0 shows all."""
    policies = ("--set", "policy=fifo", "--set", "policy=srtf")
    assert "... and 1 more (--top 0 shows all)" in run("sweep", trace, *SET, *policies, "--top", "1").out
    assert "more (" not in run("sweep", trace, *SET, *policies, "--top", "0").out


def test_sweep__interrupted_keeps_what_is_done(
    run: Callable[..., Any], trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130, the rows that are done, and how to go on."""
    assert run("sweep", trace, *SET, "--set", "policy=fifo").code == 0

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, "run", stopped)
    said = run("sweep", trace, *SET, "--set", "policy=fifo", "--set", "policy=srtf", "--json")
    made = json.loads(said.out)
    assert (said.code, made["missing"], [row["policy"] for row in made["best"]]) == (130, 1, ["fifo"])
    assert "the same command plays what is missing" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "policy=fif"), "slurmsched: --set: policy: no policy 'fif'"),
        (("--by", "speed"), "no figure 'speed'"),
        (("--dask", "slurm", "--scheduler", "tcp://x:1"), "leave out --scheduler"),
    ],
)
def test_sweep__refuses_before_it_plays(run: Callable[..., Any], trace: str, words: tuple[str, ...], said: str) -> None:
    """Exit code 2, and no file is made."""
    answer = run("sweep", trace, *words)
    assert (answer.code, said in answer.err, Path("sweep.jsonl").exists()) == (2, True, False)
