"""`init --history`: the site's own jobs and cluster, read and replayed, and what they speak for."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from slurmsched.config_file import parse_config
from slurmsched.config_text import first_config
from slurmsched.errors import InputError, SlurmError
from slurmsched.model import Labels
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.observe.fairness import JobTenants
from slurmsched.sim.experiments import site_history
from slurmsched.sim.experiments.site_history import (
    GroupLoss,
    HistoryProposal,
    PolicyVerdict,
    policy_verdict,
    propose,
    proposed_policy,
    pull_days,
    site_folder,
    startable_now,
    verdict_rows,
)
from slurmsched.slurm.site import DiscoveredSite, GpuPartition

CONF = """ClusterName=lab
include nodes.conf
PartitionName=gpu Nodes=n[1-2] Default=YES
"""
NODES = "NodeName=n[1-2] CPUs=8 Gres=gpu:4 RealMemory=1000\n"


def jobs(count: int) -> Trace:
    """Long and short jobs in turns, all at once."""
    limits = [7_200.0 if number % 2 else 600.0 for number in range(count)]
    return Trace.of(range(1, count + 1), [4] * count, range(count), limits, limits, user=["ann", "bob"] * (count // 2))


class Answers:
    """Commands of a Slurm without slurmdbd, but for its QOS."""

    def run(self, *command: str) -> str:
        if command[-1] != "qos":
            raise SlurmError("there is no slurmdbd")
        return "Name|Priority\nnormal|0\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "slurm.conf").write_text(CONF)
    (tmp_path / "etc" / "nodes.conf").write_text(NODES)
    return tmp_path / "etc" / "slurm.conf"


def test_site_folder__is_a_cluster_to_replay_on(conf: Path, tmp_path: Path) -> None:
    """slurm.conf with what it includes, and what Slurm's commands say of limits; what they do not say is left out."""
    folder = site_folder(Answers(), conf, tmp_path / "site")
    assert sorted(path.name for path in folder.iterdir()) == ["nodes.conf", "qos.txt", "slurm.conf"]
    assert len(startable_now(jobs(4), str(folder))[0]) == 4


def test_site_folder__needs_slurm_conf(tmp_path: Path) -> None:
    """Named in the error."""
    with pytest.raises(InputError, match="cannot be read") as error:
        site_folder(Answers(), tmp_path / "none" / "slurm.conf", tmp_path / "site")
    assert error.value.source.endswith("none/slurm.conf")


def test_fitting__leaves_out_what_the_cluster_cannot_start(conf: Path, tmp_path: Path) -> None:
    """Jobs of a partition that is gone, or of more GPUs than there are; said with their number."""
    folder = str(site_folder(Answers(), conf, tmp_path / "site"))
    trace = jobs(4).with_columns(partition=Labels.of(["gpu", "old", "", "gpu"]), gpus=np.array([4, 4, 4, 64]))
    fits, told = startable_now(trace, folder)
    assert fits.job_id.tolist() == [1, 3]
    assert told == ("2 jobs left out: their partition or their GPUs are not there any more",)
    with pytest.raises(InputError, match="no job of the history fits"):
        startable_now(trace.with_columns(gpus=np.full(4, 64)), folder)


