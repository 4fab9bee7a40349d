"""Sizes of pending jobs written for the policy: given, changed, given back, and left alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.config import (
    JobReportsConfig,
    LeverConfig,
    OperationsConfig,
    PaceConfig,
    PlacementConfig,
    PreemptionConfig,
    ScopeConfig,
)
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import (
    AskSize,
    JobChanges,
    JobState,
    Operation,
    Outcome,
    Plan,
    Purpose,
    Ranking,
    Rights,
    SetGpuRequest,
    SetSize,
    ShrinkJob,
    Site,
    Snapshot,
)
from slurmsched.model.columns import Labels
from slurmsched.model.gpu_selection import counted
from slurmsched.model.ordering import ordered
from slurmsched.planning.gate import CurrentJob, GateContext, GateTime, refusal
from slurmsched.planning.job_overrides import (
    SIZE_FIELDS,
    JobOverrides,
    by_job,
    records_of,
    restore_proposal,
    settled_size,
)
from slurmsched.planning.job_sizes import own_sizes, running_sizes
from slurmsched.planning.levers import undo_plan
from slurmsched.planning.planner import Planner
from slurmsched.slurm.recorder import OverrideRecorder, repeated
from slurmsched.slurm.writer import command
from slurmsched.testing import snapshot
from tests.unit.planning.node_lists.node_list_cases import ABANDONED, list_overrides, size_override

NOW = 1_000.0
HINT = "slurmsched: min_gpus=1 max_gpus=6"


@dataclass(frozen=True)
class Wanting:
    """A policy that wants each job, by id, to have so many GPUs. It notes how many it sees each ask for."""

    preemptive: ClassVar[bool] = False
    gpus: dict[int, int] = field(default_factory=dict)

    def rank(self, given: Snapshot) -> Ranking:
        jobs = given.jobs
        gpus = np.array([self.gpus.get(int(job), 0) for job in jobs.job_id], np.int32)
        return Ranking(ordered(jobs), why={"asks": jobs.gpus}, changes=JobChanges(gpus=gpus))


def queue(*rows: dict[str, Any], size: str = "2x8", **others: Any) -> Snapshot:
    jobs = [{"job_id": number, "submit_s": 900.0, "gpus": 2, "nodes": 1, "gpu_request": "gpu:2", "comment": HINT, **row}
            for number, row in enumerate(rows, 1)]  # fmt: skip
    return snapshot(jobs, size, now_s=NOW, site=Site(rights=Rights.OPERATOR), **others)


def planner(gpus: dict[int, int], *, on: bool = True) -> Planner:
    return Planner(Wanting(gpus), scope=ScopeConfig(partitions=("gpu",)), lever=LeverConfig(size=on))


def asks(plan: Any) -> dict[int, tuple[str, str, str]]:
    """What is written: job -> the new request, the one it has, its own."""
    return {step.job_id: (step.new, step.old, step.base) for step in plan.actions if step.kind == "retype"}


def record(gpus: str, *requests: str, **others: Any) -> JobOverrides:
    return size_override(gpus, *requests, since_s=NOW, **others)


def test_sizes__nothing_is_written_by_default() -> None:
    """lever.size is off: the policy wants, and nobody tells Slurm."""
    plan = planner({1: 4}, on=False).plan(queue({}))
    assert (asks(plan), by_job(plan.overrides)) == ({}, ())
    assert plan.notes == ("the policy would give 1 job another number of GPUs; set lever.size = true to write that",)


def test_sizes__the_request_is_written_and_on_record() -> None:
    """Of job 1 the number, of job 2 that names its type the number alone; job 3 has what it asks for."""
    given = queue({}, {"gpu_request": "gpu:a100:2"}, {})
    plan = planner({1: 4, 2: 1, 3: 2}).plan(given)
    assert asks(plan) == {1: ("gpu:4", "gpu:2", "gpu:2"), 2: ("gpu:a100:1", "gpu:a100:2", "gpu:a100:2")}
    assert all(isinstance(step, SetSize) for step in plan.actions if step.kind == "retype")
    assert by_job(plan.overrides)[0] == record("gpu:4", "gpu:4", "gpu:2")  # its own: nothing is sent yet
    assert all(pin.sized and pin.open for pin in by_job(plan.overrides))
    assert plan.notes == ()


@pytest.mark.parametrize(
    ("row", "gpus", "rule"),
    [
        ({"comment": ""}, 4, ""),  # it tells no sizes
        ({"comment": "slurmsched: min_gpus=1"}, 4, ""),  # nor its most
        ({}, 7, ""),  # more than it may have
        ({"state": "RUNNING", "start_s": 950.0}, 4, ""),
        ({"priority": 0}, 4, "held"),
        ({"nodes": 2, "gpus": 4, "gpus_by": "job"}, 6, "size-several"),
        ({"nodes": 2, "gpus": 4, "gpus_by": "node", "tasks": 3, "cpus": 6}, 6, "size-uneven"),
        ({"gpus_by": "task", "tasks": 2, "cpus": 3}, 4, "size-uneven"),
        ({"gpus_by": "socket"}, 4, "size-socket"),
        ({"array_job_id": 7}, 4, "size-array"),  # a task with a record of its own
        ({"array_job_id": 1, "nodes": 2, "gpus": 4, "gpus_by": "node", "tasks": 2, "cpus": 2}, 6, "size-array"),
        ({"het_job_id": 1}, 4, "size-het"),
        ({"gpu_request": "gpu:a100:1,gpu:v100:1"}, 4, "size-types"),
        ({"comment": "slurmsched: min_gpus=9 max_gpus=16"}, 16, "size-room"),  # no node has so many
        ({"comment": "slurmsched: min_gpus=1 max_gpus=16", "gpus": 8, "gpu_request": "gpu:8"}, 16, "size-room"),
        ({"features_asked": "a*2"}, 4, "size-room"),  # which nodes it may have is not known
        ({"tasks": 2, "cpus": 1}, 4, ""),  # a gang that lost a node: Slurm shows the other one, until it waits again
    ],
)
def test_sizes__jobs_that_keep_theirs(row: dict[str, Any], gpus: int, rule: str) -> None:
    """Nothing is written, and those that tell sizes hear why."""
    plan = planner({1: gpus}).plan(queue(row))
    assert asks(plan) == {}
    assert [refusal.rule for refusal in plan.refused if refusal.rule != "not-pending"] == ([rule] if rule else [])


def test_sizes__a_size_that_was_not_sent_is_given_again(tmp_path: Path) -> None:
    """A process died before the write. What its user wrote after Slurm took one of ours stands."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    for answered in (False, True):
        pinning = OverrideRecorder(log)
        given = queue({}, overrides=pinning.known)
        plan = planner({1: 4}).plan(given)
        pinning.begin(plan, given.jobs.job_id)
        assert asks(plan) == {1: ("gpu:4", "gpu:2", "gpu:2")}
        pinning.end([Outcome(step, "written") for step in plan.actions] if answered else [])
    assert by_job(OverrideRecorder(log).known) == (record("gpu:4"),)
    assert asks(planner({1: 4}).plan(queue({}, overrides=OverrideRecorder(log).known))) == {}


