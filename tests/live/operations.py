"""Preemptions as the live tests see them: jobs that note their signals, and what is left of an operation in Slurm."""

from __future__ import annotations

from pathlib import Path

import orjson

from tests.live.lab import Installed, column, forked, run, submit, until

MARKS = Path("/tmp/slurmsched-marks")
# Notes the signal and goes on; ends at once when Slurm asks it to.
SAVES = f"trap 'echo $SLURM_JOB_ID >> {MARKS}/signalled' USR2; trap 'exit 0' TERM; while true; do sleep 0.2; done"
# Saves itself and goes back to the queue by itself, long before its time is over.
LEAVES = SAVES.replace("' USR2", "; scontrol requeue $SLURM_JOB_ID' USR2")
STAYS = SAVES.replace("exit 0", ":")  # ends only when Slurm kills it, KillWait after the requeue
WILLING = "slurmsched: preempt=yes ckpt=USR2@3"
# Runs `slurmsched tick` and dies as by kill -9 right before, or right after, the first write of a kind; at each point
# of the file once.
CUT = """
import os, sys
from pathlib import Path
from slurmsched.slurm import writer
left = Path(sys.argv.pop(1))
true_send = writer.CommandWriter.send
def die(action, when):
    kind = "leave" if action.kind == "join" and not action.name else action.kind
    points = left.read_text().splitlines()
    if f"{kind} {when}" in points:
        left.write_text("".join(f"{point}\\n" for point in points if point != f"{kind} {when}"))
        os._exit(9)
def send(self, actions):
    def counted():
        for action in actions:
            die(action, "before")
            yield action
    for outcome in true_send(self, counted()):
        die(outcome.action, "after")
        yield outcome
writer.CommandWriter.send = send
from slurmsched.cli.main import main
sys.argv[0] = "slurmsched"
main()
"""
# Runs `slurmsched tick`, and a shell command between its last look at the queue and the first write.
MEANWHILE = """
import subprocess, sys
from slurmsched.slurm import writer
command = sys.argv.pop(1)
true_send = writer.CommandWriter.send
def send(self, actions):
    subprocess.run(command, shell=True, check=True)
    yield from true_send(self, actions)
writer.CommandWriter.send = send
from slurmsched.cli.main import main
sys.argv[0] = "slurmsched"
main()
"""


def switched_on(site: Installed) -> None:
    """Preemption, without a quantum to wait for."""
    run("mkdir", "-p", "-m", "1777", str(MARKS))
    run("sh", "-c", f"rm -f {MARKS}/*")
    keys = {"enabled": "true", "quantum_s": "1", "restart_cost_s": "0", "least_factor": "0"}
    site.configure(**{f"preemption__{key}": value for key, value in keys.items()})


def four_running(comment: str = WILLING, script: str = SAVES) -> list[int]:
    """A long job on each of the four nodes, all willing to leave."""
    options = (f"--comment={comment}", "--requeue", "--time=60")
    jobs = [submit("alice", 8, *options, f"-w n{node}", script=script) for node in (1, 2, 3, 4)]
    until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "all four run")
    return jobs


def restarts(job: int) -> int:
    words = run("scontrol", "show", "job", str(job)).out.split()
    return int(next(word for word in words if word.startswith("Restarts=")).partition("=")[2])


def signalled() -> list[int]:
    path = MARKS / "signalled"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def journal(site: Installed) -> list[dict]:
    """The lines of the journal of operations, oldest first."""
    path = site.folder / "journal.operations.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def grace_s(site: Installed, victim: int) -> float:
    """From when a victim was to be asked for its checkpoint to when it was to be requeued, by the machine's uptime."""
    up_s: dict[str, float] = {}
    for line in journal(site):
        if victim in [each["job_id"] for each in line["operation"]["victims"]]:
            up_s.setdefault(line["operation"]["stage"], line["up_s"])
    return up_s["requeued"] - up_s["warned"]


def notes(site: Installed) -> list[str]:
    return [line["operation"]["note"] for line in journal(site) if line["operation"]["note"]]


def node_of(job: int) -> str:
    return column("%N", "RUNNING")[job]


def featured(node: str, features: str) -> None:
    run("scontrol", "update", f"nodename={node}", f"availablefeatures={features}", f"activefeatures={features}")


def reservations() -> list[str]:
    listed = run("scontrol", "-o", "show", "reservation").out
    return [line for line in listed.splitlines() if line.startswith("ReservationName=slurmsched-")]


def clean(*jobs: int) -> bool:
    """No reservation of ours, no job that names one."""
    named = column("%v", "PENDING", "RUNNING", "COMPLETING").values()
    return not reservations() and all(name in ("", "(null)", "N/A") for name in named)


def ticks(site: Installed, true: object, what: str, limit_s: float = 240) -> None:
    """Cycles until it is true."""

    def cycle() -> bool:
        site.tick()
        return bool(true())  # type: ignore[operator]

    until(cycle, what, limit_s, pause_s=0.7)  # a cycle is a process of its own, and another lab may share the cores


def around(*kinds: str) -> list[tuple[str, str]]:
    """Right before and right after a write of each kind."""
    return [(kind, when) for kind in kinds for when in ("before", "after")]


def tick_meanwhile(site: Installed, command: str) -> None:
    """A cycle, and this command between its look at the queue and its first write."""
    site.owned()
    forked(MEANWHILE, ("-c", command, "--config", str(site.file), "tick", "--apply"), site.user)


def cut_tick(site: Installed, points: list[tuple[str, str]]) -> bool:
    """A cycle that dies at the first of these points it comes to, which is taken out of the list; whether it died."""
    left = site.folder / "points"
    left.write_text("".join(f"{kind} {when}\n" for kind, when in points))
    site.owned()
    tree = ("--config", str(site.file), "tick", "--apply")
    ended = forked(CUT, ("-c", str(left), *tree), site.user, check=False)
    points[:] = [(kind, when) for kind, _, when in (line.partition(" ") for line in left.read_text().splitlines())]
    assert ended.rc in (0, 9), ended.err
    return ended.rc == 9