def test_pull_days__asks_for_whole_days_and_needs_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From so many days ago until today; a handful of jobs says nothing."""
    asked: list[tuple[object, object]] = []

    class Archive:
        def __init__(self, commands: object, folder: Path, since: object, until: object) -> None:
            asked.append((since, until))

        def run(self) -> list[object]:
            return []

        def trace(self) -> RecordedTrace:
            return RecordedTrace(trace, "sacct", warnings=("one row cannot be read",))

    monkeypatch.setattr(site_history, "AccountingArchive", Archive)
    today, trace = datetime.now(UTC).date(), jobs(60)
    pulled, told = pull_days(Answers(), 7, tmp_path)
    assert (len(pulled), told, asked) == (60, ("one row cannot be read",), [(today - timedelta(days=7), today)])
    trace = jobs(10)
    with pytest.raises(InputError, match="10 GPU jobs of the last 7 days"):
        pull_days(Answers(), 7, tmp_path)


def test_propose__finds_that_short_jobs_first_helps(conf: Path, tmp_path: Path) -> None:
    """All policies against Slurm alone; preemption in a row of its own."""
    folder = str(site_folder(Answers(), conf, tmp_path / "site"))
    made = propose(jobs(16), folder, (), 7, 1, candidates=("sjf", "discretized-las"))
    sjf, las = made.rows
    assert (sjf.policy, las.policy, made.preempting.policy) == ("sjf", "discretized-las", "discretized-las +preempt")
    assert sjf.mean_wait < 0.8
    assert las.same
    assert made.slurm_wait_h > 0
    assert made.notes == (
        "Assumed: model slurmctld; preemption: a job keeps all its work and restarts in 30 s; time limits as recorded; "
        "all jobs count.",
    )  # fmt: skip


def test_propose__says_how_far_to_trust_a_history(conf: Path, tmp_path: Path) -> None:
    """Recorded starts: a back-test, and the edges of the window do not count."""
    folder, trace = str(site_folder(Answers(), conf, tmp_path / "site")), jobs(16)
    recorded = trace.with_columns(start_s=np.floor(trace.submit_s / 4) * 2_000.0 + 60)
    trust, assumed = propose(recorded, folder, (), 7, 1, candidates=("sjf",)).notes
    assert trust.startswith("Trust: ") and "of the pairs start in the recorded order" in trust
    assert assumed.startswith("Assumed: model slurmctld; ") and "are left out" in assumed


SJF = PolicyVerdict(
    "response-ratio:gpus_power=0.33",
    0.7,
    0.8,
    1.1,
    2.8,
    GroupLoss("bob", 0.4, 1.1),
    GroupLoss("1 GPU", -1.0, 0.8),
    False,
)
PREEMPT = replace(SJF, policy="discretized-las +preempt", mean_wait=0.4)
SITE = DiscoveredSite("26.05.5", "lab", "slurm", True, True, (GpuPartition("gpu", 4, 32),))


def test_first_config__writes_what_the_history_speaks_for() -> None:
    """Policy and parameters; the table and who loses as comments; preemption stays off."""
    text = first_config(
        SITE, ("gpu",), proposal=HistoryProposal(SJF, (SJF,), PREEMPT, 4.0, 30, 1_000, ("3 jobs left out",))
    )
    config = parse_config(tomllib.loads(text))
    assert (config.policy.name, config.policy.parameters) == ("response-ratio", {"gpus_power": 0.33})
    assert config.preemption.enabled is False
    for line in ("# 1,000 jobs of the last 30 days",
                 "# Who loses most by it: bob +0.4 h (1.10x); 1 GPU -1.0 h (0.80x).",
                 "# Preemption: would save more (0.40x of Slurm's mean wait)", "# 3 jobs left out"):  # fmt: skip
        assert line in text


def test_first_config__says_that_no_policy_helps() -> None:
    """fifo within the tiers changes least."""
    text = first_config(
        SITE, ("gpu",), proposal=HistoryProposal(None, (), replace(PREEMPT, mean_wait=0.99), 4.0, 30, 1_000)
    )
    assert parse_config(tomllib.loads(text)).policy.name == "fifo"
    assert "# No policy saves 5% of the mean wait without a clear loss for a user or a size of job" in text
    assert "# Preemption: is not worth it" in text


def test_first_config__without_history_says_what_was_not_checked() -> None:
    """And which command checks it; or why it could not."""
    assert "# Not checked on the jobs of this site: `slurmsched init --history 30`" in first_config(SITE, ("gpu",))
    assert "# Not checked: away" in first_config(SITE, ("gpu",), unchecked="Not checked: away")


# A policy judged against Slurm alone: who loses by it, and which one is proposed.


HOUR_S = 3_600.0
JOBS = 20
TRACE = Trace.of(
    range(1, JOBS + 1), [1] * 10 + [8] * 10, np.zeros(JOBS), np.full(JOBS, HOUR_S), user=["ann", "bob"] * 10
)


def outcomes(wait_h):
    """Every job runs for an hour after this wait [h]."""
    wait_s = np.broadcast_to(np.asarray(wait_h, float), JOBS) * HOUR_S
    zeros = np.zeros(JOBS)
    return JobOutcomes(
        TRACE.job_id, TRACE.gpus, zeros, wait_s, wait_s + HOUR_S, np.full(JOBS, HOUR_S), np.full(JOBS, HOUR_S),
        np.zeros(JOBS, np.int64), 16,
    )  # fmt: skip


def verdict(wait_h, slurm_h=4.0) -> PolicyVerdict:
    return policy_verdict("new", TRACE, JobTenants.find(TRACE), outcomes(wait_h), outcomes(slurm_h))


def test_judged__gives_waits_over_slurms():
    """Mean and p95 wait, and p99 of the JCT, which has the hour of the run in it."""
    found = verdict(2.0)
    assert (found.mean_wait, found.p95_wait, found.p99_jct, found.mean_wait_h) == (0.5, 0.5, 0.6, 2.0)
    assert (found.same, found.harmless) == (False, True)


def test_judged__names_user_and_size_that_lose_most():
    """By their own mean wait before."""
    small_wait_less = np.where(TRACE.gpus == 1, 1.0, 9.0)
    found = verdict(small_wait_less)
    assert found.size == GroupLoss("5-8 GPUs", 5.0, 2.25)
    by_user = verdict(np.where(TRACE.user.codes == 0, 2.0, 5.5))
    assert by_user.user == GroupLoss("bob", 1.5, 1.375)
    assert not found.harmless
    assert not by_user.harmless


@pytest.mark.parametrize(
    ("bob_h", "clear"), [(4.9, False), (5.1, True), (4.0, False)], ids=["under an hour", "both", "none"]
)
def test_loss__is_clear_beyond_an_hour_and_a_quarter(bob_h, clear):
    """Both: an hour of a wait of a week is none, nor is twice a wait of a minute."""
    assert verdict(np.where(TRACE.user.codes == 0, 4.0, bob_h)).user.clear is clear
    assert GroupLoss("x", 2.0, 1.2).clear is False


def test_judged__says_when_nothing_changes():
    """To the second."""
    assert verdict(4.0).same


def row(policy, mean_wait, *, harm=False, same=False):
    loss = GroupLoss("bob", 9.0, 2.0) if harm else GroupLoss("bob", 0.5, 1.1)
    return PolicyVerdict(policy, mean_wait, 1.0, 1.0, 1.0, loss, GroupLoss(), same)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("a", 0.8), row("b", 0.6)], "b"),
        ([row("a", 0.8), row("b", 0.6, harm=True)], "a"),
        ([row("a", 0.97)], None),
        ([row("a", 1.0, same=True)], None),
        ([], None),
    ],
    ids=["least wait", "nobody clearly loses", "worth a change", "changes something", "nothing tried"],
)
def test_choose__takes_the_least_wait_that_harms_nobody(rows, expected):
    """None where no policy helps."""
    found = proposed_policy(rows)
    assert (found and found.policy) == expected


def test_table__puts_slurm_first_and_says_who_loses():
    """A policy that changes nothing is said to be the same."""
    rows = list(verdict_rows([row("a", 0.8), row("b", 1.0, same=True)], 4.0))
    assert rows[0][:3] == ("slurm", "4.00", "1.00x")
    assert rows[1][-2:] == ("bob +0.5 h (1.10x)", "nobody")
    assert rows[2][2:5] == ("same", "same", "same")