@pytest.mark.parametrize(("ago_s", "stays"), [(29.0, True), (30.0, False)])
def test_sizes__a_write_without_an_answer_may_arrive_late(ago_s: float, stays: bool) -> None:
    """Its process was killed, and slurmctld had it in its queue: the job's own size is on record until that is over."""
    known = size_override("gpu:4", "gpu:4", "gpu:2", since_s=NOW - ago_s)
    plan = planner({}).plan(queue({}, overrides=records_of((known,))))
    assert (asks(plan), [job.open for job in by_job(plan.overrides)]) == ({}, [] if stays else [False])
    arrived = planner({}).plan(queue({"gpus": 4, "gpu_request": "gpu:4"}, overrides=records_of((known,))))
    assert asks(arrived) == {1: ("gpu:2", "gpu:4", "gpu:2")}
    (again,) = by_job(planner({1: 3}).plan(queue({}, overrides=records_of((known,)))).overrides)
    assert again.since_s == NOW and again.request.base == "gpu:2"
    refused = [Outcome(step, "refused", "why") for step in arrived.actions if isinstance(step, SetSize)]
    assert settled_size(again.records, known.records, refused, 1) == known.records  # 4 may arrive behind it
    (left,) = settled_size(again.records, (), refused, 1)
    assert left.abandoned


GANG = {"nodes": 2, "gpus": 4, "gpus_by": "node", "gpu_request": "gpu:4", "tasks": 4, "cpus": 8}
TASKS = {"gpus_by": "task", "gpu_request": "gpu:a100:2", "tasks": 2, "cpus": 6}


@pytest.mark.parametrize(
    ("row", "want", "texts", "words"),
    [
        ({"gpus_by": "job"}, 4, ("gpu:4", "gpu:2"), "TresPerJob=gres/gpu:4"),
        ({"array_job_id": 1, "array_tasks": 3}, 4, ("gpu:4", "gpu:2"), "Gres=gpu:4"),
        (GANG, 7, ("3 nodes:gpu:6", "2 nodes:gpu:4"), "NumNodes=3 NumTasks=6 NumCPUs=12"),
        (GANG, 2, ("gpu:2", "2 nodes:gpu:4"), "NumNodes=1 NumTasks=2 NumCPUs=4"),
        (TASKS, 5, ("gpu:a100:5", "gpu:a100:2"), "NumTasks=5 NumCPUs=15"),
    ],
)
def test_sizes__each_way_of_asking_has_its_own_options(
    row: dict[str, Any], want: int, texts: tuple[str, str], words: str
) -> None:
    """A gang changes in whole nodes, one that asks by task in whole tasks. What the job then asks for gives its own
    back, whatever the size between."""
    (step,) = [step for step in planner({1: want}).plan(queue(row, size="4x8")).actions if isinstance(step, SetSize)]
    assert ((step.new, step.old), command(step)) == (texts, f"update JobId=1 {words}")
    nodes, tasks, cpus = ((step.scaled(number) if step.scales else number)
                          for number in (step.nodes, step.tasks, step.cpus))  # fmt: skip
    has = {**row, "gpus": counted(step.new), "gpu_request": step.new.rpartition(" nodes:")[2], "nodes": nodes,
           "tasks": tasks, "cpus": cpus}  # fmt: skip
    size = JobOverrides.blank(SIZE_FIELDS, 1, 900.0, NOW).with_request(base=texts[1], sent=texts[0])
    given = queue(has, size="4x8", overrides=records_of((size,)))
    seen = own_sizes(given).jobs
    own = queue(row).jobs
    assert all(
        getattr(seen, name).tolist() == getattr(own, name).tolist() for name in ("gpus", "nodes", "tasks", "cpus")
    )
    (back,) = restore_proposal(given, SIZE_FIELDS, "undo").actions
    assert (back.new, back.old) == (texts[1], texts[0])
    own_words = {"Gres": "Gres=gpu:2", "TresPerJob": "TresPerJob=gres/gpu:2", "NumTasks": "NumTasks=2 NumCPUs=6",
                 "NumNodes": "NumNodes=2 NumTasks=4 NumCPUs=8"}[words.partition("=")[0]]  # fmt: skip
    assert command(back) == f"update JobId=1 {own_words}"


