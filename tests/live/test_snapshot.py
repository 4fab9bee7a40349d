"""A snapshot of this Slurm: saved, and planned from where there is no Slurm, it gives the live cycle's own plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.lab import BINARY, Done, Installed, nices, partition, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]


def busy(site: Installed) -> list[int]:
    """Jobs of many kinds that wait, some with service behind them, in an order that the policy does not want."""
    ran = submit("bob", 8, "--time=600", "--comment=for bob slurmsched: dur=3h")
    array = submit("alice", 2, "--array=0-3%2", "--nice=3", "--time=50")
    parts = ["--gpus-per-node=1", "--mem=1G", "--time=5"]
    until(lambda: "RUNNING" in run("squeue", "-h", "-j", str(ran), "-o", "%T").out, "the first one runs")
    partition("DOWN")
    site.tick()
    run("scontrol", "requeue", str(ran))
    until(lambda: ran in nices(), "it waits again")
    run("sbatch", "--parsable", "--output=/dev/null", *parts, "--wrap=true", ":", *parts, user="carol")
    return [ran, array, *(submit("carol", 1, f"--time={minutes}") for minutes in (50, 5, 20))]


def elsewhere(*arguments: str) -> Done:
    """As a user whom Slurm does not know, without Slurm's commands, configuration or ledger."""
    run_here = ["env", "-i", "PATH=/nowhere", "SLURM_CONF=/nowhere", "NUMBA_DISABLE_JIT=1", "HOME=/tmp"]
    return run(*run_here, BINARY, "snapshot", "run", *arguments, user="eve")


def wanted(told: dict) -> dict[int, int]:
    return {row["job_id"]: row["lever_wanted"] for row in told["changes"]}


def test_snapshot__gives_the_plan_of_the_live_cycle(site: Installed, tmp_path: Path) -> None:
    """The same digest and changes elsewhere; the next applied cycle writes these; anonymised too.

    Between the two a job's age may have grown by a point of priority (PriorityWeightAge); its nice moves by that.
    """
    site.configure(policy='{ name = "srsf" }')
    jobs = busy(site)
    files = [str(site.folder / name) for name in ("plain.snapshot", "hidden.snapshot")]
    told = site("snapshot", "save", files[0], "--json").json()
    site("snapshot", "save", files[1], "--anonymise", "--json")
    run("chmod", "-R", "a+rX", str(site.folder))
    plain, other = (elsewhere(file, "--json", "--limit", "0").json() for file in files)
    assert (plain["digest"], plain["same_plan"], other["same_plan"]) == (told["digest"], True, True)
    assert wanted(plain) == wanted(other) != {}
    assert (plain["jobs"], plain["cluster"]) == (told["jobs"], "lab")
    site.tick()
    written = nices()
    assert {job: nice for job, nice in wanted(plain).items() if abs(written[job] - nice) > 1} == {}
    text = elsewhere(files[1], "--limit", "0").out
    assert [name for name in ("alice", "bob", "carol", "physics", "biology") if name in text] == []
    assert text.rstrip().endswith("the plan is that of the cycle when it was saved")
    assert set(jobs) & set(wanted(plain))


def test_snapshot__other_policies_are_tried_offline(site: Installed) -> None:
    """--policy gives another order of the same queue, and says so."""
    busy(site)
    file = str(site.folder / "s.snapshot")
    site("snapshot", "save", file)
    run("chmod", "-R", "a+rX", str(site.folder))
    las, srsf = (elsewhere(file, "--json", "--policy", name).json() for name in ("las", "srsf"))
    assert wanted(las) != wanted(srsf)
    assert (srsf["same_plan"], srsf["changes"][0]["reason"].partition(":")[0]) == (False, "srsf")


def test_snapshot__of_a_slurm_that_is_away(site: Installed) -> None:
    """Exit code 3; no file is left."""
    run("labctl", "stop", "slurmctld")
    done = site("snapshot", "save", str(site.folder / "s.snapshot"), check=False)
    assert (done.rc, (site.folder / "s.snapshot").exists()) == (3, False)
