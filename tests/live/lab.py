"""What a live test does: submit, look, run slurmsched as its own user, break things. Runs as root inside the lab."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.live.warm import COMMAND, warm

USERS = ("alice", "bob", "carol", "dave")
BINARY = "/opt/venv/bin/slurmsched"
PYTHON = "/opt/venv/bin/python"
COMMAND_S = 240
LABCTL_S = 1800  # more than all that it waits for, 180 s each: it says itself what did not come
SAVED = Path("/var/lib/slurm/slurmctld/job_state")


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    rc: int
    out: str
    err: str

    def json(self) -> dict:
        return orjson.loads(self.out)


def becoming(user: str) -> list[str]:
    """What to put before a command so that this user runs it."""
    if user == "root":
        return []
    return ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", f"HOME=/home/{user}"]


def run(*command: str, user: str = "root", check: bool = True, timeout_s: float | None = None) -> Done:
    """The command's result as this user. check: a failure fails the test with what was printed."""
    argv = [*becoming(user), *command]
    limit_s = timeout_s or (LABCTL_S if command[0] == "labctl" else COMMAND_S)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, cwd="/tmp", check=False)
    assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return Done(done.returncode, done.stdout, done.stderr)


def forked(
    code: str, argv: Sequence[str], user: str = "root", check: bool = True, timeout_s: float = COMMAND_S
) -> Done:
    """As run, of Python code in a process of this user that need not load slurmsched first."""
    done = Done(*warm(user, PYTHON, becoming(user)).run(code, list(argv), timeout_s))
    assert not check or done.rc == 0, f"{argv}: exit {done.rc}\n{done.out}{done.err}"
    return done


def submit(user: str, gpus: int, *options: str, script: str = "sleep 600", name: str = "job") -> int:
    """Job id of a batch job of this many GPUs (whole nodes above 8), with 1 GiB a node if no option says otherwise."""
    nodes = max(1, gpus // 8)
    request = [f"--nodes={nodes}", f"--gpus-per-node={gpus // nodes}", f"--job-name={name}"]
    request += [] if any(option.startswith("--mem") for option in options) else ["--mem=1G"]
    answer = run("sbatch", "--parsable", "--output=/dev/null", *request, *options, f"--wrap={script}", user=user)
    return int(answer.out.split(";")[0])


def column(code: str, *states: str) -> dict[int, str]:
    """One squeue column of every job record in these states, by job id."""
    listed = run("squeue", "-h", "-a", "-r", "-t", ",".join(states or ("all",)), "-o", f"%A|{code}").out
    records = (line.partition("|") for line in listed.splitlines())
    return {int(job): value for job, _, value in records if job.isdecimal()}  # a comment may have several lines


def nices() -> dict[int, int]:
    """Nice of every pending job."""
    return {job: int(value) for job, value in column("%y", "PENDING").items()}


def until(true: Callable[[], object], what: str, limit_s: float = 240, pause_s: float = 0.2) -> None:
    """Wait until it is true, looking every pause_s; fail the test after limit_s."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s:.0f} s: {what}"
        time.sleep(pause_s)


def saved() -> None:
    """Wait until slurmctld has written down what it knows: it does so within five seconds of a change, and one that is
    killed before forgets."""
    now_s, end = time.time(), time.monotonic() + 7
    while not (SAVED.exists() and SAVED.stat().st_mtime > now_s) and time.monotonic() < end:
        time.sleep(0.2)


def kill_slurmctld() -> None:
    """As by kill -9. After a reconfigure too, which leaves to a new process whose id is there a moment later."""

    def gone() -> bool:
        run("sh", "-c", "kill -9 $(cat /run/slurm/slurmctld.pid)", check=False)
        return "lab is UP" not in run("scontrol", "ping", check=False).out

    until(gone, "slurmctld is gone")


def partition(state: str, name: str = "gpu") -> None:
    """UP, or DOWN: jobs may be submitted but none starts."""
    run("scontrol", "update", f"partitionname={name}", f"state={state}")


def sacct(fields: str, jobs: Iterable[int] = (), *options: str) -> list[list[str]]:
    """Fields of the records of jobs, times in Unix s, once slurmdbd knows all that slurmctld has to tell it: on a busy
    machine that is some seconds after squeue."""
    until(lambda: "DBD Agent queue size: 0" in run("sdiag").out, "slurmdbd has been told")
    only = ("-j", ",".join(map(str, jobs))) if jobs else ()
    command = ("env", "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-n", "-P", *only, *options, "-o", fields)
    return [line.split("|") for line in run(*command).out.splitlines()]


def start_order(jobs: Iterable[int]) -> list[int]:
    """Job ids in the order Slurm last started them, by sacct."""
    starts = sacct("JobIDRaw,Start,Submit", jobs)
    return [int(job) for job, *_ in sorted(starts, key=lambda row: (int(row[1]), int(row[2]), int(row[0])))]


@dataclass
class Installed:
    """slurmsched as an administrator sets it up: own user, own folder, one TOML file. cold: each command is started
    as from a shell; else it is forked from a process that has loaded what it needs (see warm)."""

    folder: Path
    user: str = "slurmsched"
    settings: dict[str, str] = field(default_factory=dict)
    cold: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.configure()

    @property
    def file(self) -> Path:
        return self.folder / "slurmsched.toml"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def configure(self, **settings: str) -> None:
        """Write the file: dotted keys (as section__key) and TOML values over the test's defaults."""
        self.settings |= settings
        tree = {
            "ledger.url": f'"sqlite:///{self.folder}/ledger.db"',
            "ledger.journal": f'"{self.journal}"',
            "ledger.lock": f'"{self.folder}/lock"',
            "cycle.stop_file": f'"{self.folder}/stop"',
            "scope.partitions": '["gpu", "short", "phantom"]',
            "policy": '{ name = "discretized-las", thresholds_gpu_s = [30.0, 200.0] }',
        }
        tree |= {key.replace("__", "."): value for key, value in self.settings.items()}
        self.file.write_text("".join(f"{key} = {value}\n" for key, value in tree.items()))
        self.owned()

    def owned(self) -> None:
        run("chown", "-R", f"{self.user}:", str(self.folder))

    def __call__(self, *arguments: str, check: bool = True, user: str = "") -> Done:
        """slurmsched with these arguments, as its user."""
        argv = ("--config", str(self.file), *arguments)
        if self.cold:
            return run(BINARY, *argv, user=user or self.user, check=check)
        return forked(COMMAND, (BINARY, *argv), user or self.user, check)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """slurmsched at work, as its user, in a process group of its own."""
        command = [*becoming(self.user), BINARY, "--config", str(self.file), *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/tmp", start_new_session=True
        )

    def begin(self, *arguments: str, log: str, enter: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """As start, for long: what it says is added to a file in its folder. enter: put before the command."""
        command = [*enter, *becoming(self.user), BINARY, "--config", str(self.file), *arguments]
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, cwd="/tmp", start_new_session=True)

    def tick(self, *options: str) -> dict:
        """One applied cycle; its receipt."""
        return self("tick", "--apply", "--json", *options).json()

    def journalled(self) -> dict[int, set[int]]:
        """Every value the journal knows, by job id."""
        known: dict[int, set[int]] = {}
        for line in self.journal.read_bytes().splitlines() if self.journal.exists() else ():
            entry = orjson.loads(line)
            if entry.get("field") in ("nice", "site_factor"):
                known.setdefault(entry["job_id"], set()).update(entry.get(key, 0) for key in ("old", "sent", "base"))
        return known
