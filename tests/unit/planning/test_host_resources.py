"""CPUs of pending jobs: fewer where CPUs alone keep them from free GPUs, given back, and left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig, PlacementConfig, PreemptionConfig, ScopeConfig
from slurmsched.model import (
    JobState,
    Operation,
    Outcome,
    Override,
    OverrideState,
    Plan,
    Purpose,
    Ranking,
    Rights,
    SetCpus,
    SetMemory,
    Site,
    Snapshot,
)
from slurmsched.placements.baselines import BestFit
from slurmsched.planning.gate import CHANGED, CurrentJob, GateContext, GateTime, refusal, without_changed_options
from slurmsched.planning.host_resources import CPUS as CPU_COUNTS
from slurmsched.planning.host_resources import CpuLever, own_request
from slurmsched.planning.job_overrides import CPUS, NODE_LIST_FIELDS, untouched
from slurmsched.planning.levers import undo_plan
from slurmsched.planning.node_lists import node_list_lever
from slurmsched.planning.planner import Planner
from slurmsched.planning.proposals import Budget, Proposal
from slurmsched.policies.fifo import Fifo
from slurmsched.slurm.writer import command
from slurmsched.testing import snapshot

NOW = 1_000.0
HINT = "slurmsched: min_cpus=4"


def queue(*rows: dict[str, Any], used: int = 58, **others: Any) -> Snapshot:
    """Jobs of one GPU and 16 CPUs on a node with 8 GPUs, 4 of them free, and 64 CPUs, of which so many are used."""
    jobs = [{"job_id": number, "submit_s": 900.0, "gpus": 1, "nodes": 1, "cpus": 16, "gpu_request": "gpu:1",
             "comment": HINT, **row} for number, row in enumerate(rows, 1)]  # fmt: skip
    made = snapshot(jobs, "1x8", now_s=NOW, site=Site(rights=Rights.OPERATOR), **others)
    columns = {"cpus": 64, "cpus_used": used, "gpus_used": 4, "memory_mib": 1e6}
    nodes = made.nodes.with_columns(**{name: np.array([value], getattr(made.nodes, name).dtype)
                                       for name, value in columns.items()})  # fmt: skip
    return replace(made, nodes=nodes)


def plan(given: Snapshot, *, on: bool = True, preempts: bool = False) -> Plan:
    lever, preemption = (
        LeverConfig(cpus=on, admin_comment=False),
        PreemptionConfig(enabled=preempts, quantum_s=1, least_factor=0),
    )
    return Planner(Fifo(), scope=ScopeConfig(partitions=("gpu",)), lever=lever, preemption=preemption).plan(given)


def asks(made: Plan) -> dict[int, tuple[int, int, int]]:
    """What is written: job -> the new number, the one it has, its own."""
    return {step.job_id: (step.new, step.old, step.base) for step in made.actions if isinstance(step, SetCpus)}


def record(sent: int, **others: Any) -> Override:
    return Override(**{"job_id": 1, "submit_s": 900.0, "field": "cpus", "base": 16, "sent": sent, "values": (16,),
                       "since_s": NOW} | others)  # fmt: skip


OPERATION = Operation("1-1", Purpose.PREEMPT, 1, 900.0, "ann", "n1", 60.0, 950.0)
LISTED = (Override(1, 900.0, "node_list", "", "n1", values=("n1",)),)


def test_cpus__nothing_is_written_by_default() -> None:
    """lever.cpus is off."""
    assert asks(plan(queue({}), on=False)) == {}


def test_cpus__a_job_gets_what_a_node_has_beside_its_free_gpus() -> None:
    """6 CPUs are left: job 1 gets them all, so that none are left for job 2; job 2 alone would get them too."""
    made = plan(queue({}, {}))
    assert asks(made) == {1: (6, 16, 16)}
    assert made.overrides[0] == record(6, values=(6, 16))
    assert asks(plan(queue({}))) == {1: (6, 16, 16)}


def test_cpus__more_where_no_free_gpu_needs_them() -> None:
    """4 GPUs and 60 CPUs are free: 3 more GPUs need 24 of them, so that 36 are for job 1. Where job 2 needs 16, the two
    other GPUs need 16, and 12 more are for job 1. Jobs of 40 CPUs before or behind it need all that it could get, but
    not where they do not start. With max_cpus=20 job 1 gets 20, and with 40 CPUs free its own."""
    most = {"comment": "slurmsched: max_cpus=48"}
    assert asks(plan(queue(most, used=4))) == {1: (36, 16, 16)}
    assert asks(plan(queue(most, most, used=4))) == {1: (28, 16, 16)}
    large = {"cpus": 40, "comment": ""}
    assert asks(plan(queue(large, most, used=4))) == asks(plan(queue(most, large, used=4))) == {}
    assert asks(plan(queue({**large, "cpus": 62}, most, used=4))) == {2: (36, 16, 16)}
    assert asks(plan(queue({**large, "reason": "QOSMaxGRESPerUser"}, most, used=4))) == {2: (36, 16, 16)}
    tasks = {"cpus": 20, "comment": "", "array_job_id": 1, "array_tasks": 9}
    assert asks(plan(queue(tasks, most, used=4))) == {}
    assert asks(plan(queue({**most, "cpus": 30}, used=4, overrides=(record(30),)))) == {}  # ours stays
    assert asks(plan(queue({"comment": "slurmsched: max_cpus=20"}, used=4))) == {1: (20, 16, 16)}
    assert asks(plan(queue(most, used=24))) == {}
    given = queue({**most, "cpus": 36, "reason": "QOSMaxCpuPerJobLimit"}, used=4, overrides=(record(36),))
    made = plan(given)
    assert asks(made) == {1: (16, 36, 16)} and made.overrides[-1].abandoned


def test_memory__a_job_gets_what_a_node_has_beside_its_free_gpus() -> None:
    """Of 100 GiB a node has 10 free. A job of 16 GiB that can do with 8 gets 10, is given its own back by undo and when
    the lever is off, and keeps its own with min_mem=12."""

    def given(hints: str, used_gib: int = 90, has: int = 16, **others: Any) -> Snapshot:
        made = queue({"comment": f"slurmsched: {hints}", "memory_mib": has * 1024.0}, used=0, **others)
        memory = {"memory_mib": np.array([100 * 1024.0]), "memory_used_mib": np.array([used_gib * 1024.0])}
        return replace(made, nodes=made.nodes.with_columns(**memory))

    def written(at: Snapshot, on: bool = True) -> list[tuple[int, int, int]]:
        lever = LeverConfig(memory=on, admin_comment=False)
        made = Planner(Fifo(), scope=ScopeConfig(partitions=("gpu",)), lever=lever).plan(at)
        return [(step.new, step.old, step.base) for step in made.actions if isinstance(step, SetMemory)]

    own, less = 16 * 1024, 10 * 1024
    ours = record(less, field="memory", base=own, values=(own,))
    assert written(given("min_mem=8")) == [(less, own, own)]
    assert written(given("min_mem=12")) == written(given("min_cpus=2")) == []
    assert written(given("min_mem=8", used_gib=80)) == []
    assert written(given("min_mem=8", has=10, overrides=(ours,))) == []
    assert written(given("min_mem=8", has=10, overrides=(ours,)), on=False) == [(own, less, own)]
    (back,) = undo_plan(given("min_mem=8", has=10, overrides=(ours,))).actions
    assert command(back) == "update JobId=1 MinMemoryNode=16384"


@pytest.mark.parametrize(
    "row",
    [
        {"comment": ""},  # it tells nothing
        {"comment": "slurmsched: min_cpus=7"},  # no node has so many
        {"cpus": 6},  # its own fit
        {"gpus": 5, "gpu_request": "gpu:5"},  # there are too few GPUs
        {"nodes": 2, "gpus": 2},
        {"array_job_id": 1},
        {"het_job_id": 1},
        {"exclusive": True},
        {"priority": 0},  # held
        {"state": "RUNNING", "start_s": 950.0},
        {"features_asked": "a*1"},  # which nodes it may have is not known
    ],
)
def test_cpus__jobs_that_keep_theirs(row: dict[str, Any]) -> None:
    """Whatever else keeps them waiting."""
    assert asks(plan(queue(row))) == {}


def test_cpus__a_number_on_record_stays_while_it_fits() -> None:
    """5 CPUs of ours, and 6 free: nothing is written. With 4 free it is changed; with 16 it has its own again."""
    given = queue({"cpus": 5}, overrides=(record(5),))
    assert own_request(given, CPU_COUNTS).jobs.cpus.tolist() == [16]
    assert asks(plan(given)) == {}
    assert asks(plan(queue({"cpus": 5}, used=60, overrides=(record(5),)))) == {1: (4, 5, 16)}
    made = plan(queue({"cpus": 5}, used=48, overrides=(record(5),)))
    assert asks(made) == {1: (16, 5, 16)} and not made.overrides[-1].open


@pytest.mark.parametrize("more", [{"operations": (OPERATION,)}, {"overrides": LISTED}])
def test_cpus__of_a_job_with_something_else_under_way_stay(more: dict[str, Any]) -> None:
    """Nodes are kept for a job of 5 CPUs, or it has a node list: with 16 it might not fit there. A job of 5 CPUs of
    ours gets no node list and no victims either."""
    known = (record(5), *more.get("overrides", ()))
    assert asks(plan(queue({"cpus": 5}, used=48, **{**more, "overrides": known}))) == {}
    given = queue({"cpus": 5}, {}, overrides=(record(5),))
    assert untouched(given, but=NODE_LIST_FIELDS).tolist() == [True, False]
    assert untouched(given, but=(CPUS,)).tolist() == [False, False]


def test_cpus__no_node_list_is_chosen_while_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be chosen by the number of before, also where the write waits for the next cycle."""
    given, chosen = queue({}, {}), list[Any]()
    monkeypatch.setattr(
        node_list_lever, "node_lists", lambda _, __, managed, *___: chosen.extend(managed) or Proposal()
    )
    none, all_ = np.zeros(2, np.int64), np.ones(2, np.bool_)
    budget = Budget(all_, 9, none, ~all_, GateContext(), {"cpus": Proposal(postponed=(1,))})
    lever = node_list_lever.NodeListLever(BestFit(), PlacementConfig(), ScopeConfig())
    lever.propose(given, Ranking(none), budget)
    assert chosen == [False, True]


