"""A sweep in Slurm jobs: Dask's workers are submitted to this Slurm, and find what one machine finds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.live.lab import BINARY, Done, becoming, column, run, sacct, until

ROWS = ("1,2,0,6", "2,4,1,4", "3,1,2,3", "4,2,3,5", "5,1,4,9", "6,3,5,2")
GRID = """
cluster = ["1x4", "2x4", "1x2"]
seed = [0, 1]
[[policy]]
name = ["fifo", "srtf"]
[[policy]]
name = "discretized-las"
thresholds_gpu_s = [[4.0], [8.0]]
"""
POINTS, WRONG = 3 * 2 * 4, 2 * 4  # no job of 3 GPUs fits a cluster of 2
DASK_S = 400.0
pytestmark = [pytest.mark.live, pytest.mark.newest, pytest.mark.timeout(3 * DASK_S)]  # two waits, and the rest
LONG = 60  # points of a seventh of a second, so that the only job is cancelled long before the last
LO = "DASK_JOBQUEUE__SLURM__INTERFACE=lo"


@pytest.fixture
def folder(fresh: None) -> Iterator[Path]:
    """A folder of alice's with a trace and a grid."""
    path = Path("/home/alice/sweep")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    (path / "six.csv").write_text("job_id,num_gpus,submit_s,duration_s\n" + "\n".join(ROWS) + "\n")
    (path / "grid.toml").write_text(GRID)
    run("chown", "-R", "alice:", str(path))
    yield path
    run("scancel", "--user=alice", "--name=slurmsched-sweep", check=False)
    shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path, results: str, *options: str, env: tuple[str, ...] = (LO,), check: bool = False) -> Done:
    """As alice, in her folder."""
    return run(*commanded(folder, results, *options, env=env), user="alice", check=check, timeout_s=DASK_S)


def commanded(folder: Path, results: str, *options: str, env: tuple[str, ...] = (LO,)) -> list[str]:
    command = ["env", "-C", str(folder), *env, BINARY, "sweep", "six.csv", "--grid", "grid.toml", "--json"]
    return [*command, "--results", results, *options]


def rows(folder: Path, results: str) -> dict[str, dict]:
    """The kept rows by key, without the time they took."""
    lines = (folder / results).read_bytes().splitlines()
    return {row["key"]: row for row in (orjson.loads(line) | {"wall_s": 0} for line in lines)}


def test_sweep__in_slurm_jobs_gives_the_rows_of_one_machine(folder: Path) -> None:
    """Two jobs of alice's do the work and are gone after it; points that are wrong are listed alike."""
    local, spread = sweep(folder, "local", "--workers", "2"), sweep(folder, "dask", "--workers", "2", "--dask", "slurm")
    assert (local.rc, spread.rc) == (2, 2), spread.err
    told = [(done.json()["played"], len(done.json()["failed"])) for done in (local, spread)]
    assert told == [(POINTS - WRONG, WRONG)] * 2, spread.err
    assert rows(folder, "local") == rows(folder, "dask")
    assert spread.json()["best"] == local.json()["best"]
    assert sacct("JobID", (), "-u", "alice", "--name=slurmsched-sweep")
    until(lambda: not column("%T", "PENDING", "RUNNING"), "the workers' jobs are gone")
    keys = [path.name for path in (folder / "dask.workers").iterdir() if "key" in path.name]
    assert keys == []  # the key of their connection went with them


def test_sweep__in_slurm_jobs_plays_only_what_is_missing(folder: Path) -> None:
    """Also after a line was torn: two points are played, by one job that was submitted for them."""
    sweep(folder, "r", "--workers", "2")
    whole = rows(folder, "r")
    lines = (folder / "r").read_bytes().splitlines(keepends=True)
    (folder / "r").write_bytes(b"".join(lines[:-2]) + lines[-2][:40])
    again = sweep(folder, "r", "--workers", "1", "--dask", "slurm", "--axis", "cluster=1x4", "--axis", "cluster=2x4")
    assert (again.rc, again.json()["played"], again.json()["missing"]) == (0, 2, 0), again.err
    assert rows(folder, "r") == whole


def test_sweep__a_lost_job_is_replaced(folder: Path) -> None:
    """The only worker's job is cancelled on the way: another one does the rest, and no point fails."""
    trace = "/src/slurmsched/sim/traces/shipped/philly_ee9e8c_2w.csv.gz"
    axes = ("--axis", "cluster=30x8", "--axis", "policy=srtf", *(f"--axis=seed={seed}" for seed in range(LONG)))
    command = [
        "env",
        "-C",
        str(folder),
        LO,
        BINARY,
        "sweep",
        trace,
        *axes,
        "--results",
        "r",
        "--json",
        "--dask",
        "slurm",
    ]
    with subprocess.Popen([*becoming("alice"), *command, "--workers", "1"], stdout=subprocess.PIPE) as process:
        try:
            until(lambda: (folder / "r").exists() and (folder / "r").stat().st_size, "one point is done", DASK_S)
            (job,) = column("%T", "RUNNING")
            run("scancel", str(job))
            told = orjson.loads(process.communicate(timeout=DASK_S)[0])
        finally:  # it would wait for Slurm's queue without end
            process.kill()
    assert (process.returncode, told["played"], told["failed"]) == (0, LONG, [])
    listed = sacct("JobIDRaw", (), "-u", "alice", "--name=slurmsched-sweep")
    assert max(int(other) for (other,) in listed) > job


def test_sweep__says_why_slurm_takes_no_such_job(folder: Path) -> None:
    """A partition that is none, told by Slurm's own words; nothing stays in the queue."""
    refused = sweep(folder, "r", "--dask", "slurm", env=(LO, "DASK_JOBQUEUE__SLURM__QUEUE=nowhere"))
    assert (refused.rc, "invalid partition" in refused.err) == (3, True), refused.err
    assert column("%T", "PENDING", "RUNNING") == {}


def test_sweep__on_a_scheduler_that_runs_already(folder: Path) -> None:
    """Its workers are used, and waited for where there are none, with a word on how to start one; an address where no
    scheduler is gives an error."""
    script = (
        "from distributed import LocalCluster; import os, time\n"
        "with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None, scheduler_port=8799) as made:\n"
        f'    while not os.path.exists("{folder}/go"):\n'
        "        time.sleep(0.2)\n"
        "    made.scale(1)\n"
        "    time.sleep(600)"
    )
    command = f"--wrap=/opt/venv/bin/python -c '{script}'"
    job = run("sbatch", "--parsable", "--output=/dev/null", "--mem=1G", "--time=10", command, user="alice").out.strip()
    until(lambda: not run("sh", "-c", "ss -ltn | grep -q :8799", check=False).rc, "the scheduler listens")
    said, words = folder / "said", commanded(folder, "r", "--scheduler", "tcp://127.0.0.1:8799")
    with said.open("w") as err, subprocess.Popen([*becoming("alice"), *words], stdout=-1, stderr=err) as used:
        until(lambda: "no worker is connected to tcp://127.0.0.1:8799; start one by" in said.read_text(), "it is told")
        (folder / "go").touch()
        out, _ = used.communicate(timeout=DASK_S)
    assert (used.returncode, orjson.loads(out)["played"]) == (2, POINTS - WRONG), said.read_text()
    run("scancel", job)
    none = sweep(folder, "s", "--scheduler", "tcp://127.0.0.1:8798")
    assert (none.rc, "no Dask scheduler answers" in none.err) == (2, True), none.err
