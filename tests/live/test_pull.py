"""The history of this Slurm pulled from accounting, and replayed: a churn of jobs of every kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from slurmsched.model.trace import Trace
from slurmsched.sim.traces.trace_io import load_trace
from tests.live.lab import Done, Installed, run, submit, until

pytestmark = pytest.mark.live
SUSPENDED_S = 6.0
WRAPPER = """#!/bin/sh
echo "$(date +%s.%N) $*" >>"${0%/*}/calls"
exec /usr/bin/sacct "$@"
"""


@dataclass(frozen=True)
class Churn:
    """What was submitted, by name, and since when [Unix s]."""

    ids: dict[str, int]
    since_s: float


def state(job: int) -> str:
    """The job's state now, of all its tasks and components."""
    return run("squeue", "-h", "-a", "-r", "-j", str(job), "-t", "all", "-o", "%T", check=False).out


@pytest.fixture(scope="module")
def churn(lab: None) -> Iterator[Churn]:
    """Jobs that ended: plain, array, requeued, suspended, cancelled waiting and running, het, without GPUs, failed."""
    run("labctl", "reset")
    since_s = time.time()
    ids = {
        "plain": submit("alice", 2, "--time=30", script="sleep 3"),
        "big": submit("bob", 16, script="sleep 2", name="two|nodes"),
        "array": submit("alice", 1, "--array=0-2", script="sleep 2"),
        "requeued": submit("carol", 4, script='[ -n "$SLURM_RESTART_COUNT" ] || sleep 600; sleep 2'),
        "suspended": submit("dave", 2, script="sleep 12"),
        "cancelled": submit("bob", 1, script="sleep 600"),
        "waiting": submit("bob", 1, "--hold"),
        "failed": submit("dave", 1, script="sleep 1; exit 3"),
        "cpu": int(run("sbatch", "--parsable", "--output=/dev/null", "--mem=1G", "--wrap=sleep 1", user="alice").out),
        "typed": int(run("sbatch", "--parsable", "--output=/dev/null", "--mem=1G", "--gpus=a100:3", "--wrap=sleep 1",
                         user="alice").out),
    }  # fmt: skip
    parts = ["--gpus-per-node=1", "--mem=1G"]
    het = run("sbatch", "--parsable", "--output=/dev/null", *parts, "--wrap=sleep 2", ":", *parts, user="alice")
    ids["het"] = int(het.out)
    until(lambda: "RUNNING" in state(ids["suspended"]), "the one to suspend runs")
    run("scontrol", "suspend", str(ids["suspended"]))
    for name in ("requeued", "cancelled"):
        until(lambda name=name: "RUNNING" in state(ids[name]), f"{name} runs")
    run("scontrol", "requeue", str(ids["requeued"]))
    time.sleep(SUSPENDED_S)
    run("scontrol", "resume", str(ids["suspended"]))
    run("scancel", str(ids["cancelled"]), str(ids["waiting"]))
    ended = {"COMPLETED", "FAILED", "CANCELLED"}
    until(lambda: all(set(state(job).split()) <= ended for job in ids.values()), "all have ended")
    until(lambda: "Unknown" not in rows(ids.values(), "End"), "accounting knows all ends")
    yield Churn(ids, since_s)


def rows(jobs, fields: str) -> str:
    return run("sacct", "-X", "-D", "-n", "-P", "-j", ",".join(map(str, jobs)), "-o", fields).out


def pull(site: Installed, target: str, *options: str, days: tuple[int, int] = (0, 1), check: bool = True) -> Done:
    """`trace pull` of the days from today's on, by their distance from today."""
    today = datetime.now(UTC).date()
    first, last = (str(today + timedelta(days=distance)) for distance in days)
    return site("trace", "pull", str(site.folder / target), "--since", first, "--until", last, *options, check=check)


@pytest.fixture
def watched(site: Installed) -> Path:
    """sacct in a folder of its own, which writes down each call; no other command of Slurm is there."""
    folder = site.folder / "bin"
    folder.mkdir()
    (folder / "sacct").write_text(WRAPPER)
    (folder / "sacct").chmod(0o755)
    site.configure(slurm__bin_dir=f'"{folder}"')
    return folder


def of(trace: Trace, *jobs: int) -> Trace:
    return trace.take([i for i, job in enumerate(trace.job_id.tolist()) if job in jobs])