@pytest.mark.parametrize(("row", "most"), [(GANG, 6), ({**TASKS, "cpus": 2 * 20}, 3)])
def test_sizes__no_more_than_the_nodes_have(row: dict[str, Any], most: int) -> None:
    """Three nodes have two GPUs free of any job; a node of 64 CPUs has three tasks of 20. More is cut to that."""
    given = queue({**row, "comment": "slurmsched: min_gpus=1 max_gpus=16"}, size="3x8")
    given = replace(given, nodes=given.nodes.with_columns(cpus=np.full(3, 64, given.nodes.cpus.dtype)))
    for want in (most, most + 2):
        plan = planner({1: want}).plan(given)
        assert plan.refused == ()
        (step,) = [step for step in plan.actions if isinstance(step, SetSize)]
        assert counted(step.new) == most


def test_sizes__a_task_that_left_its_array_takes_the_record_along() -> None:
    """Task 2 runs and task 3 was requeued, both with the size of ours: each has a record of its own from now on. Task 4
    started before."""
    record_of = records_of((record("gpu:4"),))
    has = {"gpus": 4, "gpu_request": "gpu:4", "array_job_id": 1}
    given = queue(has, {**has, "state": "RUNNING", "start_s": 950.0}, has, {**has, "gpus": 2, "gpu_request": "gpu:2"},
                  overrides=record_of)  # fmt: skip
    undone = restore_proposal(given, SIZE_FIELDS, "undo")
    assert asks(undone) == {1: ("gpu:2", "gpu:4", "gpu:2"), 3: ("gpu:2", "gpu:4", "gpu:2")}
    plan = planner({1: 4, 3: 4}).plan(given)
    assert asks(plan) == {3: ("gpu:2", "gpu:4", "gpu:2")}  # a task by itself keeps no size of ours
    last = {each.job_id: each.open for each in plan.overrides}  # of several with one key the last counts
    assert last == {2: True, 3: False}


def test_sizes__jobs_alike_may_be_let_into_other_partitions() -> None:
    """The node of 8 GPUs is in a partition of one account, for short jobs: only the first job may have it."""
    job = {"partition": "big,gpu", "account": "phys", "time_limit_s": 600.0}
    given = queue(job, {**job, "account": "chem"}, {**job, "time_limit_s": 7_200.0}, size="2x8")
    nodes = given.nodes.with_columns(gpus=np.array([8, 2], np.int32), partitions=Labels.of(["big", "gpu"]))
    parts = given.partitions.take([0, 0]).with_columns(
        name=Labels.of(["big", "gpu"]), allow_accounts=Labels.of(["phys", ""]), max_time_s=[3_600.0, np.inf]
    )
    plans = replace(planner(dict.fromkeys((1, 2, 3), 6)), scope=ScopeConfig(partitions=("big", "gpu")))
    plan = plans.plan(replace(given, nodes=nodes, partitions=parts))
    assert [(job, new) for job, (new, _, _) in asks(plan).items()] == [(1, "gpu:6")]


@pytest.mark.parametrize(("cpus", "memory_mib", "fits"), [(8, 900.0, True), (9, 900.0, False), (8, 1_100.0, False)])
def test_sizes__a_node_of_so_many_gpus_has_its_cpus_and_memory(cpus: int, memory_mib: float, fits: bool) -> None:
    """n1 has 8 GPUs, few CPUs and little memory, n2 two GPUs and plenty: 6 GPUs would wait for ever."""
    given = queue({"cpus": cpus, "memory_mib": memory_mib}, {"cpus": 1, "memory_mib": 1.0})
    columns = {"gpus": [8, 2], "cpus": [8, 64], "memory_mib": [1_000.0, 1e6]}
    nodes = given.nodes.with_columns(
        **{name: np.array(values, getattr(given.nodes, name).dtype) for name, values in columns.items()}
    )
    plan = planner({1: 6, 2: 6}).plan(replace(given, nodes=nodes))
    assert sorted(asks(plan)) == ([1, 2] if fits else [2])
    assert [refusal.rule for refusal in plan.refused] == ([] if fits else ["size-room"])


@pytest.mark.parametrize(
    ("reason", "size", "back"),
    [
        ("QOSMaxGRESPerUser", 4, True),
        ("AssocGrpGRES", 4, True),
        ("QOSGrpBilling", 4, True),
        ("Resources", 4, False),
        ("QOSMaxGRESPerUser", 1, False),  # its own asks for more
        ("QOSMinGRES", 1, True),
    ],
)
def test_sizes__a_size_that_waits_for_a_limit_goes_back(reason: str, size: int, back: bool) -> None:
    """Slurm lets an Operator write past the limits of a job's user. It gets none again until it has run."""
    has = {"gpus": size, "gpu_request": f"gpu:{size}", "reason": reason}
    plan = planner({1: size}).plan(queue(has, overrides=records_of((record(f"gpu:{size}"),))))
    assert asks(plan) == ({1: ("gpu:2", f"gpu:{size}", "gpu:2")} if back else {})
    if back:
        assert [pin.abandoned for pin in by_job(plan.overrides)] == [True]
        assert asks(planner({1: size}).plan(queue({}, overrides=plan.overrides))) == {}


