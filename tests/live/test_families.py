"""One queue of a real Slurm under policies of every family: who starts first is whom the policy names, and all of them
carry out their order without an error; what a policy goes by is shown by `explain`."""

from __future__ import annotations

import time
from math import prod

import numpy as np
import orjson
import pytest

from slurmsched.daemon.ended_jobs import EndedRuns, KnownRuns, save_runs
from tests.live.lab import PYTHON, Installed, column, partition, run, submit, until
from tests.live.operations import restarts

pytestmark = [pytest.mark.live, pytest.mark.newest]
WHOLE = 32  # GPUs of the partition
DAY_S, USUAL_S = 86_400.0, 240.0
# A cycle of `slurmsched tick --apply` under every policy there is, in one process, and the order that Slurm then has.
EVERY = """
import json, subprocess, sys, tomllib
from slurmsched import registry
from slurmsched.config_file import parse_config
from slurmsched.cycle import run_cycle
from slurmsched.daemon.cycle_parts import open_cycle_parts

def order():
    listed = subprocess.run(["squeue", "-h", "-a", "-t", "PENDING", "-o", "%A|%Q"], capture_output=True, text=True)
    jobs = [tuple(map(int, line.split("|"))) for line in listed.stdout.split()]
    return [job for job, _ in sorted(jobs, key=lambda pair: (-pair[1], pair[0]))]  # of equals the earlier

def tick(tree):
    told = []
    with open_cycle_parts(parse_config(tree), apply=True) as parts:
        run_cycle(parts.cluster, parts.planner, parts.store, lambda *all: told.extend(all))
    snapshot, plan, receipt = told
    wanted = [int(snapshot.jobs.job_id[row]) for row in plan.ranking.order if snapshot.jobs.pending[row]]
    return {"planned": receipt.planned, "written": len(receipt.written), "stopped": receipt.stopped,
            "refused": [outcome.message for outcome in receipt.refused], "wanted": wanted, "order": order()}

tree = tomllib.load(open(sys.argv[1], "rb"))
print(json.dumps({name: tick(tree | {"policy": {"name": name}}) for name in registry.plugin_names("policies")}))
"""


def hinted(text: str) -> str:
    return f"--comment=slurmsched: {text}"


def waits_again(job: int) -> None:
    """A running job goes back to the queue, of which nobody starts for now."""
    partition("DOWN")
    run("scontrol", "requeue", str(job))
    until(lambda: restarts(job) == 1 and column("%T").get(job) == "PENDING", "it waits again")
    run("scontrol", "update", f"jobid={job}", "StartTime=now")


def first_to_start(site: Installed, policy: str) -> int:
    """The job that Slurm starts once the order of this policy is written; it is gone afterwards."""
    site.configure(policy=policy)
    assert site.tick()["refused"] == []
    partition("UP")
    until(lambda: column("%T", "RUNNING"), "a job runs")
    partition("DOWN")
    (job,) = column("%T", "RUNNING")
    run("scancel", str(job))
    until(lambda: job not in column("%T", "RUNNING", "COMPLETING"), "it is gone")
    return job


def test_families__each_starts_another_job_first(site: Installed) -> None:
    """Five jobs of the whole partition, of which the first has run before: by what the accounts have had, by deadline,
    by expected run time, by attained service; and the one that is left starts under a policy of rounds."""
    worked = submit("alice", WHOLE, hinted("dur=2h"))
    until(lambda: column("%T").get(worked) == "RUNNING", "the first job runs")
    fresh = submit("bob", WHOLE, hinted("dur=3h"))  # of the account that has GPUs, as the first
    other = submit("carol", WHOLE, hinted("dur=4h"))
    short = submit("bob", WHOLE, hinted("dur=5m"))
    urgent = submit("alice", WHOLE, hinted("dur=3h deadline=+4h"))
    site.configure(policy='{ name = "gandiva-fair" }')
    site.tick()  # from now on it counts what accounts hold
    time.sleep(3)
    site.tick()  # what the job has had is seen, however late slurmdbd tells of it
    waits_again(worked)
    assert first_to_start(site, '{ name = "gandiva-fair" }') == other
    assert first_to_start(site, '{ name = "chronus" }') == urgent
    assert first_to_start(site, '{ name = "lucid", estimator = "hint" }') == short
    assert first_to_start(site, '{ name = "discretized-las", thresholds_gpu_s = [8.0] }') == fresh
    assert first_to_start(site, '{ name = "gavel" }') == worked


