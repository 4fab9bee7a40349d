"""Jobs of unusual kind through several applied cycles: each gets its place once, and undo gives all back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.lab import BINARY, Installed, column, nices, partition, run, submit, until

pytestmark = pytest.mark.live

SRSF = '{ name = "srsf" }'  # shortest expected service first: the time limit decides
BUSY = "sleep 600"


@pytest.fixture
def closed(site: Installed) -> Installed:
    """Nothing starts, and the shortest job goes first."""
    site.configure(policy=SRSF)
    partition("DOWN")
    partition("DOWN", "short")
    return site


def left_alone(site: Installed) -> dict[int, str]:
    """The rule that leaves each job alone, by job id."""
    return {refusal["job_id"]: refusal["rule"] for refusal in site("plan", "--json").json()["refused"]}


def first() -> int:
    """The job that Slurm would start first of all that wait: the lower id where priorities are equal."""
    priority = {job: int(value) for job, value in column("%Q", "PENDING").items()}
    return min(priority, key=lambda job: (-priority[job], job))


def written(site: Installed) -> int:
    """Jobs that one cycle wrote."""
    return site.tick()["written"]


def settled(site: Installed) -> None:
    """Cycles from now on write nothing, and none finds that somebody else was at work."""
    for _ in range(2):
        assert site.tick()["planned"] == 0
    assert "backoff" not in left_alone(site).values()


def undone(site: Installed, before: dict[int, int]) -> None:
    """Every job in the queue, running ones too, has the nice from before."""
    site("undo", "--apply", "--yes")
    assert {job: int(value) for job, value in column("%y", "PENDING", "RUNNING").items()} == before


def test_array__pending_running_and_requeued_tasks(site):
    """Slurm writes an array through to its tasks: one write, then peace; the user's own nice comes back to each."""
    site.configure(policy=SRSF)
    long = submit("bob", 1, "--time=600", "--hold")
    array = submit("alice", 4, "--array=0-5%3", "--nice=3", "--time=5", script=BUSY)
    until(lambda: len(column("%T", "RUNNING")) == 3, "three tasks run")
    partition("DOWN")
    run("scontrol", "requeue", "incomplete", f"{array}_0")
    until(lambda: len(column("%T", "RUNNING")) == 2 and len(nices()) == 3, "one waits again, beside the array's record")
    run("scontrol", "release", str(long))
    before = {job: int(value) for job, value in column("%y", "PENDING", "RUNNING").items()}
    assert len(before) == 5
    assert first() == long
    assert written(site) > 0
    assert first() != long
    settled(site)
    undone(site, before)


def test_array__a_nice_that_its_user_set_on_one_task(closed):
    """It counts on top of what the array gets, one that is set after a write is left as it is, also when the array is
    written again, and undo gives each its own back."""
    submit("bob", 1, "--time=600")
    array = submit("alice", 4, "--array=0-4", "--time=50")
    run("scontrol", "update", f"jobid={array}_2", "nice=50", user="alice")
    before = nices()
    (task,) = (job for job, nice in before.items() if nice == 50)
    assert written(closed) > 0
    assert nices()[task] == nices()[array] + 50
    settled(closed)
    run("scontrol", "update", f"jobid={array}_1", "nice=7", user="alice")
    (later,) = (job for job, nice in nices().items() if nice == 7)
    moved = nices()[array]
    for limit in (600, 400, 5):
        submit("carol", 1, f"--time={limit}")
        closed.tick()
        assert (nices()[later], nices()[task]) == (7, nices()[array] + 50)
    run("scontrol", "update", f"jobid={array}", "timelimit=1")  # the shortest of all: it must be written again
    closed.tick()
    assert nices()[array] != moved
    assert (nices()[later], nices()[task]) == (7, nices()[array] + 50)
    closed("undo", "--apply", "--yes")
    assert {job: nice for job, nice in nices().items() if job in before or job == later} == before | {later: 7}


def test_array__task_requeued_between_cycles(site):
    """It waits again with what its array got, which is not what its user asked for."""
    site.configure(policy=SRSF)
    long = submit("bob", 1, "--time=600", "--hold")
    array = submit("alice", 8, "--array=0-5", "--nice=3", "--time=5", script=BUSY)
    until(lambda: len(column("%T", "RUNNING")) == 4, "four tasks run")
    partition("DOWN")
    run("scontrol", "release", str(long))
    before = {job: int(value) for job, value in column("%y", "PENDING", "RUNNING").items()}
    assert written(site) > 0
    task = min(column("%T", "RUNNING"))
    run("scontrol", "requeue", "incomplete", str(task))
    until(lambda: task in nices(), "the task waits again")
    assert nices()[task] == nices()[array] != 3
    settled(site)
    undone(site, before)


def test_het_job__second_cycle_writes_nothing(closed):
    """Its components follow the leader, in Slurm and here."""
    long = submit("bob", 1, "--time=600")
    parts = ["--gpus-per-node=1", "--mem=1G", "--time=5"]
    answer = run("sbatch", "--parsable", "--output=/dev/null", *parts, f"--wrap={BUSY}", ":", *parts, user="alice")
    leader = int(answer.out.split(";")[0])
    before = nices()
    assert set(before) == {long, leader, leader + 1}
    assert written(closed) > 0
    assert first() in (leader, leader + 1)
    assert nices()[leader] == nices()[leader + 1] != 0
    settled(closed)
    undone(closed, before)


