"""`slurmsched compare`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurmsched.cli.main import main
from slurmsched.sim.experiments import worker_processes
from tests.recorded.playback import HERE

SACCT = HERE / "public" / "sacct-P-gpu-mixed-states.txt"
ROWS = ("1,2,0,6,ann", "2,4,1,4,bob", "3,1,2,3,ann", "4,2,3,5,cy", "5,1,4,9,bob", "6,3,5,2,cy")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "six.csv"
    path.write_text("job_id,num_gpus,submit_s,duration_s,user\n" + "\n".join(ROWS) + "\n")
    return str(path)


def test_compare__prints_one_json_value(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run for each policy, in their order; progress over all of them on stderr; the page beside."""
    page = tmp_path / "page.html"
    words = [
        "--cluster",
        "1x4",
        "--policy",
        "fifo",
        "--policy",
        "srtf",
        "--workers",
        "1",
        "--page",
        str(page),
        "--json",
    ]
    assert main(["compare", trace, *words]) == 0
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert [(run["policy"], run["makespan_s"]) for run in made["runs"]] == [("fifo", 19.0), ("srtf", 20.0)]
    assert made["traces"][0]["conclusion"][0].startswith("Shortest mean wait: srtf with ")
    assert made["command"].startswith(f"slurmsched compare {trace} --")
    assert (made["complete"], made["page"], "12/12" in shown.err) == (True, str(page), True)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_compare__prints_a_table_and_who_gains(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A column a policy, ratios to the first, then users."""
    assert main(["compare", trace, "--cluster", "1x4", "--policy", "fifo", "--policy", "srtf", "--workers", "1"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == f"{trace}: 6 jobs on 4 GPUs"
    assert lines[2:4] == ["fifo srtf", "JCT mean [s] 10.83 * 8.33 (0.77x)"]
    assert any(line.startswith("Shortest mean wait: srtf with ") for line in lines)
    assert lines[1] == (
        "Assumed: model ideal: a plan is carried out at once; preemption: free: a job keeps all its work and restarts "
        "at once; 6 of 6 time limits unknown, taken as the exact run times; all jobs count"
    )
    assert "srtf against fifo: 2 gain, 1 lose" in lines
    at = lines.index("user jobs GPU hours wait before [s] wait after [s] change [s]")
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["cy", "bob", "ann"]


def test_compare__reads_sacct_beside_other_traces(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Traces of several kinds in one comparison; users come from sacct; several processes."""
    words = ["--cluster", "4x8", "--policy", "fifo", "--policy", "discretized-las", "--workers", "2", "--json"]
    assert main(["compare", str(SACCT), trace, *words]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [(each["kind"], each["jobs"]) for each in made["traces"]] == [("sacct", 10), ("csv", 6)]
    assert [(run["trace"], run["jobs"], run["fairness"]["of"]) for run in made["runs"]] == [
        (str(SACCT), 10, "user"), (str(SACCT), 10, "user"), (trace, 6, "user"), (trace, 6, "user"),
    ]  # fmt: skip


def test_compare__of_the_model_of_slurmctld(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm alone against the daemon."""
    words = [
        "--model",
        "slurm",
        "--cluster",
        "1x4",
        "--policy",
        "slurm",
        "--policy",
        "srsf",
        "--workers",
        "1",
        "--json",
    ]
    assert main(["compare", trace, *words]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [(run["jobs"], run["config"]["model"]) for run in made["runs"]] == [(6, "slurm"), (6, "slurm")]


def test_compare__preempt_sets_both_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each policy that ranks jobs as it is, and with the daemon's own preemption; Slurm alone once. A long job
    gives its GPUs to a short one, and what it loses is told."""
    trace = tmp_path / "two.csv"
    trace.write_text("job_id,num_gpus,submit_s,duration_s,user\n1,4,0,36000,ann\n2,4,7200,600,bob\n")
    las = "discretized-las:thresholds_gpu_s=[60]"
    words = [
        "--model",
        "slurm",
        "--cluster",
        "1x4",
        "--no-requeue",
        "--workers",
        "1",
        "--policy",
        "slurm",
        "--policy",
        las,
    ]
    taking = ["--preempt", "--hints", "slurmsched: preempt=yes ckpt=USR2@120"]
    assert main(["compare", str(trace), *words, *taking, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["policy"], run["preemptions"]) for run in runs] == [("slurm", 0), (las, 0), (f"{las} +preempt", 1)]
    assert [bool(run["lost_gpu_h"]) for run in runs] == [False, False, True]
    assert runs[2]["config"]["preemption"]["enabled"]
    assert main(["compare", str(trace), *words, *taking]) == 0
    assert "work lost [GPU h]" in capsys.readouterr().out


def test_compare__hints_alone_and_the_ideal_cluster_are_refused(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any replay, with what to do."""
    words = ["--cluster", "1x4", "--policy", "srsf"]
    assert main(["compare", trace, *words, "--hints", "slurmsched: preempt=yes"]) == 2
    assert main(["compare", trace, *words, "--preempt"]) == 2
    said = capsys.readouterr().err
    assert "--hints needs --preempt" in said
    assert "use --model slurm" in said


def test_compare__interrupted_prints_what_it_has(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 130, valid JSON of what was played until then, and a word on stderr."""
    play = worker_processes.play_case

    def stopped(*arguments: object) -> object:
        monkeypatch.setattr(worker_processes, "play_case", interrupt)
        return play(*arguments)  # type: ignore[arg-type]

    def interrupt(*arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker_processes, "play_case", stopped)
    words = ["--cluster", "1x4", "--policy", "fifo", "--policy", "srtf", "--workers", "1", "--json"]
    assert main(["compare", trace, *words]) == 130
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert ([run["policy"] for run in made["runs"]], made["complete"]) == (["fifo"], False)
    assert "interrupted" in shown.err


@pytest.mark.parametrize(("words", "said"), [
    (["--policy", "fifo", "--policy", "fifoo"], "six.csv under fifoo: policy: no policy 'fifoo' (did you mean"),
    (["--policy", "fifo", "--policy", "fifo"], "'fifo' is named twice"),
    (["--policy", "fifo", "--tenants", "account"], "does not have the account of its jobs"),
    (["--policy", "fifo", "--page", "/nowhere/page.html"], "the folder does not exist"),
    (["--policy", "fifo", "--cluster", "1x2"], "job 2 asks for 4 GPUs"),
])  # fmt: skip
def test_compare__refuses_before_it_plays(
    trace: str, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line; nothing was replayed."""
    monkeypatch.delattr(worker_processes, "play_cases")
    assert main(["compare", trace, "--cluster", "1x4", *words]) == 2
    err = capsys.readouterr().err
    assert (said in err, len(err.strip().splitlines())) == (True, 1)


def test_compare__refuses_a_folder_that_it_may_not_write(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first replay, not after the last."""
    monkeypatch.delattr(worker_processes, "play_cases")
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    assert main(["compare", trace, "--cluster", "1x4", "--policy", "fifo", "--page", "page.html"]) == 2
    assert capsys.readouterr().err == (
        "slurmsched: page.html: no permission to write in this folder; name another file\n"
    )


def test_compare__of_a_history_begins_with_the_back_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded starts and partitions: the slurmctld model, Slurm alone beside them, in table, JSON and page."""
    path, jobs = tmp_path / "history.csv", tmp_path / "jobs.csv"
    rows = [f"{job},4,{job * 10},300,600,{job * 300},gpu" for job in range(1, 9)]
    path.write_text("job_id,num_gpus,submit_s,duration_s,time_limit_s,start_s,partition\n" + "\n".join(rows) + "\n")
    words = ["compare", str(path), "--cluster", "1x4", "--policy", "srsf", "--workers", "1", "--cold-start"]
    assert main([*words, "--page", str(tmp_path / "page.html"), "--jobs-out", str(jobs), "--job", "5"]) == 0
    shown = capsys.readouterr().out
    assert "Back-test: the recorded schedule beside Slurm alone in the model, 6 jobs" in shown.splitlines()[1]
    assert shown.index("Back-test") < shown.index("JCT mean")
    assert "Back-test" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("recorded", "srsf ", "slurm "))] == [
        "recorded", "srsf", "slurm"]  # fmt: skip
    assert len(jobs.read_text().splitlines()) == 1 + 3 * 8
    assert main([*words, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [run["policy"] for run in made["runs"]] == ["srsf"]
    assert made["traces"][0]["back_test"]["jobs"] == 6
    assert made["traces"][0]["assumptions"]["model"] == "slurmctld"


def test_compare__refuses_names_of_job_files(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is played."""
    assert main(["compare", trace, "--policy", "fifo", "--jobs-out", str(tmp_path / "jobs.txt")]) == 2
    assert "must end in .csv or .parquet" in capsys.readouterr().err