def test_every_policy__writes_its_order(site: Installed) -> None:
    """Nothing is refused, no cycle ends early, and Slurm's own order of the waiting jobs is the policy's."""
    hints = ("dur=1h", "dur=10m deadline=+1h", "dur=30m min_gpus=1 max_gpus=4", "dur=2h progress=3/10 share=yes",
             "dur=20m model=resnet50 batch=64", "")  # fmt: skip
    submit("alice", 8, hinted("dur=1h progress=1/10"))
    until(lambda: column("%T", "RUNNING"), "a job runs")
    partition("DOWN")
    users = ("alice", "bob", "carol", "dave", "carol", "alice")
    jobs = [submit(user, gpus, *([hinted(hint)] if hint else []), "--time=180")
            for user, gpus, hint in zip(users, (8, 4, 2, 1, 2, 16), hints, strict=True)]  # fmt: skip
    until(lambda: len(column("%i", "PENDING")) == len(jobs), "all wait")
    script = site.folder / "every.py"
    script.write_text(EVERY)
    told = orjson.loads(run(PYTHON, str(script), str(site.file), user=site.user, timeout_s=600).out)
    assert len(told) >= 29
    for name, done in told.items():
        assert (done["refused"], done["stopped"], done["written"]) == ([], "", done["planned"]), name
        assert done["order"] == done["wanted"], name
        assert sorted(done["wanted"]) == jobs, name


def explained(site: Installed, job: int) -> dict:
    return site("explain", str(job), "--json").json()["explanation"]


def why(site: Installed, job: int) -> dict:
    return explained(site, job)["ahead"]["why"]


def order() -> list[int]:
    """Waiting jobs in Slurm's own order, of equal ones the earlier."""
    priority = {job: int(value) for job, value in column("%Q", "PENDING").items()}
    return sorted(priority, key=lambda job: (-priority[job], job))


def test_mlfs__explain_shows_both_parts_and_a_loss_told_later_moves_a_job(site: Installed) -> None:
    """Half done and a quarter of the fall in its last step: an eighth is left to learn. Once its last step took all of
    the fall, told by the comment of a waiting job, it passes the one that is due in an hour."""
    site.configure(policy='{ name = "mlfs", alpha = 0.9, estimator = "hint" }')
    partition("DOWN")
    half = submit("alice", 1, hinted("dur=2h progress=1/2 loss=5:2:1"))
    due = submit("bob", 1, hinted("dur=2h progress=1/2 loss=5:2:1 deadline=+1h"))
    silent = submit("carol", 1, hinted("dur=2h"))
    until(lambda: len(column("%i", "PENDING")) == 3, "all wait")
    told = [why(site, job) for job in (half, due, silent)]
    assert [each["learning"] for each in told] == [0.125, 0.125, 1.0]
    assert [round(each["pressed"], 1) for each in told] == [0.5, 1.5, 0.5]
    assert all(abs(each["priority"] - 0.9 * each["learning"] - 0.1 * each["pressed"]) < 1e-9 for each in told)
    site.tick()
    assert order() == [silent, due, half]
    run("scontrol", "update", f"jobid={half}", "comment=slurmsched: dur=2h progress=1/2 loss=5:5:1")
    site.tick()
    assert (why(site, half)["learning"], order()) == (0.5, [silent, half, due])