def test_cpus__nobody_leaves_for_a_job_that_has_room_by_fewer() -> None:
    """Neither in the cycle that writes its CPUs, nor while it has 6 of ours and a job before it takes 2. Without the
    hint, or without the record, bob's job goes."""
    bob = {"user": "bob", "state": "RUNNING", "submit_s": 901.0, "start_s": 902.0, "run_s": 98.0, "end_s": 90_000.0,
           "node_list": "n1", "cpus": 58, "gpus": 4, "requeueable": True,
           "comment": "slurmsched: preempt=yes ckpt=USR2@9"}  # fmt: skip
    held = [{"job_id": 2, "node": "n1", "gpus": 4}]

    def moved(*waiting: dict[str, Any], known: tuple[Override, ...] = ()) -> set[str]:
        first, *others = ({"time_limit_s": 600.0, **row} for row in waiting)
        given = queue(first, bob, *others, allocations=held, overrides=known)
        return {step.kind for step in plan(given, preempts=True).actions}

    assert moved({}) == {"cpus"}
    assert "signal" in moved({"comment": ""})
    two = ({"cpus": 2, "comment": ""}, {"cpus": 6, "comment": "slurmsched: min_cpus=6"})
    assert moved(*two, known=(record(6, job_id=3, values=()),)) == set()
    assert "signal" in moved(*two)


