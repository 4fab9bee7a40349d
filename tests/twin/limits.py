"""A workload under limits on what was used; the limits are set by sacctmgr, and read from what it prints."""

from __future__ import annotations

from collections.abc import Mapping

from slurmsched.sim.cluster_layout import ClusterLayout, PartitionSpec
from tests.twin.workload import LAYOUT as LAB
from tests.twin.workload import Submission

ACCOUNT, PART_QOS = "twin_mins", "twin_part"
LAYOUT = ClusterLayout(LAB.nodes, (PartitionSpec("gpu"), PartitionSpec("short", qos=PART_QOS)))
# Slurm's shortest, both a minute: a limit that is used up lets in again while the test runs.
CONF = {"PriorityDecayHalfLife": "1", "PriorityCalcPeriod": "1", "DebugFlags": "Priority"}
ENFORCE = {"limits": "associations,limits,qos", "safe": "associations,limits,qos,safe"}
# What jobs of two minutes at most may use: of these the limits on usage differ, since `safe` sets the time limit aside.
_OF_ACCOUNT = {"limits": {"GrpTRESMins": "gres/gpu=2"}, "safe": {"GrpTRESMins": "gres/gpu=10"}}
_GROUP_WALL = {"limits": "1", "safe": "2"}


def limits_of(case: str) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """Limits of the account, and of each QOS, as sacctmgr takes them. case: of ENFORCE."""
    of_qos = {
        "twin_run": {"GrpTRESRunMins": "gres/gpu=10"},
        "twin_wall": {"GrpWall": _GROUP_WALL[case]},
        "twin_each": {"MaxTRESMins": "gres/gpu=4"},
        PART_QOS: {"GrpTRES": "gres/gpu=3"},
        "twin_over": {"GrpTRES": "gres/gpu=6", "Flags": "OverPartQOS"},
    }
    return _OF_ACCOUNT[case], of_qos


def workload() -> list[Submission]:
    """A few jobs for each limit: who is held back, by whom, until when; each limit has jobs of its own."""
    return sorted((*_minutes(), *_run_minutes(), *_wall(), *_each(), *_partition()), key=lambda one: one.at_s)


def _minutes() -> list[Submission]:
    """GrpTRESMins of an account: used up by three, one of which runs on until it is ended; two more wait."""
    rows = ((0.0, 4, 16.0), (1.0, 4, 20.0), (2.0, 4, 90.0), (23.0, 1, 2.0), (24.0, 2, 2.0))
    return [Submission(at_s, "alice", gpus, sleep_s, 2, account=ACCOUNT) for at_s, gpus, sleep_s in rows]


def _run_minutes() -> list[Submission]:
    """GrpTRESRunMins: two jobs may use 8 of 10, and give back as they run what a third needs."""
    rows = ((0.5, 2, 36.0), (1.5, 2, 38.0), (2.5, 2, 5.0), (3.5, 1, 4.0))
    return [Submission(at_s, "bob", gpus, sleep_s, 2, qos="twin_run") for at_s, gpus, sleep_s in rows]


def _wall() -> list[Submission]:
    """GrpWall: five jobs use up a minute, and the sixth waits until that has faded."""
    return [
        *(Submission(3.0 + 0.3 * n, "carol", 1, 18.0, 2, qos="twin_wall") for n in range(5)),
        Submission(25.0, "carol", 1, 2.0, 2, qos="twin_wall"),
    ]


def _each() -> list[Submission]:
    """MaxTRESMins: one of 4 GPUs for two minutes waits until it is cancelled, one of 2 does not."""
    return [Submission(5.0, "dave", 4, 2.0, 2, qos="twin_each", cancel_s=20.0),
            Submission(5.5, "dave", 2, 4.0, 2, qos="twin_each")]  # fmt: skip


def _partition() -> list[Submission]:
    """QOS of a partition: 3 GPUs at a time; a job whose QOS stands before it has 6 of its own, and counts in both."""
    rows = ((6.0, 2, ""), (6.5, 2, ""), (7.0, 1, ""), (14.0, 4, "twin_over"), (14.5, 4, "twin_over"), (15.0, 1, ""))
    return [Submission(at_s, "dave", gpus, 6.0, 2, "short", qos) for at_s, gpus, qos in rows]


NEVER = next(place for place, one in enumerate(workload()) if one.cancel_s)  # asks for more than one may use
