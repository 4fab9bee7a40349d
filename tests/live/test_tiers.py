"""Tiers on a real Slurm with the weights of a site: real jobs start by tier, then by policy; undo gives all back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import pytest

from tests.live.lab import Installed, column, nices, partition, run, start_order, submit, until

pytestmark = pytest.mark.live

WEIGHTS = (
    ("PriorityWeightFairShare", "10000"), ("PriorityWeightQOS", "20000"), ("PriorityWeightPartition", "5000"),
    ("PriorityWeightAge", "1000"), ("PriorityDecayHalfLife", "7-0"), ("PriorityCalcPeriod", "0:02"),
)  # fmt: skip
SACCTMGR = ("sacctmgr", "-iQ")
DEBTOR, SAVER = "alice", "carol"
WHOLE = ("--nodes=4", "--exclusive")  # the cluster, so that one job runs at a time
TIERS = 'tiers = ["qos", "partition", "fair_share:4"]'
FACTORS = {"gpu": 1, "short": 10}  # PriorityJobFactor


@dataclasses.dataclass(frozen=True)
class Asked:
    """A job to submit."""

    user: str
    qos: str
    partition: str
    gpus: int  # of each node
    minutes: int


# In the order of their submission. No policy's order is that of the tiers.
JOBS = (
    Asked(DEBTOR, "normal", "gpu", 1, 5), Asked(SAVER, "normal", "gpu", 4, 30), Asked(DEBTOR, "high", "gpu", 3, 40),
    Asked(SAVER, "normal", "gpu", 2, 10), Asked(SAVER, "high", "gpu", 2, 50), Asked(SAVER, "high", "gpu", 1, 20),
    Asked(DEBTOR, "normal", "short", 2, 30),
)  # fmt: skip
KEYS: dict[str, Callable[[Asked], float]] = {
    "fifo": lambda job: 0,
    "response-ratio": lambda job: job.minutes,  # they have waited for as long as each other
    "smallest": lambda job: job.gpus,
    "sjf": lambda job: job.minutes,
    "srsf": lambda job: job.gpus * job.minutes,
}


@pytest.fixture
def weighted(site: Installed) -> Iterator[Installed]:
    """A site with fair share, QOS and partition weights, and a user who has used more than its share."""
    for key, value in WEIGHTS:
        run("labctl", "conf", key, value)
    run(*SACCTMGR, "modify", "qos", "high", "set", "priority=100")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    run("scontrol", "update", "partitionname=gpu", "TRESBillingWeights=CPU=1.0,GRES/gpu=100")
    for name, factor in FACTORS.items():
        run("scontrol", "update", f"partitionname={name}", f"PriorityJobFactor={factor}")
    if not in_debt():  # it still is, after another test
        run(*SACCTMGR, "modify", "account", "root", "set", "RawUsage=0", "where", "cluster=lab")
        used = submit(DEBTOR, 32, "--exclusive", script="sleep 10")
        until(lambda: used not in column("%i", "PENDING", "RUNNING", "COMPLETING"), "the debtor has used the cluster")
        until(in_debt, "fair share tells them apart", pause_s=1)
    yield site


def in_debt() -> bool:
    """Whether the debtor is in a lower band than the saver."""
    known = factors()
    return math.ceil(4 * known.get(DEBTOR, 1.0)) < math.ceil(4 * known.get(SAVER, 0.0))


def factors() -> dict[str, float]:
    """Fair-share factor of each user, as sshare has it."""
    rows = (line.split("|") for line in run("sshare", "-anP", "-o", "Account,User,FairShare").out.splitlines())
    return {user: float(factor) for _, user, factor in rows if user and factor}


def submitted(jobs: tuple[Asked, ...] = JOBS) -> list[int]:
    """Ids of these jobs, which wait for the partition to open; each has a priority by all factors."""
    opened("DOWN")
    ids = [submit(job.user, job.gpus, *WHOLE, f"--qos={job.qos}", f"--partition={job.partition}",
                  f"--time={job.minutes}", script="sleep 1") for job in jobs]  # fmt: skip
    until(lambda: set(ids) <= set(priorities()), "sprio shows them all")
    return ids


def opened(state: str) -> None:
    """UP, or DOWN: jobs wait in both partitions."""
    for name in FACTORS:
        partition(state, name)


def started(ids: list[int]) -> list[int]:
    """Let them run, one after the other; in the order of their starts."""
    opened("UP")
    until(lambda: not set(ids) & set(column("%i", "PENDING", "RUNNING", "COMPLETING")), "all have run", limit_s=240)
    return start_order(ids)


def priorities() -> dict[int, int]:
    """Priority of every job that sprio shows."""
    rows = (line.split() for line in run("sprio", "-h", "-o", "%i %Y").out.splitlines())
    return {int(job): int(value) for job, value in rows}


def by_priority() -> list[int]:
    """Waiting jobs in the order in which Slurm would start them."""
    known = priorities()
    return sorted(known, key=lambda job: (-known[job], job))


def expected(ids: list[int], policy: str) -> list[int]:
    """QOS first, then the partition, then who has used less, then the policy, then submission."""

    def key(job: int) -> tuple[float, ...]:
        asked = JOBS[ids.index(job)]
        return (asked.qos != "high", -FACTORS[asked.partition], asked.user == DEBTOR, KEYS[policy](asked), job)

    return sorted(ids, key=key)


@pytest.mark.parametrize("policy", KEYS)
def test_tiers__real_jobs_start_by_tier_and_then_by_policy(weighted: Installed, policy: str) -> None:
    """Under each policy, in the order of their starts; nobody who used more than its share overtakes within a QOS."""
    weighted.configure(policy=f'{{ name = "{policy}", {TIERS} }}')
    ids = submitted()
    weighted.tick()
    until(lambda: by_priority() == expected(ids, policy), f"priorities are in the order of {policy}")
    assert weighted.tick()["planned"] == 0, "the order is there, and nothing is to be written"
    assert started(ids) == expected(ids, policy)


def test_tiers__without_them_a_debtor_overtakes(weighted: Installed) -> None:
    """What tiers are for: the shortest job first is the debtor's, and doctor names the weights that are lost."""
    weighted.configure(policy='{ name = "sjf" }')
    ids = submitted()
    weighted.tick()
    until(lambda: by_priority()[0] == ids[0], "the debtor's short job is first")
    found = weighted("doctor", "--json", check=False).json()["findings"]
    lost = [each["detail"] for each in found if each["name"] == "weights kept"]
    assert [text.partition("=")[0] for text in lost] == [
        "PriorityWeightQOS", "PriorityWeightFairShare", "PriorityWeightPartition", "PriorityWeightAge",
    ]  # fmt: skip


