"""The main job on a real Slurm: queue levels decide who starts, writes are few, undo gives everything back."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.live.lab import USERS, Installed, column, nices, partition, run, start_order, submit, until

pytestmark = pytest.mark.live

# Jobs run for long, to be requeued; once this file is there they end soon, so that the test does.
SHORT = Path("/var/lib/slurmsched-test/short")
RUNS_AGAIN = f"if [ -e {SHORT} ]; then sleep 2; else sleep 600; fi"


def requeued_jobs(site: Installed) -> list[int]:
    """24 jobs of four users that ran to different service and were requeued, on a closed partition."""
    sizes = [8, 4, 4, 2, 2, 2, 1, 1, 8, 1, 4, 2, 2, 1, 1, 4, 1, 2, 1, 1, 2, 1, 1, 1]
    users = itertools.cycle(USERS)
    jobs = [submit(next(users), gpus, script=RUNS_AGAIN, name=f"old{gpus}") for gpus in sizes]
    until(lambda: len(column("%T", "RUNNING")) >= 9, "the first jobs run")
    until(lambda: max_service() > 220, "some job passes the second threshold")
    site.tick()  # sees them run
    partition("DOWN")
    for job in column("%T", "RUNNING"):
        run("scontrol", "requeue", "incomplete", str(job))
    until(lambda: set(column("%T", "PENDING")) >= set(jobs), "all are pending again")
    return jobs


def max_service() -> int:
    """Most GPU seconds of a running job."""
    ages = column("%M", "RUNNING")
    sizes = {job: int(name.removeprefix("old")) for job, name in column("%j", "RUNNING").items()}
    return max((sizes[job] * seconds(age) for job, age in ages.items() if job in sizes), default=0)


def seconds(clock: str) -> int:
    minutes, _, rest = clock.rpartition(":")
    return int(minutes.rpartition(":")[2] or 0) * 60 + int(rest)


def test_discretized_las__slurm_starts_jobs_by_queue_level(site):
    """Of 60 mixed jobs of four users those with less attained service start first; undo restores every nice."""
    site.cold = True  # as cron starts it
    old = requeued_jobs(site)
    draw = random.Random(1)
    new = [submit(draw.choice(USERS), draw.choice([1, 1, 2, 2, 4, 8]), script="sleep 2", name="new") for _ in range(36)]
    site.tick()
    levels = {row["job_id"]: row["queue"] for row in site("queue", "--json").json()["jobs"]}
    assert {levels[job] for job in new} == {0}
    assert {levels[job] for job in old} >= {1, 2}
    assert site.tick()["planned"] == 0, "a second cycle with nothing changed writes nothing"

    SHORT.touch()
    partition("UP")
    until(lambda: not column("%T", "PENDING", "RUNNING", "COMPLETING"), "all jobs ran")
    started = [levels[job] for job in start_order([*old, *new])]
    pairs = [(a, b) for a, b in itertools.combinations(started, 2) if a != b]
    inversions = sum(a > b for a, b in pairs) / len(pairs)
    assert inversions < 0.1, f"{inversions:.0%} of pairs against the queue levels: {started}"


def test_undo__restores_every_nice_and_slurm_goes_on(site):
    """What users chose comes back, also with the ledger lost; with slurmsched gone Slurm goes on undisturbed."""
    partition("DOWN")
    jobs = [submit(user, 2, f"--nice={10 * i}", script="sleep 1") for i, user in enumerate(USERS * 3)]
    before = nices()
    site.configure(policy='{ name = "srsf" }')
    for job, limit in zip(jobs, range(60, 0, -5), strict=True):
        run("scontrol", "update", f"jobid={job}", f"timelimit={limit}")
    assert site.tick()["written"] > 0
    assert nices() != before
    (site.folder / "ledger.db").unlink()
    shown = site("undo", "--json").json()
    assert len(shown["restore"]) > 0
    assert nices() != before, "without --apply nothing is written"
    site("undo", "--apply", "--yes")
    assert nices() == before
    partition("UP")
    until(lambda: not column("%T", "PENDING", "RUNNING", "COMPLETING"), "all jobs ran")


def test_tick__one_job_over_a_threshold_is_written_alone(site):
    """Only the place of the job whose level changed is written."""
    over, under = submit("alice", 4, script=RUNS_AGAIN, name="old4"), submit("bob", 1, script=RUNS_AGAIN, name="old1")
    until(lambda: len(column("%T", "RUNNING")) == 2, "both run")
    partition("DOWN")
    others = [submit(user, 2) for user in USERS * 2]
    until(lambda: max_service() > 40, "the larger one passes the first threshold")
    run("scontrol", "requeue", "incomplete", str(under))
    until(lambda: under in column("%T", "PENDING"), "the smaller one waits again")
    site.tick()
    assert site.tick()["planned"] == 0
    run("scontrol", "requeue", "incomplete", str(over))
    until(lambda: over in column("%T", "PENDING"), "the larger one waits again")
    before = nices()
    site.tick()
    changed = {job for job, nice in nices().items() if before.get(job) != nice}
    assert changed <= {over}
    rank = {row["job_id"]: row["rank"] for row in site("queue", "--json").json()["jobs"]}
    assert rank[over] > max(rank[job] for job in others)


@pytest.mark.parametrize("lever", ["nice", "site_factor"])
def test_tick__both_levers_give_slurm_the_order(site, lever):
    """Shortest expected service first, by nice or by site factor; the user's nice survives the latter untouched."""
    site.configure(policy='{ name = "srsf" }', lever__kind=f'"{lever}"')
    partition("DOWN")
    jobs = [submit("alice", 1, f"--time={limit}", f"--nice={limit % 7}") for limit in (50, 10, 40, 20, 30)]
    own = nices()
    site.tick()
    assert site.tick()["planned"] == 0
    priority = {job: int(value) for job, value in column("%Q", "PENDING").items()}
    assert sorted(jobs, key=lambda job: -priority[job]) == [jobs[i] for i in (1, 3, 4, 2, 0)]
    assert (nices() == own) == (lever == "site_factor")
    site("undo", "--apply", "--yes")
    assert nices() == own


def test_dry_run__is_the_default_and_touches_nothing(site):
    """Without --apply and mode = "apply" no job is written, and the journal stays empty."""
    site.configure(policy='{ name = "srsf" }')
    partition("DOWN")
    for limit in (50, 10, 40):
        submit("alice", 1, f"--time={limit}")
    before = nices()
    assert site("tick", "--json").json()["dry_run"] is True
    assert site("plan", "--json").json()["changes"]
    assert nices() == before
    assert site.journalled() == {}