def test_sizes__a_job_at_a_limit_gets_no_more() -> None:
    """Fewer it may have. A limit of nodes concerns a gang, whose nodes are its size."""
    for row, size in (({}, 4), ({**GANG, "cpus": 4}, 6)):
        kept = asks(planner({1: size}).plan(queue({**row, "reason": "AssocGrpNodeLimit"}, size="4x8"))) == {}
        assert kept == bool(row)
    assert asks(planner({1: 4}).plan(queue({"reason": "QOSMaxGRESPerJob"}))) == {}
    assert asks(planner({1: 1}).plan(queue({"reason": "QOSMaxGRESPerJob"}))) == {1: ("gpu:1", "gpu:2", "gpu:2")}


@pytest.mark.parametrize(("has", "expected"), [("gpu:2", ["gpu:6"]), ("gpu:4", ["gpu:6", "gpu:2"])])
def test_sizes__a_refused_one_is_not_tried_again(has: str, expected: list[str], tmp_path: Path) -> None:
    """The gate's own reason is on record. A job that has one of ours gets its own back; then it is left alone."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    log.record(records_of([record(has)]) if has != "gpu:2" else [])
    pinning, written = OverrideRecorder(log), []
    for _ in range(4):
        given = queue({"gpus": int(has[4:]), "gpu_request": has}, overrides=pinning.known)
        plan = planner({1: 6}).plan(given)
        pinning.begin(plan, given.jobs.job_id)
        steps = [step for step in plan.actions if isinstance(step, SetGpuRequest)]
        status = {"gpu:6": "refused"}
        pinning.end([Outcome(step, status.get(step.new, "written"), "memory by GPU") for step in steps])
        has = next((step.new for step in steps if step.new != "gpu:6"), has)
        written += [(step.new, step.operation) for step in steps]
    assert written == [(gpus, "size-1") for gpus in expected]
    (left,) = by_job(pinning.known)
    assert (has, left.abandoned, left.open, left.note) == ("gpu:2", True, False, "memory by GPU")
    assert by_job(log.known().values()) == (left,)


OTHER = "changed since the snapshot: it asks for gpu:4,nic:1"


def test_sizes__a_refusal_to_give_it_back_is_told_once(tmp_path: Path) -> None:
    """Its user added another GRES to a size of ours, which Slurm's list of jobs does not show: the write is tried each
    cycle, and the refusal told once, and again after a requeue or for another reason. When the other GRES is gone the
    job has its own again, and no size until it has run."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    log.record(records_of([record("gpu:4")]))
    told, submit_s = [], 900.0
    for refused in (OTHER, OTHER, OTHER, "another", "another", OTHER, "requeued", OTHER, OTHER, ""):
        submit_s += 10.0 * (refused == "requeued")
        pinning = OverrideRecorder(log)  # as the timer does
        given = queue({"gpus": 4, "gpu_request": "gpu:4", "submit_s": submit_s}, overrides=pinning.known)
        plan = planner({1: 6 if refused == "requeued" else 2}).plan(given)
        pinning.begin(plan, given.jobs.job_id)
        (step,) = [step for step in plan.actions if isinstance(step, SetGpuRequest)]
        outcome = Outcome(step, "refused" if refused else "written", OTHER if refused == "requeued" else refused)
        pinning.end([outcome])
        told.append(not repeated(outcome))
    assert told == [True, False, False, True, False, True, True, False, False, True]
    (left,) = by_job(OverrideRecorder(log).known)
    assert (left.abandoned, left.open) == (True, False)
    assert asks(planner({1: 6}).plan(queue({"submit_s": submit_s}, overrides=records_of((left,))))) == {}


def test_sizes__undo_tells_every_refusal(tmp_path: Path) -> None:
    """Whatever was told before."""
    log = OverrideLog(tmp_path / "journal.jsonl")
    log.record(records_of([record("gpu:4", **ABANDONED, note=OTHER)]))
    given = queue({"gpus": 4, "gpu_request": "gpu:4"}, overrides=OverrideRecorder(log).known)
    (step,) = restore_proposal(given, SIZE_FIELDS, "undo: its own").actions
    assert (step.new, repeated(Outcome(step, "refused", OTHER))) == ("gpu:2", False)


def test_sizes__a_policy_sees_what_the_user_asked_for() -> None:
    """Of a waiting job; one that runs has what it has."""
    given = queue({"gpus": 4, "gpu_request": "gpu:4"}, overrides=records_of((record("gpu:4"),)))
    assert own_sizes(given).jobs.gpus.tolist() == [2]
    assert planner({1: 4}).plan(given).ranking.why["asks"].tolist() == [2]
    runs = queue(
        {"gpus": 4, "gpu_request": "gpu:4", "state": "RUNNING", "start_s": 950.0},
        overrides=records_of((record("gpu:4"),)),
    )
    assert own_sizes(runs).jobs.gpus.tolist() == [4]


