"""Nodes of a preemption do not stand idle for a job that a limit keeps from starting."""

from __future__ import annotations

import pytest

from slurmsched.config import OperationsConfig
from slurmsched.model import Operation, OperationStage, Purpose, Reservations, Snapshot
from slurmsched.model.jobs import Jobs
from slurmsched.model.reasons import Blocker
from slurmsched.planning.operations.operation_steps import advance
from slurmsched.resources.startable_jobs import NOT_GPUS, is_not_for_gpus, not_waiting_for_gpus
from slurmsched.testing import snapshot

NOW_S = 1_000.0


def at(operation: Operation, reason: str) -> Snapshot:
    """Everybody has left, and the job waits with the operation's reservation."""
    job = {"job_id": 1, "reason": reason, "reservation": operation.reservation}
    kept = {
        "name": [operation.reservation],
        "node_list": ["n1"],
        "start_s": [0.0],
        "end_s": [9_000.0],
        "to_come": [False],
    }
    return snapshot([job], [{"name": "n1", "gpus": 8}], now_s=NOW_S, reservations=Reservations.build(1, kept))


def operation(opens_s: float = 0.0) -> Operation:
    stage = OperationStage.PROMISED if opens_s > NOW_S else OperationStage.REQUEUED
    return Operation("1-7", Purpose.PREEMPT, 1, 0.0, "ann", "n1", 600.0, NOW_S - 5, (), stage=stage, stage_s=NOW_S - 5,
               opens_s=opens_s, promised_s=opens_s, sure=True)  # fmt: skip


def test_advance__a_job_that_waits_for_a_limit_gives_its_nodes_back():
    """Slurm tells of the limit at its first look only, when others may have left already: no ten idle minutes too."""
    one = operation()
    move = advance(one, at(one, "QOSMaxGRESPerUser"), OperationsConfig())
    assert (move.operation.stage, move.operation.note) == (
        OperationStage.REVERSING, "its job waits for something else than GPUs (QOSMaxGRESPerUser)",
    )  # fmt: skip
    assert [(step.kind, getattr(step, "name", "")) for step in move.steps] == [
        ("join", ""), ("unreserve", one.reservation),
    ]  # fmt: skip


@pytest.mark.parametrize(("opens_s", "reason"), [(0.0, "Resources"), (0.0, "None"), (NOW_S + 900, "AssocGrpGRES")])
def test_advance__goes_on_before_any_node_stands_idle_for_a_limit(opens_s, reason):
    """The user's other jobs may have ended when the nodes are free."""
    one = operation(opens_s)
    assert advance(one, at(one, reason), OperationsConfig()).operation.stage == one.stage


def test_limited__counts_pending_jobs_only():
    """A running job keeps the reason of its last wait in some releases."""
    jobs: Jobs = snapshot([
        {"job_id": 1, "reason": "Licenses"}, {"job_id": 2, "reason": "Priority"},
        {"job_id": 3, "reason": "QOSGrpGRES", "state": "RUNNING"},
    ]).jobs  # fmt: skip
    assert not_waiting_for_gpus(jobs).tolist() == [True, False, False]


FREE_GPUS_HELP = {Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES, Blocker.MAINTENANCE, Blocker.RESERVATION,
                  Blocker.LAUNCHING, Blocker.NOT_TRIED, Blocker.UNKNOWN}  # fmt: skip
OTHER_COLUMNS_TELL = {Blocker.DEPENDENCY, Blocker.DEPENDENCY_NEVER, Blocker.BEGIN_TIME, Blocker.RESERVATION_GONE,
                      Blocker.HELD_BY_USER, Blocker.HELD_BY_ADMIN, Blocker.HELD_AFTER_FAILURE}  # fmt: skip
NO_REASON_OF_SLURM = {Blocker.REQUEUED, Blocker.ENDED, Blocker.RUNNING, Blocker.STARTING, Blocker.SUSPENDED,
                      Blocker.COMPLETING, Blocker.STATE_UNKNOWN}  # fmt: skip


def test_is_limit__every_blocker_stands_on_one_side():
    """A new one has to be put there."""
    sides = (NOT_GPUS, FREE_GPUS_HELP, OTHER_COLUMNS_TELL, NO_REASON_OF_SLURM)
    assert sorted(blocker for side in sides for blocker in side) == sorted(Blocker)


@pytest.mark.parametrize("reason", ["JobArrayTaskLimit", "BadConstraints", "Constraints", "DeadLine", "FedJobLock",
                                    "PartitionDown", "Job's account not permitted to use this partition"])  # fmt: skip
def test_is_limit__reasons_that_free_gpus_do_not_end(reason):
    """By the table of reasons that `explain` has: the last tasks of `--array=1-9%2`, a federation's lock."""
    assert is_not_for_gpus(reason)


def test_is_limit__a_new_reason_is_none():
    """Its name may begin as one that is known."""
    assert not is_not_for_gpus("MaxSolarFlares")


@pytest.mark.parametrize(("reason", "counts"), [("PartitionTimeLimit", False), ("PartitionDown", False),
                                                ("BadConstraints", False), ("QOSMaxGRESPerUser", True)])  # fmt: skip
def test_limited__a_partitions_reason_counts_for_jobs_of_that_one_only(reason, counts):
    """Of several Slurm tells the last that it tried; another may start the job."""
    one, several = ({"job_id": job, "reason": reason, "partition": listed} for job, listed in ((1, "a"), (2, "a,b")))
    assert not_waiting_for_gpus(snapshot([one, several]).jobs).tolist() == [True, counts]
