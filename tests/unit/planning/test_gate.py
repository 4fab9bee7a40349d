"""The gate: one case a rule, and an action of each kind that passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched.config import OperationsConfig, PreemptionConfig, ScopeConfig
from slurmsched.model import (
    Action,
    AllowStart,
    AskSize,
    DeleteReservation,
    JobState,
    JoinReservation,
    MoveReservation,
    Operation,
    OperationStage,
    Purpose,
    Requeue,
    Reserve,
    Rights,
    SetAdminComment,
    SetCpus,
    SetGpuRequest,
    SetMemory,
    SetNice,
    SetNodeList,
    SetShards,
    SetSiteFactor,
    SetSize,
    SetStart,
    ShrinkJob,
    Signal,
    Site,
    Victim,
)
from slurmsched.planning.gate import RULES, CurrentJob, GateContext, GateTime, first_refusal, refusal
from slurmsched.planning.job_scope import out_of_scope, verdicts
from slurmsched.planning.priorities.priority_fields import MOST_PRIORITY
from slurmsched.testing import snapshot

SCOPE = ScopeConfig(partitions=("gpu",))
OURS, NIGHT = "slurmsched-7-1", "night"
WAITS = CurrentJob(100.0, JobState.PENDING, 5, 0)
RUNS = CurrentJob(100.0, JobState.RUNNING, 5)
OPERATION = Operation("7-1", Purpose.PREEMPT, 7, 0.0, "bob", "n1", 60.0, 1_000.0)


def nice(job_id: int = 7, old: int = 5, new: int = -10, base: int = 0, submit_s: float = 100.0) -> SetNice:
    return SetNice(job_id, submit_s, "", old, new, base)


def retype(gpus: str = "gpu:i0:2") -> SetGpuRequest:
    return SetGpuRequest(7, 100.0, "", "pin-7", gpus, "gpu:2", "gpu:2")


def sized(gpus: int, submit_s: float = 0.0) -> SetSize:
    return SetSize(7, submit_s, "", "size-7", f"gpu:{gpus}", "gpu:2", "gpu:2")


def shards(count: int, base: str = "gpu:1", submit_s: float = 0.0) -> SetShards:
    return SetShards(7, submit_s, "", "shards-7", f"shard:{count}", base, base, 4)


SHARES = "slurmsched: share=yes gpu_part=0.5"


def defer() -> SetStart:
    return SetStart(7, 100.0, "", "defer-7", 500.0, 100.0)


def reserve(**changes: Any) -> Reserve:
    return replace(Reserve(7, 0.0, "", "7-1", OURS, "n1", "bob", 1_000.0, 2_000.0), **changes)


def planned(
    *,
    operations_config: OperationsConfig | None = None,
    operations: tuple[Operation, ...] = (),
    past: tuple[Operation, ...] = (),
    **job: Any,
) -> GateContext:
    """A view of one pending job 7 and one running job 8, with operation 7-1 about to begin."""
    willing = {"state": "RUNNING", "requeueable": True, "comment": "slurmsched: preempt=yes ckpt=USR2@9"}
    rows = [{"job_id": 7, **job}, {"job_id": 8, **willing, **job}]
    at = snapshot(rows, now_s=1_000.0, operations=operations, past_operations=past)
    return GateContext(
        at,
        SCOPE,
        PreemptionConfig(),
        operations_config or OperationsConfig(),
        verdicts(at, SCOPE, "nice"),
        {OPERATION.id: OPERATION},
        out_of_scope=out_of_scope(at.jobs, SCOPE, "nice"),
    )


def say() -> SetAdminComment:
    return SetAdminComment(7, 100.0, "", "comment-7", "slurmsched: b", "slurmsched: a", "", ("slurmsched: a",))


def sent(seen: CurrentJob | None = WAITS) -> GateContext:
    return GateContext(seen={7: seen} if seen else {})


def earlier(user: str = "bob", begun_s: float = 900.0, job_id: int = 9, victims: tuple[Victim, ...] = ()) -> Operation:
    return Operation(
        f"{job_id}-9", Purpose.PREEMPT, job_id, 0.0, user, "n2", 60.0, begun_s, victims, stage=OperationStage.CLOSED
    )


FEW = OperationsConfig(per_user_per_hour=1)
TAKES = Requeue(8, 0.0, "", "7-1")
REQUEUE = Requeue(7, 100.0, "", "a")
BEYOND = SetSiteFactor(7, 100.0, "", 0, MOST_PRIORITY + 1, 0)
OWN_AGAIN = nice(old=-10, new=0)
NOBODY = Site(rights=Rights.USER, user="eve")
# rule, when it is asked, the action, what is looked at, words of the reason
CASES: list[tuple[str, GateTime, Action | None, GateContext, str]] = [
    ("rights", GateTime.APPLY, None, GateContext(site=NOBODY), "eve is User"),
    ("stop-file", GateTime.APPLY, None, GateContext(stopped="paused: x exists"), "paused"),
    ("load", GateTime.APPLY, None, GateContext(busy="slurmctld is busy"), "busy"),
    ("managed", GateTime.PLAN, nice(), planned(priority=0), "held"),
    ("managed", GateTime.PLAN, OWN_AGAIN, planned(priority=0, written=True), "held"),
    ("managed", GateTime.PLAN, OWN_AGAIN, planned(state="REVOKED", written=True), "pending"),
    ("managed", GateTime.PLAN, OWN_AGAIN, planned(partition="cpu", written=True, cron=True), "scope.partitions"),
    ("managed", GateTime.PLAN, OWN_AGAIN, planned(partition="cpu"), "scope.partitions"),
    ("managed", GateTime.PLAN, reserve(), planned(partition="cpu"), "not in scope"),
    ("victim", GateTime.PLAN, TAKES, planned(comment="slurmsched: preempt=no"), "preempted"),
    ("victim", GateTime.PLAN, TAKES, planned(requeueable=False), "--no-requeue"),
    ("victim", GateTime.PLAN, TAKES, planned(array_job_id=8), "whole array"),
    ("bounds", GateTime.PLAN, nice(new=-3_000_000_000), planned(), "most that Slurm takes"),
    ("bounds", GateTime.SEND, nice(new=-MOST_PRIORITY - 1), sent(), "most that Slurm takes"),
    ("bounds", GateTime.SEND, BEYOND, sent(replace(WAITS, site_factor=0)), "most that Slurm takes"),
    ("bounds", GateTime.PLAN, reserve(nodes=""), planned(), "no nodes"),
    ("bounds", GateTime.PLAN, reserve(end_s=900.0), planned(), "before it begins"),
    ("bounds", GateTime.PLAN, MoveReservation(7, 0.0, "", "7-1", OURS), planned(), "before it begins"),
    ("size", GateTime.PLAN, sized(9), planned(comment="slurmsched: min_gpus=1 max_gpus=8"), "9 GPUs are not between"),
    ("size", GateTime.PLAN, sized(4), planned(comment="slurmsched: max_gpus=8"), "not between"),
    (
        "cpus",
        GateTime.PLAN,
        SetCpus(7, 0.0, "", "cpus-7", 3, 16, 16),
        planned(comment="slurmsched: min_cpus=4"),
        "3 CPUs are not what its hints",
    ),
    (
        "cpus",
        GateTime.PLAN,
        SetCpus(7, 0.0, "", "cpus-7", 25, 16, 16),
        planned(comment="slurmsched: max_cpus=24"),
        "25 CPUs are not what its hints",
    ),
    (
        "memory",
        GateTime.PLAN,
        SetMemory(7, 0.0, "", "memory-7", 4095, 8192, 8192),
        planned(comment="slurmsched: min_mem=4"),
        "4095 MiB are not between",
    ),
    ("share", GateTime.PLAN, shards(1), planned(comment=SHARES), "its hints share and gpu_part"),
    ("share", GateTime.PLAN, shards(5), planned(comment=SHARES), "its hints share and gpu_part"),
    ("share", GateTime.PLAN, shards(2), planned(comment="slurmsched: gpu_part=0.5"), "its hints share and gpu_part"),
    ("share", GateTime.PLAN, shards(2), planned(comment="slurmsched: share=yes"), "its hints share and gpu_part"),
    (
        "share",
        GateTime.PLAN,
        shards(1),
        planned(comment="slurmsched: share=yes", measured_part=0.3),
        "its measured use",
    ),
    ("share", GateTime.PLAN, shards(2, "gpu:2"), planned(comment=SHARES), "gpu:2, not one GPU"),
    ("share", GateTime.PLAN, shards(2, "shard:1"), planned(comment=SHARES), "shard:1, not one GPU"),
    ("share", GateTime.PLAN, shards(2, "mps:1"), planned(comment=SHARES), "mps:1, not one GPU"),
    (
        "per-cycle",
        GateTime.PLAN,
        reserve(),
        replace(planned(operations_config=OperationsConfig(per_cycle=1)), begun=(earlier(),)),
        "this cycle",
    ),
    (
        "per-hour",
        GateTime.PLAN,
        reserve(),
        planned(operations_config=OperationsConfig(per_hour=1), past=(earlier("eve"),)),
        "last hour",
    ),
    ("per-user-per-hour", GateTime.PLAN, reserve(), planned(operations_config=FEW, past=(earlier(),)), "for bob"),
    ("lease", GateTime.PLAN, TAKES, planned(past=(earlier(job_id=8, victims=(Victim(7, 0.0, 0, 8),)),)), "of job 7"),
    ("gone", GateTime.SEND, nice(), sent(None), "left the queue"),
    ("submit-time", GateTime.SEND, nice(submit_s=float("nan")), sent(), "submit time is unknown"),
    ("other-run", GateTime.SEND, nice(), sent(replace(WAITS, submit_s=101.0)), "requeued"),
    ("other-run", GateTime.SEND, Requeue(7, 100.0, "", "a"), sent(replace(RUNS, submit_s=160.0)), "requeued"),
    ("state", GateTime.SEND, nice(), sent(RUNS), "RUNNING"),
    ("state", GateTime.SEND, nice(), sent(replace(WAITS, state=JobState.PENDING | JobState.COMPLETING)), "COMPLETING"),
    ("state", GateTime.SEND, nice(old=-10, new=3, base=3), sent(replace(WAITS, state=JobState.COMPLETED)), "COMPLETED"),
    ("state", GateTime.SEND, JoinReservation(7, 100.0, "", "a", OURS), sent(RUNS), "RUNNING"),
    ("state", GateTime.SEND, Requeue(7, 100.0, "", "a"), sent(replace(RUNS, state=JobState.COMPLETED)), "COMPLETED"),
    ("state", GateTime.SEND, Signal(7, 100.0, "", "a", "USR1"), sent(), "PENDING"),
    ("managed", GateTime.PLAN, SetStart(7, 0.0, "", "defer-7", 500.0), planned(partition="cpu"), "not in scope"),
    ("state", GateTime.SEND, SetStart(7, 100.0, "", "defer-7", 500.0), sent(RUNS), "RUNNING"),
    ("state", GateTime.SEND, AllowStart(7, 100.0, "", "a", 0.0), sent(RUNS), "RUNNING"),
    ("state", GateTime.SEND, Reserve(7, 100.0, "", "a"), sent(RUNS), "RUNNING"),
    ("state", GateTime.SEND, MoveReservation(7, 100.0, "", "a", OURS), sent(RUNS), "RUNNING"),
    ("value", GateTime.SEND, nice(), sent(replace(WAITS, nice=6)), "its nice is 6, not 5"),
    (
        "value",
        GateTime.SEND,
        SetSiteFactor(7, 100.0, "", 0, 900, 0),
        sent(replace(WAITS, site_factor=3)),
        "is 3, not 0",
    ),
    ("node-list", GateTime.SEND, SetNodeList(7, 100.0, "", "a", "n2"), sent(replace(WAITS, nodes="n4")), "list is n4"),
    ("node-list", GateTime.SEND, SetNodeList(7, 100.0, "", "a", "", "n2"), sent(), "list is empty"),
    ("admin-comment", GateTime.SEND, say(), sent(replace(WAITS, admin_comment="hers")), "text of another user"),
    ("admin-comment", GateTime.SEND, say(), sent(WAITS), "could not be read"),
    ("start", GateTime.SEND, defer(), sent(replace(WAITS, eligible_s=900.0)), "start is another"),
    ("start", GateTime.SEND, replace(defer(), base=500.0), sent(replace(WAITS, eligible_s=900.0)), "start is another"),
    ("start", GateTime.SEND, defer(), sent(), "start is another"),
    (
        "size",
        GateTime.SEND,
        ShrinkJob(7, 100.0, "", "shrink-7", 2, 4, 4),
        sent(replace(RUNS, comment="", fields={"NumNodes": "4"})),
        "its hints",
    ),
    ("request", GateTime.SEND, retype(), sent(replace(WAITS, gpus="gpu:4")), "it asks for gpu:4"),
    ("request", GateTime.SEND, shards(2, submit_s=100.0), sent(replace(WAITS, gpus="gpu:2")), "it asks for gpu:2"),
    ("share", GateTime.SEND, shards(2, submit_s=100.0), sent(replace(WAITS, gpus="gpu:1")), "could not be read"),
    (
        "share",
        GateTime.SEND,
        shards(2, submit_s=100.0),
        sent(replace(WAITS, gpus="gpu:1", comment="")),
        "its hints share and gpu_part",
    ),
    ("request", GateTime.SEND, retype(), sent(), "no GPUs by node"),
    ("request", GateTime.SEND, retype("gpu:i0:1,gpu:i1:2"), sent(replace(WAITS, gpus="gpu:2")), "3 GPUs instead of 2"),
    (
        "request",
        GateTime.SEND,
        replace(retype(), old="gpu:4"),
        sent(replace(WAITS, gpus="gpu:4")),
        "2 GPUs instead of 4",
    ),
    (
        "asks",
        GateTime.SEND,
        SetNodeList(7, 100.0, "", "a", "n2"),
        sent(replace(WAITS, bars=("switches",))),
        "for switches",
    ),
    ("state", GateTime.SEND, retype(), sent(replace(RUNS, gpus="gpu:2")), "RUNNING"),
    (
        "reservation",
        GateTime.SEND,
        JoinReservation(7, 100.0, "", "a", OURS),
        sent(replace(WAITS, reservation=NIGHT)),
        "is night",
    ),
    (
        "reservation",
        GateTime.SEND,
        JoinReservation(7, 100.0, "", "a"),
        sent(replace(RUNS, reservation=NIGHT)),
        "is night",
    ),
    (
        "reservation",
        GateTime.SEND,
        JoinReservation(7, 100.0, "", "ffffff-7-1"),
        sent(replace(RUNS, reservation=OURS)),
        f"is {OURS}",
    ),
    ("size", GateTime.PLAN, AskSize(7, 0.0, "", "want-7", 3), planned(), "3 GPUs are not between"),
    ("managed", GateTime.PLAN, AskSize(7, 0.0, "", "want-7", 3), planned(partition="cpu"), "not in scope"),
    ("state", GateTime.SEND, AskSize(7, 100.0, "", "want-7", 3), sent(), "PENDING"),
    ("earlier-step", GateTime.SEND, TAKES, replace(sent(None), broken={"7-1": "node n1 is down"}), "node n1 is down"),
    ("beneficiary", GateTime.SEND, REQUEUE, replace(sent(RUNS), cannot_start={"a": "it is held"}), "it is held"),
    ("exclusive", GateTime.SEND, reserve(submit_s=100.0), sent(replace(WAITS, exclusive=True)), "whole nodes"),
]
PASS: list[tuple[GateTime, Action | None, GateContext]] = [
    (GateTime.APPLY, None, GateContext(site=Site(rights=Rights.OPERATOR))),
    (GateTime.PLAN, nice(), planned()),
    (GateTime.PLAN, reserve(), planned()),
    # It has begun: nothing begins now.
    (
        GateTime.PLAN,
        reserve(),
        planned(operations_config=OperationsConfig(per_hour=1), operations=(OPERATION,)),
    ),
    (
        GateTime.PLAN,
        reserve(),
        planned(operations_config=OperationsConfig(per_hour=1), past=(earlier(begun_s=-3_000.0),)),
    ),
    (GateTime.PLAN, TAKES, planned()),
    (GateTime.PLAN, TAKES, planned(past=(earlier(job_id=8, begun_s=-900.0, victims=(Victim(7, 0.0, 0, 8),)),))),
    # What ends an operation may always go.
    (
        GateTime.PLAN,
        JoinReservation(7, 0.0, "", "7-1"),
        planned(partition="cpu"),
    ),
    (GateTime.PLAN, DeleteReservation(7, 0.0, "", "7-1", OURS), planned(partition="cpu")),
    (GateTime.PLAN, AllowStart(7, 0.0, "", "7-1", 0.0), planned(partition="cpu")),
    (GateTime.SEND, nice(), sent()),
    (GateTime.SEND, nice(new=MOST_PRIORITY), sent()),
    (GateTime.SEND, nice(old=-10, new=3, base=3), sent(replace(RUNS, nice=-10))),  # undo reaches running jobs
    (GateTime.SEND, SetSiteFactor(7, 100.0, "", 0, 900, 0), sent(replace(WAITS, site_factor=None))),
    (GateTime.SEND, JoinReservation(7, 100.0, "", "a", OURS), sent()),
    (GateTime.SEND, SetNodeList(7, 100.0, "", "a", "", "n1,n2"), sent(replace(WAITS, nodes="n[1-2]"))),
    (GateTime.PLAN, SetStart(7, 0.0, "", "defer-7", 500.0, base=500.0), planned(partition="cpu")),
    (GateTime.SEND, SetStart(7, 100.0, "", "defer-7", 500.0), sent()),
    (GateTime.SEND, defer(), sent(replace(WAITS, eligible_s=101.0))),  # Slurm keeps whole seconds
    (GateTime.PLAN, OWN_AGAIN, planned(partition="cpu", written=True)),  # left the scope
    # As ever, it gets its own back.
    (
        GateTime.PLAN,
        SetNodeList(7, 0.0, "", "pin-7", "", "n2"),
        planned(partition="cpu"),
    ),
    (GateTime.PLAN, SetGpuRequest(7, 0.0, "", "pin-7", "gpu:2", "gpu:i0:2", "gpu:2"), planned(partition="cpu")),
    (GateTime.PLAN, sized(8), planned(comment="slurmsched: min_gpus=1 max_gpus=8")),
    (GateTime.PLAN, sized(2), planned()),  # its own
    (GateTime.PLAN, shards(2), planned(comment=SHARES)),
    (GateTime.PLAN, shards(2), planned(comment="slurmsched: share=yes", measured_part=0.3)),
    (GateTime.PLAN, SetShards(7, 0.0, "", "shards-7", "gpu:1", "shard:2", "gpu:1"), planned(partition="cpu")),
    (GateTime.SEND, shards(2, submit_s=100.0), sent(replace(WAITS, gpus="gpu:1", comment=SHARES))),
    (
        GateTime.SEND,
        replace(shards(2, submit_s=100.0), measured_part=0.3),
        sent(replace(WAITS, gpus="gpu:1", comment="slurmsched: share=yes")),
    ),
    (
        GateTime.SEND,
        SetShards(7, 100.0, "", "shards-7", "gpu:1", "shard:2", "gpu:1"),
        sent(replace(WAITS, gpus="shard:2", bars=("switches",))),
    ),
    (GateTime.SEND, sized(8, 100.0), sent(replace(WAITS, gpus="gpu:2"))),
    (GateTime.SEND, SetNodeList(7, 100.0, "", "a", "", "n2"), sent(replace(WAITS, nodes="n2", bars=("switches",)))),
    (GateTime.SEND, retype("gpu:i0:1,gpu:i1:1"), sent(replace(WAITS, gpus="gpu:2"))),
    (GateTime.SEND, JoinReservation(7, 100.0, "", "7-1"), sent(replace(RUNS, reservation=OURS))),
    (GateTime.SEND, REQUEUE, replace(sent(RUNS), broken={"7-1": "node n1 is down"}, cannot_start={"a": ""})),
    (GateTime.SEND, nice(), replace(sent(), broken={"": "busy"}, cannot_start={"": "it is held"})),
    (GateTime.PLAN, AskSize(7, 0.0, "", "want-7"), planned(partition="cpu")),  # no other size any more
    (GateTime.SEND, AskSize(7, 100.0, "", "want-7"), sent()),
    (GateTime.SEND, DeleteReservation(7, 100.0, "", "a", OURS), sent(None)),
    (GateTime.SEND, reserve(submit_s=100.0, whole=True), sent(replace(WAITS, exclusive=True))),
]


@pytest.mark.parametrize(
    ("rule", "when", "action", "context", "words"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_refusal__one_rule_and_one_reason(rule, when, action, context, words):
    """The first rule that catches an action is named, with its reason in words."""
    found = refusal(action, context, when)
    assert found is not None
    assert (found.rule, words in found.reason) == (rule, True)


@pytest.mark.parametrize(("when", "action", "context"), PASS)
def test_refusal__none_for_what_may_pass(when, action, context):
    """Each kind of action goes through where nothing is against it."""
    assert refusal(action, context, when) is None


def test_rules__every_one_has_a_case():
    """A rule without a case is not tested. Each is named once for a time."""
    assert {(rule.name, rule.when) for rule in RULES} == {(rule, when) for rule, when, *_ in CASES}
    assert len({(rule.name, rule.when) for rule in RULES}) == len(RULES)


def test_first_refusal__is_that_of_the_first_action_that_may_not_pass():
    """An operation is judged by all of its steps."""
    context = planned(comment="slurmsched: preempt=no")
    found = first_refusal((reserve(), TAKES), context, GateTime.PLAN)
    assert found is not None
    assert (found.job_id, found.rule) == (8, "victim")
    assert first_refusal((reserve(),), context, GateTime.PLAN) is None


def test_rules__every_one_is_in_the_docs():
    """docs/gate.md is the list for administrators."""
    page = (Path(__file__).parents[3] / "docs" / "gate.md").read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in page] == []