@pytest.mark.parametrize(
    ("want", "written"),
    [
        (4, {}),  # it has it
        (6, {1: ("gpu:6", "gpu:4", "gpu:2")}),
        (2, {1: ("gpu:2", "gpu:4", "gpu:2")}),  # as it asks
        (0, {1: ("gpu:2", "gpu:4", "gpu:2")}),
    ],
)
def test_sizes__a_job_that_has_one_of_ours(want: int, written: dict[int, tuple[str, str, str]]) -> None:
    """It stays, becomes another one, or is given back."""
    plan = planner({1: want}).plan(queue({"gpus": 4, "gpu_request": "gpu:4"}, overrides=records_of((record("gpu:4"),))))
    assert asks(plan) == written
    assert [pin.open for pin in by_job(plan.overrides)] == [want == 6] * len(written)


def test_sizes__go_back_when_the_lever_is_turned_off_and_at_undo() -> None:
    """Both write the job's own request."""
    given = queue({"gpus": 4, "gpu_request": "gpu:4"}, overrides=records_of((record("gpu:4"),)))
    back = {1: ("gpu:2", "gpu:4", "gpu:2")}
    assert asks(planner({1: 4}, on=False).plan(given)) == back
    undone = restore_proposal(given, SIZE_FIELDS, "undo")
    assert (asks(undone), [pin.open for pin in by_job(undone.overrides)], type(undone.actions[0])) == (
        back,
        [False],
        SetSize,
    )


def test_sizes__somebody_elses_request_stands() -> None:
    """The record is over: neither this cycle nor a later one writes, until the job has run."""
    given = queue({"gpus": 3, "gpu_request": "gpu:3"}, overrides=records_of((record("gpu:4"),)))
    plan = planner({1: 6}).plan(given)
    (left,) = by_job(plan.overrides)
    assert (asks(plan), left.abandoned, left.open) == ({}, True, False)
    assert asks(planner({1: 6}).plan(replace(given, overrides=records_of((left,))))) == {}
    again = replace(given, jobs=given.jobs.with_columns(submit_s=np.array([990.0])), overrides=records_of((left,)))
    assert asks(planner({1: 6}).plan(again)) == {1: ("gpu:6", "gpu:3", "gpu:3")}


def test_sizes__a_requeued_job_keeps_its_record() -> None:
    """A requeue keeps the request and moves the submission: the job still has its own to get back."""
    given = queue({"gpus": 4, "gpu_request": "gpu:4", "submit_s": 990.0}, overrides=records_of((record("gpu:4"),)))
    plan = planner({1: 0}).plan(given)
    assert asks(plan) == {1: ("gpu:2", "gpu:4", "gpu:2")}
    assert by_job(plan.overrides)[-1].submit_s == 990.0


def test_sizes__what_a_user_changes_after_a_requeue_stands() -> None:
    """The record learns the new submission first: the job is left alone for that one."""
    given = queue({"gpus": 3, "gpu_request": "gpu:3", "submit_s": 990.0}, overrides=records_of((record("gpu:4"),)))
    plan = planner({1: 6}).plan(given)
    (left,) = by_job(plan.overrides)
    assert (asks(plan), left.abandoned, left.submit_s) == ({}, True, 990.0)


@pytest.mark.parametrize("want", [0, 2, 4, 6])
def test_sizes__a_job_for_which_others_leave_keeps_what_it_has(want: int) -> None:
    """An operation was planned for the size that it has: its own, or one of ours."""
    operation = Operation("1-9", Purpose.PREEMPT, 1, 900.0, "bob", "n1", 60.0, 990.0)
    ours = queue({"gpus": 4, "gpu_request": "gpu:4"}, overrides=records_of((record("gpu:4"),)), operations=(operation,))
    for given in (queue({}, operations=(operation,)), ours):
        plan = planner({1: want}).plan(given)
        assert (asks(plan), by_job(plan.overrides)) == ({}, ())


@dataclass(frozen=True)
class Later(Wanting):
    """It wants each job to start ten minutes from now besides."""

    def rank(self, given: Snapshot) -> Ranking:
        ranking = Wanting.rank(self, given)
        assert ranking.changes is not None
        return replace(ranking, changes=replace(ranking.changes, start_s=np.full(len(given.jobs), NOW + 600.0)))


def test_sizes__a_start_of_ours_leaves_the_size() -> None:
    """Both are written in one cycle; in the next the job waits for its start by us, and could start for its user."""
    made = replace(planner({}), policy=Later({1: 4}), lever=LeverConfig(size=True, start=True))
    first = made.plan(queue({}))
    assert (asks(first), [each.field for each in first.overrides]) == (
        {1: ("gpu:4", "gpu:2", "gpu:2")},
        ["start_time", "size"],
    )
    has = {"gpus": 4, "gpu_request": "gpu:4", "eligible_s": first.overrides[0].sent}
    assert asks(made.plan(queue(has, overrides=first.overrides))) == {}


@dataclass(frozen=True)
class Typed(Wanting):
    """It wants the GPU type of n1 for each job besides."""

    def rank(self, given: Snapshot) -> Ranking:
        ranking = Wanting.rank(self, given)
        assert ranking.changes is not None
        return replace(ranking, changes=replace(ranking.changes, gpu_type=Labels.of(["a100"] * len(given.jobs))))


def both(gpus: dict[int, int]) -> Planner:
    made = registry.make_plugin("placements", "consolidated", {}, key="placement")
    return replace(planner(gpus), policy=Typed(gpus), placement=made, placement_config=PlacementConfig(types=True))


LIST = list_overrides(1, "n1", submit_s=900.0, since_s=NOW)


