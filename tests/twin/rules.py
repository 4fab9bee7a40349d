"""A workload of rules that name nodes: weights, LLN, features, GPU types, licences, MaxCPUsPerNode, whole nodes,
several partitions, GraceTime; a few seconds for each, one after the other."""

from __future__ import annotations

from tests.twin.workload import Submission

CONF = {"Licenses": "matlab:2", "PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL"}
NODES = {  # name -> what slurm.conf says of it
    "n1": "Weight=10 Feature=ib,old",
    "n2": "Weight=20 Feature=old",
    "n3": "Weight=10 Feature=ib,new Gres=gpu:h100:8",
    "n4": "Weight=10 Feature=apart",
}
PARTITIONS = (
    "all Nodes=n[1-3] PreemptMode=OFF",
    "spread Nodes=n[1-3] LLN=YES PreemptMode=OFF",
    "capped Nodes=n[1-3] MaxCPUsPerNode=16 PreemptMode=OFF",
    "whole Nodes=n[1-3] OverSubscribe=EXCLUSIVE PreemptMode=OFF",
    "first Nodes=n1 PreemptMode=OFF",
    "second Nodes=n[2-3] PreemptMode=OFF",
    "low Nodes=n4 PriorityTier=1 GraceTime=8",
    "high Nodes=n4 PriorityTier=9 PreemptMode=OFF",
)


def workload() -> list[Submission]:
    """Each rule has the nodes n1 to n3 for itself for some seconds; the preemption has n4."""
    return [
        Submission(0.0, "alice", 8, 90.0, 5, "low"),
        *_weights(2.0),
        Submission(8.0, "bob", 4, 2.0, 1, "high"),
        *_spread(12.0),
        *_features(18.0),
        *_types(25.0),
        *_licences(32.0),
        *_capped(39.0),
        *_whole(45.0),
        *_several(54.0),
    ]


def _weights(at_s: float) -> list[Submission]:
    """One node: the least weight. Two nodes: those of the least weight, though they are no neighbours."""
    return [
        *(Submission(at_s + 0.2 * n, "alice", 5, 3.0, 1, "all") for n in range(3)),
        Submission(at_s + 5.0, "bob", 2, 3.0, 1, "all", node_count=2),
        Submission(at_s + 5.3, "carol", 14, 1.0, 1, "all", node_count=2),
    ]


def _spread(at_s: float) -> list[Submission]:
    """LLN: one node after the other."""
    return [Submission(at_s + 0.3 * n, "bob", gpus, 4.0, 1, "spread") for n, gpus in enumerate((1, 2, 1, 1, 3))]


def _features(at_s: float) -> list[Submission]:
    rows = (("old", 8), ("old", 8), ("old", 4), ("new&ib", 4), ("ib", 4), ("new|old", 2))
    return [Submission(at_s + 0.2 * n, "carol", gpus, 2.5, 1, "all", constraint=one)
            for n, (one, gpus) in enumerate(rows)]  # fmt: skip


def _types(at_s: float) -> list[Submission]:
    rows = (("h100", 5), ("h100", 5), ("a100", 5), ("a100", 8), ("a100", 5), ("", 3))
    return [Submission(at_s + 0.2 * n, "dave", gpus, 2.5, 1, "all", gpu_type=one)
            for n, (one, gpus) in enumerate(rows)]  # fmt: skip


def _licences(at_s: float) -> list[Submission]:
    rows = ("matlab:1", "matlab:2", "matlab:1", "", "matlab:1")
    return [Submission(at_s + 0.2 * n, "alice", 1, 2.0, 1, "all", licenses=one) for n, one in enumerate(rows)]


def _capped(at_s: float) -> list[Submission]:
    """Two of these on a node; jobs of another partition take more CPUs there."""
    capped = [Submission(at_s + 0.2 * n, "bob", 1, 2.5, 1, "capped", cpus=8) for n in range(7)]
    return [*capped, Submission(at_s + 1.6, "carol", 1, 2.5, 1, "all", cpus=32)]


def _whole(at_s: float) -> list[Submission]:
    """Whole nodes by the partition, and by the job."""
    return [
        Submission(at_s, "dave", 1, 3.0, 1, "whole"),
        Submission(at_s + 0.2, "dave", 1, 3.0, 1, "all", exclusive=True),
        Submission(at_s + 0.4, "dave", 1, 1.5, 1, "all"),
        Submission(at_s + 0.6, "dave", 1, 1.0, 1, "whole"),
        Submission(at_s + 0.8, "dave", 1, 1.0, 1, "all"),
    ]


def _several(at_s: float) -> list[Submission]:
    """Partitions are tried one by one: two nodes do not come from both."""
    return [
        Submission(at_s, "alice", 8, 3.0, 1, "second", constraint="old"),
        Submission(at_s + 0.4, "bob", 16, 1.0, 1, "first,second"),
        Submission(at_s + 0.8, "carol", 4, 1.0, 1, "second,first"),
        Submission(at_s + 1.0, "carol", 4, 1.0, 1, "first,second"),
    ]
