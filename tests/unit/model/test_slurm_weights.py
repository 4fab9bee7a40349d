"""The weights of Slurm's priority."""

from __future__ import annotations

from slurmsched.model.slurm_weights import slurm_weights

SETTINGS = {
    "PriorityWeightAge": "1000", "PriorityWeightAssoc": "0", "PriorityWeightFairShare": "10000",
    "PriorityWeightPartition": "2000", "PriorityWeightQOS": "6000", "PriorityMaxAge": "7-0",
    "PriorityWeightTRES": "CPU=400,Mem=100,GRES/gpu=500",
}  # fmt: skip


def test_slurm_weights__names_each_weight_with_its_share():
    """The largest first; those of TRES together; none of 0; other settings do not count."""
    found = [(weight.name, weight.points, weight.share) for weight in slurm_weights(SETTINGS)]
    assert found == [
        ("PriorityWeightFairShare", 10_000, 0.5), ("PriorityWeightQOS", 6_000, 0.3),
        ("PriorityWeightPartition", 2_000, 0.1), ("PriorityWeightAge", 1_000, 0.05),
        ("PriorityWeightTRES", 1_000, 0.05),
    ]  # fmt: skip


def test_slurm_weights__none_that_slurm_cannot_have():
    """A text that is no number, and a number of 2**32 or more."""
    odd = {"PriorityWeightAge": "9e99", "PriorityWeightQOS": "UNLIMITED", "PriorityWeightJobSize": "99999999999"}
    assert slurm_weights(odd | {"PriorityWeightTRES": "(null)"}) == ()