@pytest.mark.parametrize(
    ("row", "pin"),
    [
        ({"gpus": 4, "gpu_request": "gpu:4"}, record("gpu:4")),  # it has the size that the policy wants
        ({"gpus": 3, "gpu_request": "gpu:3"}, record("gpu:2", "gpu:4", **ABANDONED)),
        ({"nodes_asked": "n1"}, LIST),
        ({}, LIST.with_nodes(sent="").with_all(**ABANDONED)),
    ],
)
def test_sizes__a_job_has_one_kind_of_record(row: dict[str, Any], pin: JobOverrides) -> None:
    """Whatever is on record of it, open or left alone, stays: neither part writes over what the other has to undo."""
    plan = both({1: 4}).plan(queue(row, overrides=records_of((pin,))))
    assert ([step.kind for step in plan.actions if step.kind in ("pin", "retype")], by_job(plan.overrides)) == ([], ())


def test_sizes__of_a_new_job_the_size_comes_first() -> None:
    """Both parts are on: no list in the same cycle, nor in the next."""
    plan = both({1: 4}).plan(queue({}))
    assert ([step.kind for step in plan.actions if step.kind in ("pin", "retype")], len(by_job(plan.overrides))) == (
        ["retype"],
        1,
    )
    typed = both({}).plan(queue({}))
    assert [step.kind for step in typed.actions if step.kind == "pin"] == ["pin"]


def by_id(seen: Snapshot, sizes: dict[int, int]) -> dict[int, int]:
    return {int(seen.jobs.job_id[row]): gpus for row, gpus in sizes.items()}


RUNS = {"state": "R", "requeueable": True, "run_s": 700.0, "executed_s": 700.0, "start_s": 200.0}


@pytest.mark.parametrize(
    ("job", "gpus", "expected"),
    [({}, 4, {1: 4}), ({}, 1, {1: 1}), ({}, 2, {}), ({}, 0, {}), ({}, 7, {}), ({"wanted_gpus": 4}, 4, {}),
     ({"wanted_gpus": 4}, 2, {1: 0}), ({"wanted_gpus": 4}, 0, {}), ({"wanted_gpus": 4}, 5, {1: 5}),
     ({"run_s": 500.0}, 4, {}), ({"requeueable": False}, 4, {}), ({"batch": False}, 4, {}), ({"nodes": 2}, 4, {}),
     ({"partition": "other"}, 4, {}), ({"comment": ""}, 4, {}), ({"state": "PD"}, 4, {}),
     ({"array_job_id": 1}, 4, {}), ({"het_job_id": 1}, 4, {}), ({"gpu_request": "gpu:a:1,gpu:b:1"}, 4, {}),
     ({"comment": f"{HINT} progress=99/100"}, 4, {}), ({"comment": f"{HINT} progress=50/100"}, 4, {1: 4}),
     ({"comment": f"{HINT} progress=50/100 restart=1h"}, 4, {}), ({"comment": f"{HINT} progress=99/100"}, 1, {1: 1}),
     ({"comment": f"{HINT} progress=50/100", "moved_cost_s": 3_600.0}, 4, {})],
)  # fmt: skip
def test_running_sizes__ask_who_gains_more_than_a_restart_costs(job, gpus, expected):
    """Within the hints, of jobs that may be requeued and have run a while, and whose size may change while they wait.
    What was asked is taken back where the policy wants the job as it is. Shrinking is for others, whatever is left."""
    seen = queue(RUNS | job)
    ranking = Ranking(np.arange(1), changes=JobChanges(gpus=np.array([gpus], np.int32)))
    scope, reports = ScopeConfig(partitions=("gpu",)), JobReportsConfig(folder="/x", sizes=True)
    assert by_id(seen, running_sizes(seen, ranking, reports, scope, 120.0)) == expected


def test_running_sizes__no_more_than_a_node_has():
    """A job of one node would requeue itself for a size that is refused while it waits, and again after that."""
    ranking = Ranking(np.arange(1), changes=JobChanges(gpus=np.array([4], np.int32)))
    for size, expected in (("2x4", {1: 4}), ("2x3", {1: 3}), ("2x2", {})):
        seen = queue(RUNS, size=size)
        assert (
            by_id(seen, running_sizes(seen, ranking, JobReportsConfig(sizes=True), ScopeConfig(partitions=("*",))))
            == expected
        )


def test_running_sizes__are_asked_of_few_jobs_a_cycle():
    """As operations begin; taking back is free."""
    seen = queue(*({**RUNS, "wanted_gpus": 3 if job == 1 else 0} for job in range(5)))
    ranking = Ranking(np.array([4, 3, 2, 1, 0]), changes=JobChanges(gpus=np.array([4, 2, 4, 4, 4], np.int32)))
    found = running_sizes(seen, ranking, JobReportsConfig(sizes=True), ScopeConfig(partitions=("*",)), 0.0, 2)
    assert by_id(seen, found) == {2: 0, 5: 4, 4: 4}


def asked(plan: Plan) -> list[tuple[int, int, int]]:
    """Job, GPUs and restarts of the requests of a plan."""
    return [(step.job_id, step.gpus, step.restarts) for step in plan.actions if isinstance(step, AskSize)]


