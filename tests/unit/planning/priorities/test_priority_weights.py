"""Which weights of Slurm's priority stop counting, and the tiers that keep them."""

from __future__ import annotations

import pytest

from slurmsched.config import ScopeConfig
from slurmsched.model import Rights, Site
from slurmsched.planning.planner import Planner
from slurmsched.planning.priorities.priority_weights import lost_weights, proposed_tiers, slurm_weights, weight_notes
from slurmsched.policies.fifo import Fifo
from slurmsched.testing import snapshot
from slurmsched.tier_spec import read_tiers

SETTINGS = {
    "PriorityWeightAge": "1000", "PriorityWeightAssoc": "0", "PriorityWeightFairShare": "10000",
    "PriorityWeightJobSize": "0", "PriorityWeightPartition": "2000", "PriorityWeightQOS": "6000",
    "PriorityWeightTRES": "CPU=400,Mem=100,GRES/gpu=500", "PriorityType": "priority/multifactor",
}  # fmt: skip


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([], ["FairShare", "QOS", "Partition", "Age", "TRES"]),
        (["qos", "fair_share:4"], ["Partition", "Age", "TRES"]),
        (["partition", "qos", "fair_share:4"], ["Age", "TRES"]),
        (["priority:1000"], []),
    ],
)
def test_lost_weights__are_those_that_no_tier_keeps(tiers, expected):
    """priority:W keeps them all."""
    found = lost_weights(SETTINGS, read_tiers(tiers))
    assert [weight.name.removeprefix("PriorityWeight") for weight in found] == expected


def test_proposed_tiers__are_those_of_the_weights_by_their_size():
    """So that the factor that decides most in Slurm decides first; none where no weight is set."""
    assert proposed_tiers(SETTINGS) == ("fair_share:4", "qos", "partition")
    assert proposed_tiers({"PriorityWeightAge": "1000"}) == ()


def test_weight_notes__say_share_and_the_tier_that_helps():
    """One line each."""
    notes = weight_notes(SETTINGS, read_tiers(["qos", "partition"]))
    assert notes == (
        "PriorityWeightFairShare=10000 (50% of all weights) no longer counts: the policy's order replaces it; "
        '"fair_share:4" in policy.tiers keeps it',
        "PriorityWeightAge=1000 (5% of all weights) no longer counts: the policy's order replaces it",
        "PriorityWeightTRES=1000 (5% of all weights) no longer counts: the policy's order replaces it",
    )


@pytest.mark.parametrize(("partitions", "expected"), [((), 0), (("*",), 5)])
def test_planner__notes_name_them_where_jobs_are_managed(partitions, expected):
    """Not where the scope is empty: there nothing changes."""
    at = snapshot([{}], site=Site(rights=Rights.OPERATOR, settings=SETTINGS))
    notes = Planner(Fifo(), scope=ScopeConfig(partitions=partitions)).plan(at).notes
    assert sum("no longer counts" in note for note in notes) == expected


# The weights of Slurm's priority.


WEIGHTS = {
    "PriorityWeightAge": "1000", "PriorityWeightAssoc": "0", "PriorityWeightFairShare": "10000",
    "PriorityWeightPartition": "2000", "PriorityWeightQOS": "6000", "PriorityMaxAge": "7-0",
    "PriorityWeightTRES": "CPU=400,Mem=100,GRES/gpu=500",
}  # fmt: skip


def test_slurm_weights__names_each_weight_with_its_share():
    """The largest first; those of TRES together; none of 0; other settings do not count."""
    found = [(weight.name, weight.points, weight.share) for weight in slurm_weights(WEIGHTS)]
    assert found == [
        ("PriorityWeightFairShare", 10_000, 0.5), ("PriorityWeightQOS", 6_000, 0.3),
        ("PriorityWeightPartition", 2_000, 0.1), ("PriorityWeightAge", 1_000, 0.05),
        ("PriorityWeightTRES", 1_000, 0.05),
    ]  # fmt: skip


def test_slurm_weights__none_that_slurm_cannot_have():
    """A text that is no number, and a number of 2**32 or more."""
    odd = {"PriorityWeightAge": "9e99", "PriorityWeightQOS": "UNLIMITED", "PriorityWeightJobSize": "99999999999"}
    assert slurm_weights(odd | {"PriorityWeightTRES": "(null)"}) == ()