def test_pull__a_churn_of_every_kind(churn: Churn, site: Installed, watched: Path) -> None:
    """GPUs, run times and states as they were: each job once, whatever became of it."""
    pull(site, "h.parquet", "--pause", "0", days=(-1, 1))
    recorded = load_trace(site.folder / "h.parquet", strict=True)
    trace, ids = recorded.trace, churn.ids
    assert len(set(trace.job_id.tolist())) == len(trace)

    def told(name: str) -> tuple[int, str, str]:
        job = of(trace, ids[name])
        return int(job.gpus[0]), job.state[0], job.user[0]

    assert told("plain") == (2, "COMPLETED", "alice")
    assert told("big") == (16, "COMPLETED", "bob")
    assert told("typed") == (3, "COMPLETED", "alice")
    assert told("failed") == (1, "FAILED", "dave")
    assert told("cancelled")[:1] == (1,) and told("cancelled")[1].startswith("CANCELLED")
    assert told("het") == (2, "COMPLETED", "alice")
    assert len(of(trace, ids["waiting"], ids["cpu"])) == 0
    (plain,) = of(trace, ids["plain"]).time_limit_s.tolist()
    assert (plain, of(trace, ids["big"]).name[0]) == (1800.0, "two|nodes")
    raw = {int(job) for job in rows([ids["array"]], "JobIDRaw").split()}
    assert (len(raw), of(trace, *raw).gpus.tolist()) == (3, [1, 1, 1])


def test_pull__requeued_runs_are_one_job(churn: Churn, site: Installed, watched: Path) -> None:
    """Its run time is that of all its runs; it came when it came first."""
    pull(site, "h.csv")
    job = of(load_trace(site.folder / "h.csv").trace, churn.ids["requeued"])
    runs = [line.split("|") for line in rows([churn.ids["requeued"]], "State,ElapsedRaw").splitlines()]
    assert sorted(state for state, _ in runs) == ["COMPLETED", "REQUEUED"]
    assert (job.requeues.tolist(), job.gpus.tolist(), job.state[0]) == ([1], [4], "COMPLETED")
    assert job.duration_s.tolist() == [sum(float(elapsed) for _, elapsed in runs)]


def test_pull__suspended_time_is_no_run_time(churn: Churn, site: Installed, watched: Path) -> None:
    """Start to end less the pause, to the second, which is what Slurm itself counts as elapsed."""
    pull(site, "h.csv")
    job = of(load_trace(site.folder / "h.csv").trace, churn.ids["suspended"])
    start, end = (
        datetime.fromisoformat(text).timestamp()
        for text in rows([churn.ids["suspended"]], "Start,End").strip().split("|")
    )
    assert SUSPENDED_S - 1 <= end - start - job.duration_s[0] <= SUSPENDED_S + 60
    assert job.duration_s[0] == float(rows([churn.ids["suspended"]], "ElapsedRaw"))


WHOLE = ("--count-from", "0%", "--count-until", "0%")  # no first and last part is left out


def test_pull__replays_under_two_policies(churn: Churn, site: Installed, watched: Path) -> None:
    """The trace goes into `replay` as it is."""
    pull(site, "h.parquet")
    jobs = len(load_trace(site.folder / "h.parquet").trace)
    for policy in ("fifo", "discretized-las"):
        file = str(site.folder / "h.parquet")
        figures = site("replay", file, "--cluster", "4x8", "--policy", policy, *WHOLE, "--json").json()
        assert 0 < figures["jobs"] <= jobs  # jobs that ran when the window began are there, and do not count
        assert figures["config"]["policy"] == policy


def test_pull__only_reads_and_pauses(churn: Churn, site: Installed, watched: Path) -> None:
    """sacct alone, a call a day, the pause between; a day that is over is not asked again, today is."""
    pull(site, "h.csv", "--pause", "0.5", days=(-3, 1))
    calls = [line.split(maxsplit=1) for line in (watched / "calls").read_text().splitlines()]
    asked = [(float(when), options) for when, options in calls if "--starttime" in options]
    assert len(asked) == 4 and len(calls) == 5  # one for the names of the fields
    assert all(later - earlier >= 0.5 for (earlier, _), (later, _) in pairwise(asked))
    pull(site, "h.csv", "--pause", "0", days=(-3, 1))
    again = (watched / "calls").read_text().splitlines()[len(calls) :]
    assert [f"--starttime={datetime.now(UTC).date()}T00:00:00" in line for line in again] == [True]


def test_pull__without_accounting_says_so(churn: Churn, site: Installed) -> None:
    """slurmdbd that is down, and a Slurm that keeps no accounting: exit code 3, one line, no file."""
    run("labctl", "stop", "slurmdbd")
    away = pull(site, "h.csv", check=False)
    assert (away.rc, "is slurmdbd up" in away.err, (site.folder / "h.csv").exists()) == (3, True, False), away.err
    run("labctl", "start", "slurmdbd")
    run("labctl", "conf", "AccountingStorageType", "accounting_storage/none")
    none = pull(site, "h.csv", check=False)
    assert (none.rc, "slurmdbd" in none.err, (site.folder / "h.csv").exists()) == (3, True, False), none.err