def test_running_sizes__are_actions_of_the_plan_and_undo_clears_them():
    """With a reason, within the writes of a cycle, only where they are turned on; undo asks no job for a size, whoever
    asked it."""
    seen = queue(RUNS | {"restarts": 2}, RUNS, {"wanted_gpus": 4, "restarts": 1}, RUNS | {"wanted_gpus": 3})
    on = replace(planner({1: 4, 2: 1}), reports=JobReportsConfig(folder="/x", sizes=True))
    plan = on.plan(seen)
    assert (asked(plan), asked(planner({1: 4}).plan(seen))) == ([(1, 4, 2), (2, 1, 0)], [])
    assert "the policy wants it on 4 of the GPUs that its hints allow; it has 2 GPUs" in [
        step.reason for step in plan.actions
    ]
    few = replace(on, pace=PaceConfig(writes_per_cycle=1)).plan(queue(RUNS, RUNS))
    assert (asked(few), few.deferred) == ([(1, 4, 0)], 1)
    assert asked(undo_plan(seen)) == [(3, 0, -1), (4, 0, -1)]


def test_sizes__a_job_that_left_for_a_size_gets_it_before_it_may_start():
    """While it waits for its begin time the policy says nothing; what the policy says later counts more."""
    left = {"restarts": 1, "wanted_gpus": 4, "eligible_s": NOW + 100}
    assert asks(planner({}).plan(queue(left))) == {1: ("gpu:4", "gpu:2", "gpu:2")}
    assert asks(planner({1: 6}).plan(queue(left | {"eligible_s": 0.0}))) == {1: ("gpu:6", "gpu:2", "gpu:2")}
    assert asks(planner({}).plan(queue(left | {"wanted_gpus": 7}))) == {}
    assert asks(planner({}).plan(queue(left | {"restarts": 0}))) == {}
    assert asks(planner({}, on=False).plan(queue(left))) == {}


SHRINKS = {"nodes": 4, "gpus": 8, "gpus_by": "node", "gpu_request": "gpu:8", "tasks": 4, "cpus": 8, "state": "RUNNING",
           "start_s": NOW - 700, "run_s": 700.0, "comment": "slurmsched: min_gpus=3 max_gpus=8 shrink=yes"}  # fmt: skip


WAITS = {"submit_s": 950.0, "comment": ""}  # for two GPUs of one node


def shrink_plan(want: int, *rows: dict[str, Any], on: bool = True, most: int = 4, free: int = 0, **others: Any) -> Plan:
    """Of a queue whose first jobs run and have two GPUs on each of their nodes; nodes after these have `free` GPUs."""
    running, held = [row for row in rows if row.get("state") == "RUNNING"], list[dict[str, Any]]()
    for number, row in enumerate(running, 1):
        held += [{"job_id": number, "node": f"n{len(held) + at}", "gpus": 2} for at in range(1, row["nodes"] + 1)]
    given = queue(*rows, size=f"{len(held) + 1}x2", allocations=held)
    used = np.array([*(2 for _ in held), 2 - free], given.nodes.gpus_used.dtype)
    given = replace(given, nodes=given.nodes.with_columns(gpus_used=used), **others)
    made = replace(planner(dict.fromkeys(range(1, len(running) + 1), want)), lever=LeverConfig(shrink=on),
                   reports=JobReportsConfig(sizes=True), operations_config=OperationsConfig(per_cycle=most),
                   preemption=PreemptionConfig(enabled=True, least_factor=0, restart_cost_s=0))  # fmt: skip
    return made.plan(given)


def shrunk(want: int, row: dict[str, Any], *waiting: dict[str, Any], **others: Any) -> list[tuple[int, int, str]]:
    """Nodes that the job is to keep, those it has, and the command."""
    steps = shrink_plan(want, SHRINKS | row, *(waiting or (WAITS,)), **others).actions
    assert not {"want", "shrink"} <= {step.kind for step in steps}
    return [(step.nodes, step.old, command(step)) for step in steps if isinstance(step, ShrinkJob)]


@pytest.mark.parametrize(
    ("want", "row", "nodes"),
    [
        (5, {}, 2),  # whole nodes
        (8, {}, 0),
        (3, {}, 0),  # one node has two GPUs, less than it needs
        (4, {"comment": "slurmsched: min_gpus=3 max_gpus=8"}, 0),  # it did not agree
        (4, {"comment": "slurmsched: max_gpus=8 shrink=yes"}, 0),
        (4, {"gpus_by": "job"}, 0),  # Slurm spreads these unevenly
        (4, {"array_job_id": 1}, 0),
        (4, {"tasks": 5, "cpus": 9}, 2),  # as of a job that has lost nodes before
        (4, {"run_s": 100.0}, 0),  # it runs for less than job_reports.least_run_s
        (4, {"comment": "slurmsched: min_gpus=3 max_gpus=8 shrink=yes progress=99/100 restart=60s"}, 0),  # 7 s are left
        (4, {"comment": "slurmsched: min_gpus=3 max_gpus=8 shrink=yes progress=50/100 restart=60s"}, 2),
    ],
)
def test_shrink__takes_whole_nodes_of_a_running_job_that_agreed(want: int, row: dict[str, Any], nodes: int) -> None:
    """Never below min_gpus, and not where that costs more than is left to do. It is not asked to leave besides."""
    assert shrunk(want, row) == ([(nodes, 4, f"update JobId=1 NumNodes={nodes}")] if nodes else [])


def test_shrink__is_off_by_default_and_where_slurm_forbids_it() -> None:
    """disable_job_shrink of SchedulerParameters; a job with an operation under way keeps its nodes."""
    site = Site(rights=Rights.OPERATOR, settings={"SchedulerParameters": "bf_continue,disable_job_shrink"})
    operation = Operation("1-9", Purpose.PREEMPT, 1, 900.0, "bob", "n1", 60.0, 990.0)
    assert shrunk(4, {}, on=False) == shrunk(4, {}, site=site) == shrunk(4, {}, operations=(operation,)) == []