def test_cpus__go_back_for_good_where_a_limit_asks_for_more() -> None:
    """QOS with MinTRES: the job would wait for good because of us."""
    given = queue({"cpus": 5, "reason": "QOSMinCpuNotSatisfied"}, overrides=(record(5),))
    made = plan(given)
    assert (asks(made), made.overrides[-1].abandoned) == ({1: (16, 5, 16)}, True)
    assert asks(plan(queue({"cpus": 16}, overrides=made.overrides[-1:]))) == {}
    assert asks(plan(queue({"cpus": 5, "reason": "AssocGrpCPUMinutesLimit"}, overrides=(record(5),)))) == {}


def test_cpus__go_back_when_the_lever_is_off_and_at_undo() -> None:
    """Also of a job that waits again after a requeue, which keeps what it was given."""
    given = queue({"cpus": 5, "submit_s": 950.0}, overrides=(record(5),))
    for made in (plan(given, on=False), undo_plan(given)):
        assert asks(made) == {1: (16, 5, 16)}
    assert asks(undo_plan(queue({"cpus": 5, "state": "RUNNING", "start_s": 950.0}, overrides=(record(5),)))) == {}


def test_cpus__what_was_on_record_and_not_sent_is_closed() -> None:
    """A process that dies right before the write: the job has its own, and undo writes nothing once no write can arrive
    any more. Until then the number stays on record, and undo writes the job's own."""
    given, late = queue({}, overrides=(record(5),)), (record(5, since_s=NOW - 30),)
    closed = undo_plan(replace(given, overrides=late))
    assert asks(closed) == {} and not closed.overrides[0].open
    assert asks(undo_plan(given)) == {1: (16, 16, 16)}
    again = plan(replace(given, overrides=(record(5, since_s=NOW - 29),)))
    assert (asks(again), again.overrides[-1].since_s) == ({1: (5, 16, 16)}, NOW)
    free = queue({}, used=0)
    assert (asks(made := plan(replace(free, overrides=late))), made.overrides[0].open) == ({}, False)
    assert plan(replace(free, overrides=(record(5),))).overrides == ()


