"""What the pages tell people to type on files of their own is typed here, on small files, and works."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from slurmsched.cli.main import cli, main
from slurmsched.estimators.policy_network import PolicyNetwork
from slurmsched.placements import harmony
from slurmsched.policies.dl2 import FEATURES
from tests.live.test_docs import NAMES, wanted
from tests.unit.test_docs import ROOT, SHOWN

DATA = ROOT / "tests/unit/sim/traces/data"
SAMPLES = ROOT / "tests" / "unit" / "topology" / "samples"
# For small files.
SMALLER = {
    "100000": "200",
    "50x8": "4x8",
    "20x8": "2x8",
    "24x8": "3x8",
    "16x4": "4x4",
    "/etc/slurm": "site.toml",
}
NAMED = NAMES | {
    "compare",
    "compare --preempt",
    "job wants",
    "replay",
    "replay --model slurm --preempt",
    "reproduce",
    "reproduce NAME",
}
ELSEWHERE = {
    "top": "tests/unit/cli/test_top.py",
    "top --interval 30s": "tests/unit/cli/test_top.py",
    "web": "tests/unit/cli/test_web.py",
    "sweep history.parquet --grid grid.toml --dask slurm --workers 16": "tests/live/test_sweep.py",
    "trace pull history.parquet --since 2026-01-01": "tests/live/test_pull.py",
    "job wants 4711 --size 2 --checkpoint": "tests/unit/cli/test_job.py",
    "job wants 4711 --clear": "tests/unit/cli/test_job.py",
    "demo": "tests/unit/cli/test_demo.py",
    "tick": "tests/unit/cli/test_tick.py",
    "daemon": "tests/live/churn.py",
    "replay jobs.csv --cluster 1x8 --policy fewest-gpus": "tests/unit/testing/test_tutorial.py",
    "compare jobs.csv --cluster 1x8 --policy fifo --policy fewest-gpus --policy fewest-gpus:patience_s=600": (
        "tests/unit/testing/test_tutorial.py"
    ),
    "reproduce fifo muri": "tests/unit/cli/test_reproduce.py",
}
GRES = "NodeName=n[1-2] Name=gpu Type=v100 File=/dev/nvidia[0-7]\n"
SITE = """[[nodes]]
count = 4
gpus = 8
"""
GRID = """cluster = ["2x8", "3x8"]
seed = [0, 1]

[[policy]]
name = ["fifo", "easy", "srsf"]

[[policy]]
name = "discretized-las"
thresholds_gpu_s = [[3600.0], [3600.0, 36000.0]]
"""
PLACEMENTS = """cluster = "4x8"
policy = "fifo"
topology = "dgx-1v"
placement = ["random", "linked"]
physics = "spread"
"""


EIGHTS = "job_id,num_gpus,submit_s,duration_s,model\n" + "".join(
    f"{job},8,0,{9000 + job},Transformer (batch size 256)\n" for job in range(4)
)
ELASTIC = "job_id,num_gpus,submit_s,duration_s,comment\n" + "".join(
    f"{job},2,{600 * job},{3000 + 900 * job},slurmsched: min_gpus=1 max_gpus=8\n" for job in range(4)
)
NEEDED = "gpu_s\n60.0\n600.0\n7200.0\n"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a reader's files, and this process in it."""
    folder, before = tmp_path_factory.mktemp("desk"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURMSCHED_CONFIG", os.devnull)
        os.chdir(folder)
        try:
            laid(folder)
            yield folder
        finally:
            os.chdir(before)


def laid(folder: Path) -> None:
    """Write the files."""
    made = "trace generate history.parquet --jobs 60 --seed 1 --jobs-per-day 400 --time-limits --sizes 1=60,2=20,4=20"
    assert main(shlex.split(made)) == 0
    assert main(["trace", "convert", "history.parquet", "jobs.csv"]) == 0
    jobs = (folder / "jobs.csv").read_bytes()
    for name in ("a.csv", "history.csv", "TRACE"):
        (folder / name).write_bytes(jobs)
    (folder / "jobs.csv.gz").write_bytes(gzip.compress(jobs))
    shutil.copy(DATA / "gavel.trace", folder)
    speeds = json.loads((DATA / "simulation_throughputs.json").read_text())["v100"]
    types = [f"{gpu}{apart}" for gpu in ("v100", "p100", "k80") for apart in ("", "_unconsolidated")]
    (folder / "simulation_throughputs.json").write_text(json.dumps(dict.fromkeys(types, speeds)))
    shutil.copy(SAMPLES / "002-dgx1-v100.txt", folder / "dgx.txt")
    shutil.copy(SAMPLES / "002-dgx1-v100.txt", folder / "nvidia-smi-topo.txt")
    shutil.copy(SAMPLES / "066-gres-nodename-ranges.conf", folder / "gres.conf")
    shutil.copy(DATA / "small.swf", folder / "b.swf")
    shutil.copy(DATA / "philly.json", folder / "cluster_job_log")
    for name, text in {
        "site.toml": SITE,
        "grid.toml": GRID,
        "placements.toml": PLACEMENTS,
        "needed.csv": NEEDED,
        "dgx.conf": GRES,
        "eights.csv": EIGHTS,
        "all.csv": EIGHTS,
        "elastic.csv": ELASTIC,
        "dl2.json": PolicyNetwork.new(FEATURES, 0).text(),
        "harmony.json": PolicyNetwork.new(harmony.FEATURES, 0).text(),
    }.items():
        (folder / name).write_text(text)
    (folder / "FILE").write_text("time,active,total\n" + "".join(f"{at * 600},{at % 7},8\n" for at in range(400)))


def offline() -> list[str]:
    """Commands that need no Slurm and are not run elsewhere."""
    return sorted({shown for _, shown in SHOWN} - set(wanted()) - NAMED - set(ELSEWHERE))


@pytest.mark.parametrize("shown", offline(), ids=[" ".join(shown.split()) for shown in offline()])
def test_page__shows_commands_that_work_on_files(desk: Path, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They end with 0 and print something."""
    smaller = SMALLER | ({"FILE": "dgx.conf"} if "--gres-conf" in shown else {})
    if "shipped/" in shown:  # of its own size
        smaller = {}
    words = [smaller.get(word, word) for word in shlex.split(shown)]
    words = [str(ROOT / word) if word.startswith("slurmsched/") else word for word in words]
    code = main(words)
    told = capsys.readouterr()
    assert (code, bool(told.out)) == (0, True), told.err
    if "--json" in words:
        json.loads(told.out)


def test_commands__are_run_somewhere() -> None:
    """What is named as run by another test, or as no command to type, is in the pages."""
    shown = {shown for _, shown in SHOWN}
    assert shown >= set(ELSEWHERE)
    assert len(offline()) > 20


@pytest.mark.parametrize("shown", ELSEWHERE)
def test_command__that_another_test_runs_is_there(shown: str) -> None:
    """That test's file has its command, its options and the tables that it names, each as a word."""
    text = (ROOT / ELSEWHERE[shown]).read_text(encoding="utf-8")
    head = shown.split(" --")[0].split()
    named = (
        head
        if head[0] == "reproduce"
        else head[: 1 + isinstance(cli.get_command(click.Context(cli), head[0]), click.Group)]
    )
    wanted = [*named, *(word for word in shlex.split(shown) if word.startswith("--"))]
    assert [word for word in wanted if f'"{word}"' not in text] == []
