"""The slurmctld model's fair share and limits against a real Slurm: `sshare`, `sprio` and the reasons of `squeue`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterLayout, NodeSpec, PartitionSpec
from slurmsched.sim.cluster_slurm_conf import MADE_BY, read_accounts
from slurmsched.sim.event_loop import replay
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings
from slurmsched.slurm.site import parse_settings
from tests.live.lab import column, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
WHO = (("alice", "fsa"), ("bob", "fsa1"), ("carol", "fsb"), ("dave", "fsb"))
TREE = (
    ("account", "fsa", "share=3", "parent=root"), ("account", "fsa1", "share=2", "parent=fsa"),
    ("account", "fsb", "share=1", "parent=root"), ("user", "alice", "account=fsa", "share=1"),
    ("user", "bob", "account=fsa1", "share=1"), ("user", "carol", "account=fsb", "share=2"),
    ("user", "dave", "account=fsb", "share=parent"),
)  # fmt: skip
CONF = (("PriorityWeightFairShare", "100000"), ("PriorityDecayHalfLife", "10"), ("PriorityCalcPeriod", "0:02"))
SACCTMGR = ("sacctmgr", "-iQ")
LAYOUT = ClusterLayout(tuple(NodeSpec(f"n{n}", 8, 64, 512_000.0) for n in range(1, 5)),
                (PartitionSpec("gpu"), PartitionSpec("short", max_time_s=3_600.0)))  # fmt: skip


@pytest.fixture
def accounts(fresh: None) -> Iterator[None]:
    """A tree of accounts without usage, and a GPU that costs a hundred times a CPU."""
    remove()
    for key, value in CONF:
        run("labctl", "conf", key, value)
    for kind, name, *values in TREE:
        run(*SACCTMGR, "add", kind, name, *values, check=False)
    run(*SACCTMGR, "modify", "account", "root", "set", "RawUsage=0", "where", "cluster=lab")
    restart()
    yield
    for account in ("fsa1", "fsa", "fsb"):
        run("scancel", "--quiet", f"--account={account}")
    until(lambda: not run("squeue", "-h", "--account=fsa,fsa1,fsb").out, "their jobs have gone")
    remove()


def remove() -> None:
    """Take the accounts out again; what has jobs stays."""
    for account in ("fsa1", "fsa", "fsb"):
        run(*SACCTMGR, "delete", "account", account, check=False)


def restart() -> None:
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    run("scontrol", "update", "partitionname=gpu", "TRESBillingWeights=CPU=1.0,GRES/gpu=100")


def model_of(folder: Path, rows: list[tuple[str, str, int, float, str]]) -> SimulatedSlurmctld:
    """The model of this Slurm by its own commands; rows: user, account, GPUs, minutes, partition of jobs of 9 s."""
    for name in ("assoc.txt", "sshare.txt"):
        (folder / name).write_text(run(*MADE_BY[name].split()).out)
    layout = ClusterLayout(LAYOUT.nodes, LAYOUT.partitions, accounts=read_accounts(folder))
    user, account, gpus, minutes, partition = zip(*rows, strict=True)
    trace = Trace.of(range(1, len(rows) + 1), gpus, range(len(rows)), [9.0] * len(rows), 60 * np.array(minutes))
    asked = SubmittedRequests.build(len(rows), {"user": user, "account": account, "partition": partition})
    return SimulatedSlurmctld(trace, layout, SlurmctldSettings.from_settings(settings()), requests=asked)


def settings() -> dict[str, str]:
    return dict(parse_settings(run("scontrol", "show", "config").out))


def shown() -> dict[tuple[str, str], float]:
    """Fair share of each user in an account, as sshare has it."""
    rows = (line.split("|") for line in run("sshare", "-ahnP", "-o", "Account,User,FairShare").out.splitlines())
    return {(user, account.strip()): float(factor or "nan") for account, user, factor in rows if user}


def test_fair_share__is_slurms_own(accounts: None, tmp_path: Path) -> None:
    """Factors of sshare and points of sprio by Fair Tree and by the classic algorithm, after jobs of different size."""
    used = [submit(user, gpus, f"--account={account}", script="sleep 3")
            for (user, account), gpus in zip(WHO[:3], (4, 1, 2), strict=True)]  # fmt: skip
    waiting = [submit(user, 1, f"--account={account}", "--partition=phantom") for user, account in WHO]
    until(lambda: not set(used) & set(column("%i", "PENDING", "RUNNING", "COMPLETING")), "the jobs have ended")
    for flags, tolerance in (("", 1e-5), ("NO_FAIR_TREE", 5e-3)):
        if flags:
            run("labctl", "conf", "PriorityFlags", flags)
            restart()
        expected: dict[tuple[str, str], float] = {}

        def agrees(tolerance: float = tolerance, expected: dict[tuple[str, str], float] = expected) -> bool:
            made = model_of(tmp_path, [(user, account, 1, 60, "gpu") for user, account in WHO])
            expected |= dict(zip(WHO, made.fair_share.factors[made.fair_share.tree.of_job].tolist(), strict=True))
            real = shown()
            return all(abs(real[who] - factor) <= tolerance for who, factor in expected.items())

        until(agrees, f"sshare has the factors {expected}", pause_s=1)
        assert len(set(expected.values())) >= 3, "the jobs made no difference"
        until(lambda expected=expected: all(
            abs(points - 100_000 * expected[who]) <= 2 * 100_000 * 5e-3
            for who, points in zip(WHO, of_sprio(waiting), strict=True)
        ), f"sprio has the points of {expected}", pause_s=1)  # fmt: skip


def of_sprio(jobs: list[int]) -> list[float]:
    """FAIRSHARE of these jobs."""
    rows = dict(line.split() for line in run("sprio", "-h", "-o", "%i %F").out.splitlines())
    return [float(rows.get(str(job), "nan")) for job in jobs]


def test_limits__hold_back_whom_slurm_holds_back(accounts: None, tmp_path: Path) -> None:
    """GrpJobs of a parent, MaxTRES of an account, MaxTime of a partition, MaxSubmitJobs of a user."""
    run(*SACCTMGR, "modify", "account", "fsa", "set", "GrpJobs=1")
    run(*SACCTMGR, "modify", "account", "fsb", "set", "MaxTRES=gres/gpu=4")
    run(*SACCTMGR, "modify", "user", "carol", "set", "MaxSubmitJobs=1", "where", "account=fsb")
    rows = [("alice", "fsa", 1, 60, "gpu"), ("bob", "fsa1", 1, 60, "gpu"), ("dave", "fsb", 8, 60, "gpu"),
            ("dave", "fsb", 1, 120, "short"), *[("carol", "fsb", 1, 60, "gpu")] * 2]  # fmt: skip
    made = model_of(tmp_path, rows)
    made.advance(8.0)
    jobs = [submit(user, gpus, f"--account={account}", f"--time={minutes}", f"--partition={partition}")
            for user, account, gpus, minutes, partition in rows[:-1]]  # fmt: skip
    until(lambda: {jobs[0], jobs[4]} <= set(column("%r", "RUNNING")), "the first and the fifth run")
    until(lambda: all("Priority" not in why and why != "None" for why in column("%r", "PENDING").values()), "reasons")
    refused = run("sbatch", "--account=fsb", "--gpus=1", "--wrap=true", user="carol", check=False)
    assert "AssocMaxSubmitJobLimit" in refused.err
    running = set(column("%i", "RUNNING"))
    assert [job in running for job in jobs] == np.isfinite(made.job.first_start_s[:5]).tolist()
    reasons = column("%r", "PENDING")
    assert [reasons.get(job, "") for job in jobs[1:4]] == [
        "AssocGrpJobsLimit", f"Assoc{made.entry.why[2]}", made.entry.why[3],
    ]  # fmt: skip
    replay(made)
    assert made.job.refused.tolist() == [False, False, True, True, False, True]
