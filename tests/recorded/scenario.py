"""Jobs of every kind a reader must tell apart, and what it must say of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A job: its name, who submits it with which options, and what must be read.

    gpus, request: of the whole job. runs: whether it starts at once (partition phantom never starts anything).
    """

    name: str
    user: str
    options: tuple[str, ...]
    gpus: int
    request: str
    runs: bool = False


STRANGE_NAME = 'a|b "c" JobId=7 d'
STRANGE_COMMENT = "slurmsched: dur=2h|é ü\nNodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7) \N{SNOWMAN}"

CASES = (
    Case("gres", "alice", ("--gres=gpu:2",), 2, "gpu:2", True),
    Case("gpus", "alice", ("--gpus=4", "-N1"), 4, "gpu:4", True),
    Case("per-node", "bob", ("--gpus-per-node=2", "-N2"), 4, "gpu:4", True),
    Case("per-task", "bob", ("--gpus-per-task=1", "-n2"), 2, "gpu:2", True),
    Case("per-socket", "carol", ("--gpus-per-socket=1", "--sockets-per-node=2", "-n2"), 2, "gpu:2", True),
    Case("typed", "carol", ("--gpus=a100:1",), 1, "gpu:a100:1", True),
    Case("typed-gres", "dave", ("--gres=gpu:a100:3", "--nice=500"), 3, "gpu:a100:3", True),
    Case("cpu-only", "dave", ("-n3", "--mem-per-cpu=100"), 0, "", True),
    Case("suspended", "dave", ("--gres=gpu:1",), 1, "gpu:1", True),
    Case("no-requeue", "dave", ("--gres=gpu:1", "--no-requeue"), 1, "gpu:1", True),
    Case(STRANGE_NAME, "alice", ("--gres=gpu:1", f"--comment={STRANGE_COMMENT}"), 1, "gpu:1", True),
    Case("requeued", "bob", ("--gres=gpu:1", "-w", "n4"), 1, "gpu:1", True),
    Case("p-gres", "alice", ("-p", "phantom", "--gres=gpu:2", "-N2"), 4, "gpu:4"),
    Case("p-gpus", "alice", ("-p", "phantom", "--gpus=12", "-N2", "--nice=7"), 12, "gpu:12"),
    Case("p-per-node", "bob", ("-p", "phantom", "--gpus-per-node=a100:2", "-N3"), 6, "gpu:a100:6"),
    Case("p-per-task", "bob", ("-p", "phantom", "--gpus-per-task=2", "-n3"), 6, "gpu:6"),
    Case("p-per-socket", "carol", ("-p", "phantom", "--gpus-per-socket=1", "--sockets-per-node=2", "-n2"), 2, "gpu:2"),
    Case("p-site", "carol", ("-p", "phantom", "--gpus=1", "--time=UNLIMITED"), 1, "gpu:1"),
    Case("p-pinned", "dave", ("-p", "phantom", "--gpus=1"), 1, "gpu:1"),
    Case("p-held", "carol", ("-p", "phantom", "--hold", "--gres=gpu:1"), 1, "gpu:1"),
    Case("p-later", "dave", ("-p", "phantom,gpu", "--gpus=8", "--begin=now+1hour"), 8, "gpu:8"),
    Case("p-array", "alice", ("-p", "phantom", "--array=1-9:2%3", "--gpus=1"), 1, "gpu:1"),
    Case("p-het", "alice", ("-p", "phantom", "--gres=gpu:1", ":", "-p", "phantom", "--gres=gpu:2"), 1, "gpu:1"),
    Case(
        "p-bound", "dave", ("-H", "--gres=gpu:8", "-N2", "-w", "n4", "-x", "n1,n3", "-C", "a100&nvlink"), 16, "gpu:16"
    ),
    Case("p-dependent", "dave", ("-p", "phantom", "--gres=gpu:1", "--dependency=afterany:{gres}"), 1, "gpu:1"),
)
NICE_OF_TASK, SITE_FACTOR, PRIORITY = 33, 12_345, 54_321


def submit_all() -> dict[str, int]:
    """Submit every case and give it time to start, then change some. Job ids by name; root inside a lab only."""
    ids: dict[str, int] = {}
    for case in CASES:
        options = [option.format(**ids) if "{" in option else option for option in case.options]
        command = [
            "sbatch",
            "--parsable",
            f"--job-name={case.name}",
            "--output=/dev/null",
            *options,
            "--wrap=sleep 900",
        ]
        ids[case.name] = int(_run("runuser", "-u", case.user, "--", *command))
    _until_started([ids[case.name] for case in CASES if case.runs])
    _run("scontrol", "suspend", str(ids["suspended"]))
    _run("scontrol", "requeue", str(ids["requeued"]))
    _run("scontrol", "update", f"jobid={ids['p-array']}_3", f"nice={NICE_OF_TASK}")
    _run("scontrol", "update", f"jobid={ids['p-site']}", f"SiteFactor={SITE_FACTOR}")
    _run("scontrol", "update", f"jobid={ids['p-pinned']}", f"priority={PRIORITY}")
    _until(lambda: "PENDING" in _state(ids["requeued"]), "the requeued job waits again")
    return ids


def _state(job: int) -> str:
    return _run("squeue", "-h", "-j", str(job), "-o", "%T")


def _until_started(jobs: list[int]) -> None:
    listed = ",".join(map(str, jobs))
    _until(lambda: _run("squeue", "-h", "-j", listed, "-o", "%T").split() == ["RUNNING"] * len(jobs), "all jobs run")


def _until(true: Callable[[], bool], what: str, limit_s: float = 90) -> None:
    end_s = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {limit_s:.0f} s: {what}\n{_run('squeue')}")
        time.sleep(0.3)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/tmp", check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout.strip()
