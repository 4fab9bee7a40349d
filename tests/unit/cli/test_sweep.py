"""`slurmsched sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmsched.sim.experiments.parameter_sweep import ParameterSweep

ROWS = ("1,2,0,6", "2,4,1,4", "3,1,2,3", "4,2,3,5", "5,1,4,9", "6,3,5,2")
SET = ("--axis", "cluster=1x4", "--workers", "1")


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
    assert [line.split()[0] for line in said.out.splitlines()[2:4]] == ["srtf", "fifo"]
    assert "4 of 4 points in" in said.out and "4 played now" in said.out
    again = run("sweep", trace, "--grid", "g.toml", *SET, "--json")
    made = json.loads(again.out)
    assert [made[name] for name in ("points", "found", "played", "missing", "failed")] == [4, 4, 0, 0, []]
    assert [(row["policy"], row["seeds"], row["pareto"]) for row in made["best"]] == [
        ("srtf", 2, True),
        ("fifo", 2, True),
    ]
    assert made["best"][1]["avg_jct_s"] == pytest.approx(65 / 6)
    limits = ["6 of 6 time limits unknown, taken as the exact run times", "all jobs count"]
    assumed = {"model": "ideal: a plan is carried out at once", "trace": limits,
               "preemption": "free: a job keeps all its work and restarts at once"}  # fmt: skip
    assert made["traces"] == [{"file": "six.csv", "jobs": 6, "assumptions": [assumed], "back_test": []}]
    assert f"six.csv: Assumed: model ideal: {assumed['model'][7:]}; preemption: {assumed['preemption']}" in said.out


def test_sweep__of_a_history_has_the_lines_of_compare(run: Callable[..., Any], tmp_path: Path, trace: str) -> None:
    """The slurmctld model unless the grid names one; the back-test of Slurm alone is played once a cluster, is no
    point, and is not played again; the lines say the same as those of compare."""
    rows = "\n".join(f"{n},1,{60 * n},600,900,{60 * n + 120 * (n % 3)},gpu,ann" for n in range(1, 13))
    head = "job_id,num_gpus,submit_s,duration_s,time_limit_s,start_s,partition,user"
    (tmp_path / "site.csv").write_text(f"{head}\n{rows}\n")
    policies = ("--axis", "policy=srsf", "--axis", "policy=fifo", "--axis", "seed=0", "--axis", "seed=1")
    said = run("sweep", "site.csv", *SET, *policies, "--json")
    made = json.loads(said.out)
    assert (said.code, made["points"], made["played"], len(made["best"])) == (0, 4, 4, 2)
    (of_trace,) = made["traces"]
    compared = json.loads(run("compare", "site.csv", "--cluster", "1x4", "--policy", "srsf", "--json").out)["traces"][0]
    assert compared["back_test"]["all"]["jobs"] > 2
    assert of_trace["back_test"] == [{"cluster": "1x4", **compared["back_test"]}]
    assert of_trace["assumptions"] == [compared["assumptions"]]
    again = run("sweep", "site.csv", *SET, *policies)
    assert again.out.startswith("site.csv on 1x4\nBack-test: ")
    assert f"Trust: {compared['back_test']['verdict']}\n" in again.out
    assert "site.csv: Assumed: model slurmctld; preemption: " in again.out and "0 played now" in again.out
    assert sum(1 for _ in (tmp_path / "sweep.jsonl").open()) == 5
    ideal = json.loads(run("sweep", "site.csv", *SET, "--axis", "model=ideal", "--json").out)["traces"][0]
    assert (ideal["back_test"], ideal["assumptions"][0]["model"][:5]) == ([], "ideal")


def test_sweep__lists_what_failed(run: Callable[..., Any], trace: str) -> None:
    """Exit code 2, one line an error, and the rest is there."""
    said = run("sweep", trace, *SET, "--axis", "policy=fifo", "--axis", "cluster=1x2", "--axis", "cluster=1x1")
    assert said.code == 2
    assert "failed: 1 point: job 2 asks for 4 GPUs" in said.out and "the first: trace six.csv, cluster 1x2" in said.out
    assert "1 of 3 points in" in said.out


def test_sweep__top_cuts_the_table_and_says_so(run: Callable[..., Any], trace: str) -> None:
    """--limit 0 shows all."""
    policies = ("--axis", "policy=fifo", "--axis", "policy=srtf")
    assert "... and 1 more (--limit 0 shows all)" in run("sweep", trace, *SET, *policies, "--limit", "1").out
    assert "more (" not in run("sweep", trace, *SET, *policies, "--limit", "0").out


def test_sweep__interrupted_keeps_what_is_done(
    run: Callable[..., Any], trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130, the rows that are done, and how to go on."""
    assert run("sweep", trace, *SET, "--axis", "policy=fifo").code == 0

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ParameterSweep, "run", stopped)
    said = run("sweep", trace, *SET, "--axis", "policy=fifo", "--axis", "policy=srtf", "--json")
    made = json.loads(said.out)
    assert (said.code, made["missing"], [row["policy"] for row in made["best"]]) == (130, 1, ["fifo"])
    assert "the same command replays the missing points" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--axis", "policy=fif"), "slurmsched: --axis: policy: no policy 'fif'"),
        (("--by", "speed"), "no figure 'speed'"),
        (("--dask", "slurm", "--scheduler", "tcp://x:1"), "cannot be combined with --scheduler"),
    ],
)
def test_sweep__refuses_before_it_plays(run: Callable[..., Any], trace: str, words: tuple[str, ...], said: str) -> None:
    """Exit code 2, and no file is made."""
    answer = run("sweep", trace, *words)
    assert (answer.code, said in answer.err, Path("sweep.jsonl").exists()) == (2, True, False)