@pytest.mark.parametrize(
    ("waiting", "free", "nodes"),
    [
        ({}, 0, 2),
        ({}, 2, 0),  # it starts without them
        ({"priority": 0}, 0, 0),  # held
        ({"reason": "QOSMaxGRESPerUser"}, 0, 0),  # it waits for a limit
        ({"gpus": 3, "gpu_request": "gpu:3"}, 0, 0),  # no node has three
        ({"nodes_excluded": "n[3-4]"}, 0, 0),  # the job would keep the others
        ({"nodes": 2, "gpus": 4, "tasks": 2, "cpus": 2}, 0, 2),
        ({"nodes": 3, "gpus": 6, "tasks": 3, "cpus": 3}, 0, 0),  # two nodes are too few
        ({"state": "RUNNING", "start_s": 950.0, "nodes": 1}, 0, 0),  # nobody waits
    ],
)
def test_shrink__only_where_a_waiting_job_needs_the_nodes(waiting: dict[str, Any], free: int, nodes: int) -> None:
    """A running job gets no node back, so it loses none for nobody."""
    assert [kept for kept, *_ in shrunk(4, {}, WAITS | waiting, free=free)] == ([nodes] if nodes else [])


def test_shrink__a_job_that_can_be_requeued_is_asked_instead() -> None:
    """After a requeue a job that lost nodes could wait with fewer tasks than its user asked for."""
    row = SHRINKS | {"batch": True, "requeueable": True}
    assert {step.kind for step in shrink_plan(4, row, WAITS).actions} == {"want"}


def test_shrink__leaves_out_the_victims_of_operations_that_begin_now() -> None:
    """A job that is signalled in this cycle needs its nodes to save itself. Job 2 would get the nodes in both ways."""
    first = {"nodes": 4, "gpus": 8, "gpus_by": "node", "gpu_request": "gpu:8", "tasks": 4, "cpus": 4,
             "priority": 1_000, "time_limit_s": 600.0, "submit_s": 1.0, "user": "bob", "comment": ""}  # fmt: skip
    victim = SHRINKS | {"batch": True, "requeueable": True, "user": "ann", "time_limit_s": 90_000.0,
                        "run_s": 5_000.0, "start_s": NOW - 5_000, "end_s": NOW + 80_000, "submit_s": 2.0,
                        "comment": f"{SHRINKS['comment']} preempt=yes ckpt=USR1@60"}  # fmt: skip
    site = Site(rights=Rights.ADMINISTRATOR)
    made = shrink_plan(4, victim, first, WAITS, site=site)
    assert {step.kind for step in made.actions if step.job_id == 1} & {"signal", "shrink"} == {"signal"}
    firm = victim | {"requeueable": False}
    assert {step.kind for step in shrink_plan(4, firm, WAITS, site=site).actions if step.job_id == 1} == {"shrink"}


def test_shrink__says_who_keeps_nodes_and_who_waits_for_the_next_cycle() -> None:
    """By the rule of sizes; beyond operations.per_cycle a job is postponed."""
    refused = shrink_plan(4, SHRINKS | {"gpus_by": "job"}, WAITS).refused
    assert [(each.job_id, each.rule) for each in refused if each.job_id == 1] == [(1, "size-several")]
    gang = WAITS | {"nodes": 4, "gpus": 8, "gpus_by": "node", "gpu_request": "gpu:8", "tasks": 4, "cpus": 4}
    counts = [(sum(step.kind == "shrink" for step in made.actions), made.deferred)
              for most in (4, 1) if (made := shrink_plan(4, SHRINKS, SHRINKS, gang, most=most))]  # fmt: skip
    assert counts == [(2, 0), (1, 1)]


@pytest.mark.parametrize(
    ("state", "nodes", "restarts", "comment", "rule"),
    [
        ("RUNNING", 4, "0", SHRINKS["comment"], ""),
        ("RUNNING", 3, "0", SHRINKS["comment"], "request"),
        ("PENDING", 4, "0", SHRINKS["comment"], "state"),
        ("RUNNING", 4, "1", SHRINKS["comment"], "other-run"),
        ("RUNNING", 4, "0", "", "size"),  # its user takes the hint back
        ("RUNNING", 4, "0", "slurmsched: min_gpus=5 shrink=yes", "size"),
        ("RUNNING", 4, "0", None, "size"),  # it could not be read
    ],
)
def test_shrink__only_while_the_job_runs_on_as_many_nodes(
    state: str, nodes: int, restarts: str, comment: str | None, rule: str
) -> None:
    """In the same run, and while its user agrees. NumNodes of a waiting job would change its request."""
    step = ShrinkJob(1, 900.0, "", "shrink-1", 2, 4, 4, 0)
    fields = {"NumNodes": str(nodes), "RestartCnt": restarts}
    seen = CurrentJob(900.0, JobState[state], 0, fields=fields, comment=comment)
    found = refusal(step, GateContext(seen={1: seen}), GateTime.SEND)
    assert (found.rule if found else "") == rule
    view = GateContext(queue(SHRINKS), ScopeConfig(partitions=("gpu",)))
    assert refusal(step, view, GateTime.PLAN) is None
    less = refusal(replace(step, nodes=1, gpus=2), view, GateTime.PLAN)
    assert less is not None and less.rule == "size"
