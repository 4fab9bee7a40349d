"""The gate: one case a rule, and an action of each kind that passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched.config import Acts, Preemption, Scope
from slurmsched.model import (
    Act,
    Action,
    Defer,
    Delay,
    JobState,
    Join,
    Move,
    PinNodes,
    Purpose,
    Requeue,
    Reserve,
    Retype,
    Rights,
    SetNice,
    SetSiteFactor,
    Signal,
    Site,
    Stage,
    Unreserve,
    Victim,
)
from slurmsched.planning.gate import RULES, When, first_refusal, refusal
from slurmsched.planning.managed import out_of_scope, verdicts
from slurmsched.planning.view import Seen, View
from slurmsched.testing import snapshot

SCOPE = Scope(partitions=("gpu",))
OURS, NIGHT = "slurmsched-7-1", "night"
WAITS = Seen(100.0, JobState.PENDING, 5, 0)
RUNS = Seen(100.0, JobState.RUNNING, 5)
ACT = Act("7-1", Purpose.PREEMPT, 7, 0.0, "bob", "n1", 60.0, 1_000.0)


def nice(job_id: int = 7, old: int = 5, new: int = -10, base: int = 0, submit_s: float = 100.0) -> SetNice:
    return SetNice(job_id, submit_s, "", old, new, base)


def retype(gpus: str = "gpu:i0:2") -> Retype:
    return Retype(7, 100.0, "", "pin-7", gpus, "gpu:2", "gpu:2")


def sized(gpus: int, submit_s: float = 0.0) -> Retype:
    return Retype(7, submit_s, "", "size-7", f"gpu:{gpus}", "gpu:2", "gpu:2", resizes=True)


def defer() -> Defer:
    return Defer(7, 100.0, "", "defer-7", 500.0, was_s=100.0)


def reserve(**changes: Any) -> Reserve:
    return replace(Reserve(7, 0.0, "", "7-1", OURS, "n1", "bob", 1_000.0, 2_000.0), **changes)


def planned(*, limits: Acts | None = None, acts: tuple[Act, ...] = (), past: tuple[Act, ...] = (), **job: Any) -> View:
    """A view of one pending job 7 and one running job 8, with act 7-1 about to begin."""
    willing = {"state": "RUNNING", "requeueable": True, "comment": "slurmsched: preempt=yes ckpt=USR2@9"}
    rows = [{"job_id": 7, **job}, {"job_id": 8, **willing, **job}]
    at = snapshot(rows, now_s=1_000.0, acts=acts, past_acts=past)
    return View(at, SCOPE, Preemption(), limits or Acts(), verdicts(at, SCOPE, "nice"), {ACT.id: ACT},
                left=out_of_scope(at.jobs, SCOPE, "nice"))  # fmt: skip


def sent(seen: Seen | None = WAITS) -> View:
    return View(seen={7: seen} if seen else {})


def earlier(user: str = "bob", begun_s: float = 900.0, job_id: int = 9, victims: tuple[Victim, ...] = ()) -> Act:
    return Act(f"{job_id}-9", Purpose.PREEMPT, job_id, 0.0, user, "n2", 60.0, begun_s, victims, stage=Stage.CLOSED)


FEW = Acts(per_user_per_hour=1)
TAKES = Requeue(8, 0.0, "", "7-1")
OWN_AGAIN = nice(old=-10, new=0)
NOBODY = Site(rights=Rights.USER, user="eve")
# rule, when it is asked, the action, what is looked at, words of the reason
CASES: list[tuple[str, When, Action | None, View, str]] = [
    ("rights", When.APPLY, None, View(site=NOBODY), "eve is User"),
    ("stop-file", When.APPLY, None, View(stopped="paused: x exists"), "paused"),
    ("load", When.APPLY, None, View(busy="slurmctld is busy"), "busy"),
    ("managed", When.PLAN, nice(), planned(priority=0), "held"),
    ("managed", When.PLAN, OWN_AGAIN, planned(priority=0, written=True), "held"),
    ("managed", When.PLAN, OWN_AGAIN, planned(state="REVOKED", written=True), "pending"),
    ("managed", When.PLAN, OWN_AGAIN, planned(partition="cpu", written=True, cron=True), "scope.partitions"),
    ("managed", When.PLAN, OWN_AGAIN, planned(partition="cpu"), "scope.partitions"),
    ("managed", When.PLAN, reserve(), planned(partition="cpu"), "not in scope"),
    ("victim", When.PLAN, TAKES, planned(comment="slurmsched: preempt=no"), "preempted"),
    ("victim", When.PLAN, TAKES, planned(requeueable=False), "--no-requeue"),
    ("bounds", When.PLAN, nice(new=-3_000_000_000), planned(), "most that Slurm takes"),
    ("bounds", When.PLAN, reserve(nodes=""), planned(), "no nodes"),
    ("bounds", When.PLAN, reserve(end_s=900.0), planned(), "before it begins"),
    ("bounds", When.PLAN, Move(7, 0.0, "", "7-1", OURS), planned(), "before it begins"),
    ("size", When.PLAN, sized(9), planned(comment="slurmsched: min_gpus=1 max_gpus=8"), "9 GPUs are not between"),
    ("size", When.PLAN, sized(4), planned(comment="slurmsched: max_gpus=8"), "not between"),
    ("per-cycle", When.PLAN, reserve(), replace(planned(limits=Acts(per_cycle=1)), begun=(earlier(),)), "this cycle"),
    ("per-hour", When.PLAN, reserve(), planned(limits=Acts(per_hour=1), past=(earlier("eve"),)), "last hour"),
    ("per-user-per-hour", When.PLAN, reserve(), planned(limits=FEW, past=(earlier(),)), "for bob"),
    ("lease", When.PLAN, TAKES, planned(past=(earlier(job_id=8, victims=(Victim(7, 0.0, 0, 8),)),)), "of job 7"),
    ("gone", When.SEND, nice(), sent(None), "left the queue"),
    ("submit-time", When.SEND, nice(submit_s=float("nan")), sent(), "submit time is not known"),
    ("other-run", When.SEND, nice(), sent(replace(WAITS, submit_s=101.0)), "requeued"),
    ("other-run", When.SEND, Requeue(7, 100.0, "", "a"), sent(replace(RUNS, submit_s=160.0)), "requeued"),
    ("state", When.SEND, nice(), sent(RUNS), "RUNNING"),
    ("state", When.SEND, nice(), sent(replace(WAITS, state=JobState.PENDING | JobState.COMPLETING)), "COMPLETING"),
    ("state", When.SEND, nice(old=-10, new=3, base=3), sent(replace(WAITS, state=JobState.COMPLETED)), "COMPLETED"),
    ("state", When.SEND, Join(7, 100.0, "", "a", OURS), sent(RUNS), "RUNNING"),
    ("state", When.SEND, Requeue(7, 100.0, "", "a"), sent(replace(RUNS, state=JobState.COMPLETED)), "COMPLETED"),
    ("state", When.SEND, Signal(7, 100.0, "", "a", "USR1"), sent(), "PENDING"),
    ("managed", When.PLAN, Defer(7, 0.0, "", "defer-7", 500.0), planned(partition="cpu"), "not in scope"),
    ("state", When.SEND, Defer(7, 100.0, "", "defer-7", 500.0), sent(RUNS), "RUNNING"),
    ("state", When.SEND, Delay(7, 100.0, "", "a", 0.0), sent(RUNS), "RUNNING"),
    ("state", When.SEND, Reserve(7, 100.0, "", "a"), sent(RUNS), "RUNNING"),
    ("state", When.SEND, Move(7, 100.0, "", "a", OURS), sent(RUNS), "RUNNING"),
    ("value", When.SEND, nice(), sent(replace(WAITS, nice=6)), "its nice is 6, not 5"),
    ("value", When.SEND, SetSiteFactor(7, 100.0, "", 0, 900, 0), sent(replace(WAITS, site_factor=3)), "is 3, not 0"),
    ("node-list", When.SEND, PinNodes(7, 100.0, "", "a", "n2"), sent(replace(WAITS, nodes="n4")), "list is n4"),
    ("node-list", When.SEND, PinNodes(7, 100.0, "", "a", "", "n2"), sent(), "list is empty"),
    ("start", When.SEND, defer(), sent(replace(WAITS, eligible_s=900.0)), "start is another"),
    ("start", When.SEND, replace(defer(), back=True), sent(replace(WAITS, eligible_s=900.0)), "start is another"),
    ("start", When.SEND, defer(), sent(), "start is another"),
    ("request", When.SEND, retype(), sent(replace(WAITS, gpus="gpu:4")), "it asks for gpu:4"),
    ("request", When.SEND, retype(), sent(), "no GPUs by node"),
    ("request", When.SEND, retype("gpu:i0:1,gpu:i1:2"), sent(replace(WAITS, gpus="gpu:2")), "3 GPUs instead of 2"),
    ("request", When.SEND, replace(retype(), was="gpu:4"), sent(replace(WAITS, gpus="gpu:4")), "2 GPUs instead of 4"),
    ("asks", When.SEND, PinNodes(7, 100.0, "", "a", "n2"), sent(replace(WAITS, bars=("switches",))), "for switches"),
    ("state", When.SEND, retype(), sent(replace(RUNS, gpus="gpu:2")), "RUNNING"),
    ("reservation", When.SEND, Join(7, 100.0, "", "a", OURS), sent(replace(WAITS, reservation=NIGHT)), "is night"),
    ("reservation", When.SEND, Join(7, 100.0, "", "a"), sent(replace(RUNS, reservation=NIGHT)), "is night"),
    ("reservation", When.SEND, Join(7, 100.0, "", "ffffff-7-1"), sent(replace(RUNS, reservation=OURS)), f"is {OURS}"),
    ("exclusive", When.SEND, reserve(submit_s=100.0), sent(replace(WAITS, exclusive=True)), "whole nodes"),
]  # fmt: skip
PASS: list[tuple[When, Action | None, View]] = [
    (When.APPLY, None, View(site=Site(rights=Rights.OPERATOR))),
    (When.PLAN, nice(), planned()),
    (When.PLAN, reserve(), planned()),
    (When.PLAN, reserve(), planned(limits=Acts(per_hour=1), acts=(ACT,))),  # it has begun: nothing begins now
    (When.PLAN, reserve(), planned(limits=Acts(per_hour=1), past=(earlier(begun_s=-3_000.0),))),
    (When.PLAN, TAKES, planned()),
    (When.PLAN, TAKES, planned(past=(earlier(job_id=8, begun_s=-900.0, victims=(Victim(7, 0.0, 0, 8),)),))),
    (When.PLAN, Join(7, 0.0, "", "7-1"), planned(partition="cpu")),  # what ends an act may always go
    (When.PLAN, Unreserve(7, 0.0, "", "7-1", OURS), planned(partition="cpu")),
    (When.PLAN, Delay(7, 0.0, "", "7-1", 0.0), planned(partition="cpu")),
    (When.SEND, nice(), sent()),
    (When.SEND, nice(old=-10, new=3, base=3), sent(replace(RUNS, nice=-10))),  # undo reaches running jobs
    (When.SEND, SetSiteFactor(7, 100.0, "", 0, 900, 0), sent(replace(WAITS, site_factor=None))),
    (When.SEND, Join(7, 100.0, "", "a", OURS), sent()),
    (When.SEND, PinNodes(7, 100.0, "", "a", "", "n1,n2"), sent(replace(WAITS, nodes="n[1-2]"))),
    (When.PLAN, Defer(7, 0.0, "", "defer-7", 500.0, back=True), planned(partition="cpu")),
    (When.SEND, Defer(7, 100.0, "", "defer-7", 500.0), sent()),
    (When.SEND, defer(), sent(replace(WAITS, eligible_s=101.0))),  # Slurm keeps whole seconds
    (When.PLAN, OWN_AGAIN, planned(partition="cpu", written=True)),  # left the scope
    (When.PLAN, PinNodes(7, 0.0, "", "pin-7", "", "n2"), planned(partition="cpu")),  # as ever, it gets its own back
    (When.PLAN, Retype(7, 0.0, "", "pin-7", "gpu:2", "gpu:i0:2", "gpu:2"), planned(partition="cpu")),
    (When.PLAN, sized(8), planned(comment="slurmsched: min_gpus=1 max_gpus=8")),
    (When.PLAN, sized(2), planned()),  # its own
    (When.SEND, sized(8, 100.0), sent(replace(WAITS, gpus="gpu:2"))),
    (When.SEND, PinNodes(7, 100.0, "", "a", "", "n2"), sent(replace(WAITS, nodes="n2", bars=("switches",)))),
    (When.SEND, retype("gpu:i0:1,gpu:i1:1"), sent(replace(WAITS, gpus="gpu:2"))),
    (When.SEND, Join(7, 100.0, "", "7-1"), sent(replace(RUNS, reservation=OURS))),
    (When.SEND, Requeue(7, 100.0, "", "a"), sent(RUNS)),
    (When.SEND, Unreserve(7, 100.0, "", "a", OURS), sent(None)),
    (When.SEND, reserve(submit_s=100.0, whole=True), sent(replace(WAITS, exclusive=True))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "when", "action", "view", "words"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_refusal__one_rule_and_one_reason(rule, when, action, view, words):
    """The first rule that catches an action is named, with its reason in words."""
    found = refusal(action, view, when)
    assert found is not None
    assert (found.rule, words in found.reason) == (rule, True)


@pytest.mark.parametrize(("when", "action", "view"), PASS)
def test_refusal__none_for_what_may_pass(when, action, view):
    """Each kind of action goes through where nothing is against it."""
    assert refusal(action, view, when) is None


def test_rules__every_one_has_a_case():
    """A rule nobody tests is a rule nobody knows; each is named once, for one time."""
    assert {(rule.name, rule.when) for rule in RULES} == {(rule, when) for rule, when, *_ in CASES}
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_first_refusal__is_that_of_the_first_action_that_may_not_pass():
    """An act is judged by all of its steps."""
    view = planned(comment="slurmsched: preempt=no")
    found = first_refusal((reserve(), TAKES), view, When.PLAN)
    assert found is not None
    assert (found.job_id, found.rule) == (8, "victim")
    assert first_refusal((reserve(),), view, When.PLAN) is None


def test_rules__every_one_is_in_the_docs():
    """docs/gate.md is the list for administrators."""
    page = (Path(__file__).parents[3] / "docs" / "gate.md").read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in page] == []