def test_site_factor__job_that_waits_on_a_dependency(closed):
    """sprio does not show it: left alone until it is eligible, then placed; undo restores both."""
    closed.configure(lever__kind='"site_factor"')
    ahead = submit("bob", 1, "--time=600", "--hold")
    waits = submit("alice", 1, "--time=5", f"--dependency=afterany:{ahead}")
    others = [submit("carol", 1, f"--time={minutes}") for minutes in (60, 30)]
    closed.tick()
    assert left_alone(closed) == {waits: "hidden", ahead: "held"}
    run("scancel", str(ahead))
    until(lambda: left_alone(closed) == {}, "it is eligible")
    assert written(closed) > 0
    assert first() == waits
    settled(closed)
    run("scontrol", "update", f"jobid={waits}", f"dependency=afterany:{others[0]}")  # not shown again, not reset
    closed.tick()
    assert left_alone(closed)[waits] == "hidden"
    run("scontrol", "update", f"jobid={waits}", "dependency=")
    until(lambda: left_alone(closed) == {}, "it is eligible again")
    assert first() == waits
    settled(closed)
    closed("undo", "--apply", "--yes")
    factors = run("sprio", "-h", "-o", "%i|%S").out.splitlines()
    assert {line.split("|")[1].strip() for line in factors} == {"0"}


def test_held_job__is_placed_when_released(closed):
    """A hold keeps the nice; so does the release of a held job."""
    long, short = submit("bob", 1, "--time=600"), submit("alice", 1, "--time=5", "--hold")
    before = nices()
    closed.tick()
    assert left_alone(closed) == {short: "held"}
    assert nices()[short] == 0
    run("scontrol", "release", str(short), user="alice")
    assert written(closed) > 0
    assert first() == short != long
    settled(closed)
    run("scontrol", "hold", str(short))
    closed.tick()
    assert left_alone(closed) == {short: "held"}
    run("scontrol", "release", str(short))
    settled(closed)
    undone(closed, before)


def test_job__released_though_not_held_is_left_alone_for_a_while(closed):
    """Slurm then sets its nice to 0, as a user does who wants his place back: respected, no war; then managed again."""
    closed.configure(lever__backoff_s="15")
    submit("bob", 1, "--time=600")
    short = submit("alice", 1, "--time=5")
    closed.tick()
    assert nices()[short] != 0
    run("scontrol", "release", str(short))
    assert nices()[short] == 0
    closed.tick()
    assert left_alone(closed) == {short: "backoff"}
    closed.tick()
    assert nices()[short] == 0
    until(lambda: closed.tick() and nices()[short] != 0, "it is managed again")
    assert first() == short


def test_job__pinned_by_an_operator_is_left_alone(closed):
    """priority= makes every lever dead, and Slurm sets the nice to 0."""
    submit("bob", 1, "--time=600")
    short = submit("alice", 1, "--time=5")
    closed.tick()
    assert nices()[short] != 0
    run("scontrol", "update", f"jobid={short}", "priority=400000")
    until(lambda: left_alone(closed) == {short: "fixed-priority"}, "sprio shows its priority as fixed")
    closed.tick()
    assert nices()[short] == 0


def test_job__in_two_partitions(closed):
    """One record, one lever, whatever the number of its priorities."""
    submit("bob", 1, "--time=600")
    short = submit("alice", 1, "--time=5", "--partition=gpu,short")
    before = nices()
    assert written(closed) > 0
    assert first() == short
    settled(closed)
    undone(closed, before)


@pytest.fixture
def scrontab(closed: Installed, tmp_path: Path) -> Iterator[int]:
    """The id of a waiting job of alice's scrontab."""
    table = tmp_path / "table"
    table.write_text("#SCRON --gpus=1\n#SCRON --time=5\n0 5 1 1 * /bin/true\n")
    for path in (table, *table.parents):
        path.chmod(path.stat().st_mode | 0o055)
    run("labctl", "conf", "ScronParameters", "enable")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    partition("DOWN")
    run("scrontab", str(table), user="alice")
    yield next(iter(nices()))
    run("scrontab", "-r", user="alice", check=False)


def test_scrontab_job__is_left_alone(closed, scrontab):
    """Slurm refuses every change of it: none is planned, the others are written. A comment makes nobody's job one."""
    submit("bob", 1, "--time=600")
    liars = [submit("dave", 1, "--time=30", "--begin=now+3600", f"--comment={text}")
             for text in ("CronJob=Yes", " CronJob=Yes CrontabSpec=* ", "x\nJobId=1 CronJob=Yes ")]  # fmt: skip
    medium = submit("carol", 1, "--time=60")
    assert written(closed) > 0
    assert left_alone(closed) == {scrontab: "cron"}
    assert (nices()[scrontab], nices()[medium] != 0) == (0, True)
    assert [nices()[liar] != 0 for liar in liars] == [True] * 3
    settled(closed)


def test_plan__of_dumps_of_this_slurm(closed):
    """squeue's and scontrol's own files, read with Slurm's commands out of reach, say what the live cluster says."""
    jobs = [submit("alice", 1, f"--time={minutes}") for minutes in (50, 5, 20)]
    queue, fleet = closed.folder / "queue.json", closed.folder / "nodes.json"
    queue.write_text(run("squeue", "--json", "-t", "pending").out)
    fleet.write_text(run("scontrol", "show", "node", "--json").out)
    closed.configure(slurm__bin_dir='"/nowhere"')
    files = ("--jobs-file", str(queue), "--nodes-file", str(fleet))
    told = run(BINARY, "--config", str(closed.file), "plan", "--json", *files, user="bob").json()
    assert (told["cluster"], told["jobs"], told["managed"]) == ("lab", 3, 3)
    wanted = {row["job_id"]: row["lever_wanted"] for row in told["changes"]}
    assert wanted.get(jobs[1], 0) < wanted.get(jobs[2], 0)
    assert any(warning.startswith("read from a file") for warning in told["warnings"])