def test_tiers__undo_gives_slurms_own_order_back_exactly(weighted: Installed) -> None:
    """Every nice is what it was, and with it every priority but for age; jobs start as Slurm alone would start them."""
    weighted.configure(policy=f'{{ name = "sjf", {TIERS} }}')
    ids = submitted()
    run("scontrol", "update", f"jobid={ids[3]}", "nice=50")
    before, own = by_priority(), nices()
    assert weighted.tick()["planned"] > 0
    until(lambda: by_priority() != before, "the order is another one")
    weighted("undo", "--apply", "--yes")
    assert nices() == own
    until(lambda: by_priority() == before, "the order is Slurm's own again")
    assert started(ids) == before


def test_tiers__partition_and_priority_bands(weighted: Installed) -> None:
    """PriorityJobFactor goes before the policy; a band of Slurm's own priority keeps what all weights say."""
    opened("DOWN")
    options = {"gpu": "--time=5", "short": "--time=50"}
    ids = [submit(SAVER, 1, f"--partition={name}", option) for name, option in options.items()]
    until(lambda: set(ids) <= set(priorities()), "sprio shows both")
    weighted.configure(policy='{ name = "sjf" }')
    weighted.tick()
    until(lambda: by_priority() == ids, "without tiers the shorter one is first")
    weighted.configure(policy='{ name = "sjf", tiers = ["partition"] }')
    weighted.tick()
    until(lambda: by_priority() == ids[::-1], "the partition's factor goes before")
    weighted.configure(policy='{ name = "sjf", tiers = ["priority:2000"] }')
    weighted.tick()
    until(lambda: by_priority() == ids[::-1], "and so does a band of the priority that it makes")


def test_init__proposes_the_tiers_of_these_weights(weighted: Installed) -> None:
    """The largest first, and what is lost is named."""
    text = weighted("init", "--stdout").out
    assert 'tiers = ["qos", "fair_share:4", "partition"]' in text
    assert "# No longer counted: PriorityWeightAge=1000" in text
