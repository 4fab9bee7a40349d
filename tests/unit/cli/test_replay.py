"""`slurmsched replay`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmsched.cli.main import main
from slurmsched.sim.experiments import replay_session
from tests.unit.sim.traces.test_public_kinds import DATA


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "six.csv"
    rows = ("1,2,0,6", "2,4,1,4", "3,1,2,3", "4,2,3,5", "5,1,4,9", "6,3,5,2")
    path.write_text("job_id,num_gpus,submit_s,duration_s\n" + "\n".join(rows) + "\n")
    return str(path)


def test_replay__prints_one_json_value(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout holds the figures and nothing else; the bar goes to stderr."""
    assert main(["replay", trace, "--cluster", "1x4", "--policy", "easy", "--json"]) == 0
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert (made["jobs"], made["makespan_s"], made["avg_jct_s"]) == (6, 19.0, pytest.approx(57 / 6))
    assert "6/6" in shown.err


def test_replay__prints_a_table(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a figure."""
    assert main(["replay", trace, "--cluster", "1x4"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["JCT", "mean", "[s]", "10.8"] in lines
    assert ["preemptions", "0"] in lines


def test_replay__interrupted_prints_what_it_has(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 130, valid JSON of the jobs that ended, and a word on stderr."""

    def stopped(*arguments: object, **settings: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay_session, "replay_events", stopped)
    assert main(["replay", trace, "--cluster", "1x4", "--json"]) == 130
    shown = capsys.readouterr()
    assert (json.loads(shown.out)["jobs"], json.loads(shown.out)["complete"]) == (0, False)
    assert "interrupted" in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "fifoo"], "--policy: policy: no policy 'fifoo'"),
        (["--cluster", "9y9"], "9y9: is no cluster"),
        (["--cluster", "1x2"], "job 2 asks for 4 GPUs, and the nodes that it may have hold 2"),
        (["--history", "gone"], "gone: is no column of numbers"),
        (["--past", "gone", "--policy", "qssf"], "gone: cannot be read"),
        (["--model", "slurm", "--round", "60"], "command line: round_s: only --model ideal"),
        (["--model", "slurm", "--restart-cost", "60"], "--setting restart_cost_s"),
    ],
)
def test_replay__refuses_before_it_plays(
    trace: str, words: list[str], said: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line, which names no configuration: it has a policy of its own, and is not read."""
    assert main(["--config", str(site), "replay", trace, "--cluster", "1x4", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_replay__names_the_option_that_is_wrong(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the configuration file, which has a policy of its own."""
    config = tmp_path / "site.toml"
    config.write_text("policy = { name = 'sjf' }\n")
    words = ["--config", str(config), "replay", trace, "--cluster", "1x4", "--policy", "srsf:foo=1"]
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("slurmsched: --policy: policy: srsf has no parameter 'foo'")


def test_replay__says_that_a_policy_keeps_jobs_back_for_ever(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs of seconds are worth no slot of ten minutes, and nobody may fill idle GPUs."""
    assert main(["replay", trace, "--cluster", "1x4", "--policy", "oasis:fill=false"]) == 1
    told = capsys.readouterr().err
    assert "cannot go on after 5 s" in told
    assert "unexpected" not in told


def test_replay__interrupted_while_it_compiles(trace: str, tmp_path: Path) -> None:
    """On a cold cache it ends as any other time: 130 and one line."""
    words = (sys.executable, "-m", "slurmsched.cli.main", "replay", trace, "--cluster", "1x4", "--model", "slurm")
    cache = tmp_path / "cache"
    cold = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    with subprocess.Popen(
        words, env={**cold, "NUMBA_CACHE_DIR": str(cache)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as played:
        while not (cache.exists() and any(cache.rglob("*"))):  # numba's runtime is there, kernels follow
            assert played.poll() is None
            time.sleep(0.01)
        played.send_signal(signal.SIGINT)
        _, said = played.communicate(timeout=300)
    assert played.returncode == 130
    assert [line for line in said.splitlines() if "ETA" not in line and line.strip()] == [
        "slurmsched: interrupted; the figures cover only the jobs that have ended"
    ] or said.strip() == "slurmsched: interrupted"


def test_replay__reads_any_kind_of_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """The kind is told by the content, or named."""
    for words in ([], ["--kind", "swf"]):
        assert main(["replay", str(DATA / "small.swf"), "--json", *words]) == 0
        assert json.loads(capsys.readouterr().out)["jobs"] > 0


def test_replay__names_the_line_of_a_bad_row(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The row is warned about and left out; --strict stops there. An unknown kind is an error."""
    path = Path(trace)
    path.write_text(path.read_text() + "7,many,6,1\n")
    assert main(["replay", trace, "--cluster", "1x4", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["jobs"] == 6
    assert "1 row cannot be read, the first in line 8: num_gpus is 'many'" in shown.err
    assert main(["replay", trace, "--cluster", "1x4", "--strict"]) == 2
    assert f"{trace}:8: num_gpus is 'many'" in capsys.readouterr().err
    assert main(["replay", trace, "--kind", "cvs"]) == 2
    assert "no trace kind 'cvs' (did you mean 'csv'?)" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "makespan_s", "whole"), [
    (["--placement", "best-fit"], 10.0, True), (["--placement", "fgd"], 5.0, False),
    (["--placement", "fgd", "--physics", "spread"], 10.0, True),
])  # fmt: skip
def test_replay__places_parts_of_gpus_or_says_that_they_become_whole(
    options: list[str], makespan_s: float, whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two halves run at once where the placement knows parts; physics knows none. A note says which it is."""
    path = tmp_path / "parts.csv"
    path.write_text("job_id,num_gpus,submit_s,duration_s,gpu_share\n1,1,0,5,0.5\n2,1,0,5,0.5\n")
    assert main(["replay", str(path), "--cluster", "1x1", "--json", *options]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert (told["makespan_s"], told["gpu_utilisation"]) == (makespan_s, 1.0)
    assert ("jobs that requested part of a GPU get a whole GPU: 2" in shown.err) is whole
    assert ("a job on part of a GPU runs as long as recorded" in told["assumptions"]["model"]) is not whole


def test_replay__refuses_quirks_that_know_whole_gpus_only(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what to do."""
    assert main(["replay", trace, "--placement", "fgd", "--setting", "costs_known=true"]) == 2
    assert "use a placement of whole GPUs" in capsys.readouterr().err


def test_replay__takes_settings_of_the_ideal_cluster(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Values as in a configuration file; the JSON tells them."""
    settings = ["--setting", "slowdown=2.0", "--setting", "restart-cost-by-gpus=[[2, 5]]"]
    assert main(["replay", trace, "--cluster", "1x4", "--json", *settings]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["makespan_s"], made["config"]["restart_cost_by_gpus"]) == (38.0, [[2, 5]])


@pytest.mark.parametrize(
    ("setting", "told"),
    [("slowdown", "is not NAME=VALUE"), ("speed=2", "is no setting of the ideal cluster"), ("slowdown=x", "above 0"),
     ("resizes=2", "model.resizes: must be true or false, got 2")],
)  # fmt: skip
def test_replay__refuses_what_is_no_setting(
    trace: str, setting: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and what is wrong with it."""
    model = "slurm" if "resizes" in setting else "ideal"
    assert main(["replay", trace, "--cluster", "1x4", "--model", model, "--setting", setting]) == 2
    assert told in capsys.readouterr().err


def test_replay__conservative_backfill_needs_the_ideal_cluster(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: 3 passes 2, which starts at 6 s all the same; slurmctld has no such backfill."""
    assert main(["replay", trace, "--cluster", "1x4", "--policy", "conservative", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["avg_jct_s"] == pytest.approx(57 / 6)
    assert main(["replay", trace, "--cluster", "1x4", "--policy", "conservative", "--model", "slurm"]) == 2
    assert "slurmctld has no such backfill" in capsys.readouterr().err


def test_replay__tells_what_a_slurm_conf_left_out(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, by line; the figures stay clean."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=n1 CPUs=8 Gres=gpu:4\nNodeName=n2 State=FUTURE\nPartitionName=p Nodes=n[1-2]\n")
    assert main(["replay", trace, "--cluster", str(conf), "--model", "slurm", "--policy", "slurm", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["jobs"] == 6
    assert f"slurmsched: {conf}: line 2: n2 left out, State=FUTURE" in shown.err


def test_replay__with_physics_shows_slowdown(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and in the JSON."""
    words = ["--cluster", "1x8", "--placement", "random", "--topology", "dgx-1v", "--physics", "mapa"]
    assert main(["replay", trace, *words]) == 0
    assert "slowdown mean" in capsys.readouterr().out
    assert main(["replay", trace, *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean_slowdown"] >= 1.0


PREEMPTING = ("--policy", "discretized-las:thresholds_gpu_s=[600]", "--model", "slurm", "--preempt")


@pytest.fixture
def short_and_long(tmp_path: Path) -> str:
    """A ten-hour job holds the one node when a short one comes."""
    path = tmp_path / "two.csv"
    path.write_text("job_id,num_gpus,submit_s,duration_s,time_limit_s\n1,8,0,36000,90000\n2,8,7200,60,600\n")
    return str(path)


def test_replay__preempts_as_the_daemon_does(short_and_long: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a hint the long job loses what it did while it had time to save itself, and its restart."""
    hints = ("--hints", "slurmsched: preempt=yes ckpt=USR2@120")
    assert main(["replay", short_and_long, "--cluster", "1x8", "--json", *PREEMPTING, *hints]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["preemptions"], made["lost_gpu_h"]) == (1, pytest.approx(8 * 240 / 3_600))
    assert (made["config"]["preemption"]["quantum_s"], made["config"]["hints"]) == (1_800, hints[1])


def test_replay__preempts_by_the_configuration(
    short_and_long: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[preemption] says who may lose GPUs; without hint or leave nobody does."""
    assert main(["replay", short_and_long, "--cluster", "1x8", "--json", *PREEMPTING]) == 0
    assert json.loads(capsys.readouterr().out)["preemptions"] == 0
    site = tmp_path / "site.toml"
    site.write_text('preemption = { partitions = ["gpu"], without_checkpoint = true, restart_cost_s = 0 }\n')
    assert main(["--config", str(site), "replay", short_and_long, "--cluster", "1x8", "--json", *PREEMPTING]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["preemptions"], made["lost_gpu_h"]) == (1, pytest.approx(8 * 7_200 / 3_600, rel=0.02))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--preempt",), "the ideal cluster preempts by itself"), (("--hints", "x"), "--hints needs --preempt"),
        (("--preempt", "--model", "slurm", "--policy", "slurm"), "slurm ranks no jobs"),
    ],
)  # fmt: skip
def test_replay__refuses_to_preempt_where_it_means_nothing(
    trace: str, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and why."""
    assert main(["replay", trace, "--cluster", "1x4", *words]) == 2
    assert told in capsys.readouterr().err


def test_replay__a_row_for_each_job(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a file, and of one job also in the table and in the JSON. A job that is not replayed is an error."""
    file = tmp_path / "jobs.csv"
    words = ["replay", trace, "--cluster", "1x4", "--job", "1"]
    assert main([*words, "--jobs-out", str(file)]) == 0
    assert "Job 1: " in capsys.readouterr().out
    head, *rows = file.read_text().splitlines()
    assert main([*words, "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["job"]
    assert list(job) == head.split(",")
    assert (job["nodes"], job["node_list"]) == (None, "")  # the ideal cluster only counts GPUs
    assert {line.split(",")[1] for line in rows} == {job["schedule"]} == {"fifo"}
    assert main([*words[:-1], "99"]) == 2
    assert "JCT" not in (said := capsys.readouterr()).out
    assert said.err == f"slurmsched: {trace}: has no job 99 among those that are replayed\n"  # before the work
    assert main([*words, "--jobs-out", str(tmp_path / "jobs.txt")]) == 2
