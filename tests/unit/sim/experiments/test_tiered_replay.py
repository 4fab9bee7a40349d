"""Tiers in a replay on the model of slurmctld: the same planner, by the model's own QOS and fair share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model.columns import Labels
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession

SITE = """
[[nodes]]
count = 1
gpus = 1
[[partitions]]
name = "gpu"
billing = "GRES/gpu=1"
[[qos]]
name = "normal"
[[qos]]
name = "high"
priority = 100
[[accounts]]
name = "a"
[[accounts]]
name = "a"
user = "debtor"
usage = 1e9
[[accounts]]
name = "a"
user = "saver"
[slurm]
PriorityWeightFairShare = 1000
PriorityWeightQOS = 1000
PriorityDecayHalfLife = "7-0"
"""
LIMITS_S = (600.0, 300.0, 900.0, 200.0, 400.0)  # of the jobs that wait for the first one to end


def started(folder: Path, tiers: tuple[str, ...], policy: str, **labels: list[str]) -> list[int]:
    """Job ids in the order in which they start; job 1 keeps the only GPU until all others have come."""
    (folder / "site.toml").write_text(SITE)
    count = len(LIMITS_S) + 1
    trace = Trace.of(range(1, count + 1), [1] * count, range(count), [300.0, *LIMITS_S], [300.0, *LIMITS_S])
    columns = {name: Labels.of([values[0], *values]) for name, values in labels.items()}
    trace = trace.with_columns(account=Labels.constant("a", count), **columns)
    request = ReplayRequest(cluster=str(folder / "site.toml"), model="slurm", policy=policy, requeue=False, tiers=tiers)
    done = ReplaySession(trace, request).run().outcomes
    return done.job_id[np.argsort(done.first_start_s)].tolist()[1:]


@pytest.mark.parametrize(
    ("tiers", "expected"), [((), [5, 3, 6, 2, 4]), (("qos",), [5, 2, 4, 3, 6]), (("priority:500",), [5, 2, 4, 3, 6])]
)
def test_replay__orders_by_tier_and_then_by_policy(tmp_path, tiers, expected):
    """Shortest first within a QOS; without tiers over both."""
    qos = ["high", "normal", "high", "high", "normal"]
    assert started(tmp_path, tiers, "sjf", qos=qos, user=["saver"] * 5) == expected


@pytest.mark.parametrize("policy", ["sjf", "smallest", "fifo", "las", "srsf"])
def test_replay__a_debtor_of_fair_share_does_not_overtake(tmp_path, policy):
    """Whatever the policy: who used its share waits behind who did not."""
    user = ["saver", "debtor", "saver", "debtor", "saver"]
    order = started(tmp_path, ("fair_share:4",), policy, user=user, qos=["normal"] * 5)
    assert {2, 4, 6} == set(order[:3])


@pytest.mark.parametrize("words", [{"tiers": ("qos",)}, {"age_cap_s": 60.0}])
def test_replay__the_ideal_cluster_has_none(words):
    """It is told who holds what; there is no priority to order by."""
    with pytest.raises(ConfigError, match="--model slurm"):
        ReplaySession(Trace.of([1], [1], [0], [1]), ReplayRequest(cluster="1x1", policy="fifo", **words))


def test_replay__refuses_a_tier_that_is_none():
    """With the key of the option."""
    with pytest.raises(ConfigError, match="'qso' is no tier, did you mean qos") as error:
        ReplaySession(
            Trace.of([1], [1], [0], [1]), ReplayRequest(cluster="1x1", model="slurm", policy="fifo", tiers=("qso",))
        )
    assert error.value.key == "tiers"