def test_lucid__explain_shows_the_factors_of_an_estimate(site: Installed) -> None:
    """Two users of whom one's jobs took ten times as long: the factors times the usual run time are what orders."""
    site.configure(policy='{ name = "lucid" }', past__days="3")
    taught(site, {"alice": 10 * USUAL_S, "bob": USUAL_S})
    partition("DOWN")
    slow, fast = (submit(user, 1, "--time=180", name="train") for user in ("alice", "bob"))
    until(lambda: len(column("%i", "PENDING")) == 2, "both wait")
    told = {job: explained(site, job) for job in (slow, fast)}
    made_s = {}
    for job, each in told.items():
        assert each["ahead"]["why"]["estimate_source"] == 0  # the additive model
        usual, *factors = each["expected"]
        assert any("mean of the user" in line for line in factors)
        usual_s, shown = seconds(usual.split("the usual ")[1][:8]), [float(line.split()[1]) for line in factors]
        least_s = usual_s * prod(each - 0.005 for each in shown)  # rounded for the eye: times down to minutes
        most_s = (usual_s + 60) * prod(each + 0.005 for each in shown)
        made_s[job] = each["ahead"]["why"]["run_s"]
        assert least_s <= made_s[job] <= most_s
    assert made_s[slow] > 4 * made_s[fast]
    site.tick()
    assert order() == [fast, slow]


def test_gavel__accounts_share_before_jobs(site: Installed) -> None:
    """Six jobs of one account came before two of another one: with accounts first those two are in the first round, and
    with all of its GPUs promised to the first account by weight they are not."""
    holds = submit("carol", WHOLE, hinted("dur=1h"))
    until(lambda: column("%T").get(holds) == "RUNNING", "nothing is free")
    many = [submit("alice", 8, hinted("dur=1h")) for _ in range(6)]
    few = [submit("dave", 8, hinted("dur=1h")) for _ in range(2)]
    until(lambda: len(column("%i", "PENDING")) == 8, "the others wait")
    site.configure(policy='{ name = "gavel", accounts = true }')
    site.tick()
    assert (set(few) <= set(order()[:4]), sorted(order())) == (True, many + few)
    assert why(site, few[0])["in_round"] == 1
    (site.folder / "ledger.db").unlink()  # with the round that it remembers
    site.configure(policy='{ name = "gavel", accounts = true, in_turn = ["*"], weights = ["account:physics=1000"] }')
    site.tick()
    assert order()[:4] == many[:4]


def test_themis__a_sweep_counts_once(site: Installed) -> None:
    """Six jobs of alice's sweep, one of carol twice as large: by jobs the sweep is worse off, by apps she is."""
    partition("DOWN")
    sweep = [submit("alice", 8, hinted("dur=1h"), name=f"lr_{n}") for n in range(6)]
    single = submit("carol", 16, hinted("dur=1h"), name="train")
    until(lambda: len(column("%i", "PENDING")) == 7, "all wait")
    for apps, first in (("job", sweep[0]), ("name", single)):
        site.configure(policy=f'{{ name = "themis", variant = "sort", apps = "{apps}" }}')
        site.tick()
        assert order()[0] == first
    assert why(site, sweep[0])["app"] == why(site, sweep[5])["app"] != why(site, single)["app"]


def taught(site: Installed, run_s: dict[str, float]) -> None:
    """The file of what ended here has 200 jobs of each user, by turns, of about so long; the last ended a day ago."""
    now_s, count = time.time(), 200 * len(run_s)
    users, chance = [*run_s] * 200, np.random.default_rng(1)
    submit_s = now_s - 2.5 * DAY_S + np.arange(count) * 300.0
    took_s = np.array([run_s[user] for user in users]) * chance.uniform(0.9, 1.1, count)
    runs = EndedRuns.build(count, {
        "job_id": np.arange(1, count + 1), "submit_s": submit_s, "start_s": submit_s, "end_s": submit_s + took_s,
        "duration_s": took_s, "nodes": [1] * count, "user": users, "account": ["physics"] * count,
        "name": ["train"] * count, "state": ["COMPLETED"] * count,
    })  # fmt: skip
    save_runs(site.folder / "past.npz", KnownRuns(now_s - 2.9 * DAY_S, now_s - 1.0, DAY_S, runs=runs))
    site.owned()


def seconds(clock: str) -> int:
    """Of HH:MM:SS."""
    hours, minutes, rest = map(int, clock.split(":"))
    return 3_600 * hours + 60 * minutes + rest