def test_cpus__what_somebody_else_changed_stays() -> None:
    """8 CPUs are not ours: the job is left alone until it is submitted again, at undo too."""
    given = queue({"cpus": 8}, overrides=(record(5),))
    made = plan(given)
    assert (asks(made), made.overrides[0].state, made.overrides[0].open) == ({}, OverrideState.ABANDONED, False)
    assert asks(undo_plan(given)) == {}
    restored = queue({}, overrides=(record(5, values=()),))  # 5 were in force, and its user has set 16 again
    assert (asks(plan(restored)), plan(restored).overrides[0].state) == ({}, OverrideState.ABANDONED)
    assert asks(undo_plan(restored)) == {}
    assert plan(queue({"cpus": 5}, overrides=(record(5),))).overrides[0].values == ()  # seen in force
    left = record(16, state=OverrideState.ABANDONED)
    assert asks(plan(queue({}, overrides=(left,)))) == {}
    assert asks(plan(queue({"submit_s": 950.0}, overrides=(left,)))) == {1: (6, 16, 16)}


def test_cpus__a_refused_job_is_left_alone() -> None:
    """Its CPUs are asked for in another way: one attempt. What Slurm refused may be in force: the next look tells, and
    a number of ours goes back then. What Slurm took is known."""
    (action,), records = (made := plan(queue({}))).actions, made.overrides
    why = f"{CHANGED}: its CPUsPerTask is 1"

    def after(status: str, message: str = "", before: tuple[Override, ...] = ()) -> Override:
        (found,) = CpuLever.settled(records, before, [Outcome(action, status, message)], 1)
        return found

    assert after("refused", why) == record(16, values=(), state=OverrideState.ABANDONED, note=why)
    known, late = record(7, values=(7,)), record(7)
    assert after("refused", why, (known,)) == replace(known, state=OverrideState.ABANDONED, note=why)
    assert after("refused", why, (late,)) == late  # its write got no answer, and may arrive behind this one
    doubtful = after("refused", "Requested node configuration is not available")
    assert (doubtful.abandoned, doubtful.open) == (True, True)
    assert asks(plan(queue({"cpus": 6}, overrides=(doubtful,)))) == {1: (16, 6, 16)}
    (own,) = plan(queue({}, overrides=(doubtful,))).overrides
    assert (own.abandoned, own.open) == (True, False)
    assert after("written") == replace(records[0], values=(6,))
    assert CpuLever.settled(records, (), [Outcome(action, "unknown")], 1) == ()


def test_cpus__an_earlier_write_may_arrive_behind_a_later_one() -> None:
    """The write of 6 got no answer, that of 5 is taken; then 6 arrive. They are ours, and go back."""
    (planned,) = plan(queue({}, used=59, overrides=(record(6, values=(6, 16)),))).overrides[:1]
    written = Outcome(SetCpus(1, 900.0, "why", "cpus-1", 5, 16, 16), "written")
    (known,) = CpuLever.settled((planned,), (), [written], 1)
    (back,) = undo_plan(queue({"cpus": 6}, overrides=(known,))).actions
    assert isinstance(back, SetCpus) and (back.new, back.old) == (16, 6)


def test_cpus__what_somebody_else_changed_stays_when_the_rest_goes_back() -> None:
    """`scontrol update cpuspertask=8` leaves the two other numbers at our 6: these go back, and the job is left alone.
    Where all of them are another one, nothing goes back, and no later cycle tries again."""
    ours = (record(6),)
    undone = undo_plan(queue({"cpus": 6}, overrides=ours))
    (back,), planned = undone.actions, undone.overrides[-1]
    assert isinstance(back, SetCpus)

    def seen(task: int, job: int, node: int) -> GateContext:
        fields = {"cpus-per-task": str(task), "NumCPUs": str(job), "mincpus": str(node)}
        return GateContext(seen={1: CurrentJob(900.0, JobState.PENDING, 0, fields=fields)})

    assert without_changed_options(back, seen(6, 6, 6)) == back and refusal(back, seen(6, 6, 6), GateTime.SEND) is None
    assert refusal(back, seen(8, 6, 6), GateTime.SEND) is None
    part = without_changed_options(back, seen(8, 6, 6))
    assert command(part) == "update JobId=1 NumCPUs=16 MinCPUsNode=16"
    refused = refusal(back, seen(8, 7, 9), GateTime.SEND)
    assert refused and refused.rule == "value"
    for answer in (Outcome(part, "written"), Outcome(back, "refused", refused.reason)):
        (after,) = CpuLever.settled((planned,), ours, [answer], 1)
        assert (after.abandoned, after.open) == (True, False)
    assert CpuLever.settled((planned,), ours, [Outcome(back, "refused", f"{CHANGED}: it is RUNNING")], 1) == ()
    given = replace(back, new=4, base=16)
    assert refusal(given, seen(6, 6, 1), GateTime.SEND) is not None  # as by --mincpus


def test_cpus__are_written_in_one_command() -> None:
    """Of the job, of its task and of its node; nothing else goes into it."""
    (action,) = (action for action in plan(queue({})).actions if isinstance(action, SetCpus))
    assert command(action) == "update JobId=1 CPUsPerTask=6 NumCPUs=6 MinCPUsNode=6"
    with pytest.raises(ValueError, match="is not a word"):
        command(replace(action, new="6 Nice=0"))  # type: ignore[arg-type]
