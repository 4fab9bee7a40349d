"""Sizes of pending jobs written for the policy: given, changed, given back, and left alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.config import Lever, Placement, Scope
from slurmsched.db.pins import PinLog
from slurmsched.model import Act, Outcome, Pin, Purpose, Ranking, Retype, Rights, Site, Snapshot, Wants
from slurmsched.model.columns import Labels
from slurmsched.planning.pin_records import given_back
from slurmsched.planning.planner import Planner
from slurmsched.planning.sizes import own_sizes
from slurmsched.policies.order import ordered
from slurmsched.slurm.pinning import Pinning, repeated
from slurmsched.testing import snapshot

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
        return Ranking(ordered(jobs), why={"asks": jobs.gpus}, wants=Wants(gpus=gpus))


def queue(*rows: dict[str, Any], size: str = "2x8", **others: Any) -> Snapshot:
    jobs = [{"job_id": number, "submit_s": 900.0, "gpus": 2, "nodes": 1, "gpu_request": "gpu:2", "comment": HINT, **row}
            for number, row in enumerate(rows, 1)]  # fmt: skip
    return snapshot(jobs, size, now_s=NOW, site=Site(rights=Rights.OPERATOR), **others)


def planner(gpus: dict[int, int], *, on: bool = True) -> Planner:
    return Planner(Wanting(gpus), scope=Scope(partitions=("gpu",)), lever=Lever(size=on))


def asks(plan: Any) -> dict[int, tuple[str, str, str]]:
    """What is written: job -> the new request, the one it has, its own."""
    return {step.job_id: (step.gpus, step.was, step.base) for step in plan.actions if step.kind == "retype"}


def record(gpus: str, *requests: str, job: int = 1, **others: Any) -> Pin:
    return Pin(job, 900.0, "", "", NOW, gpus=gpus, own_gpus="gpu:2", requests=requests or (gpus,), **others)


def test_sizes__nothing_is_written_by_default() -> None:
    """lever.size is off: the policy wants, and nobody tells Slurm."""
    plan = planner({1: 4}, on=False).plan(queue({}))
    assert (asks(plan), plan.pins) == ({}, ())
    assert plan.notes == ("the policy wants 1 job to have another number of GPUs: lever.size = true tells Slurm",)


def test_sizes__the_request_is_written_and_on_record() -> None:
    """Of job 1 the number, of job 2 that names its type the number alone; job 3 has what it asks for."""
    given = queue({}, {"gpu_request": "gpu:a100:2"}, {})
    plan = planner({1: 4, 2: 1, 3: 2}).plan(given)
    assert asks(plan) == {1: ("gpu:4", "gpu:2", "gpu:2"), 2: ("gpu:a100:1", "gpu:a100:2", "gpu:a100:2")}
    assert all(step.resizes for step in plan.actions if step.kind == "retype")
    assert plan.pins[0] == record("gpu:4")
    assert all(pin.sized and pin.open for pin in plan.pins)
    assert plan.notes == ()


@pytest.mark.parametrize(
    ("row", "gpus", "rule"),
    [
        ({"comment": ""}, 4, ""),  # it tells no sizes
        ({"comment": "slurmsched: min_gpus=1"}, 4, ""),  # nor its most
        ({}, 7, ""),  # more than it may have
        ({"state": "RUNNING", "start_s": 950.0}, 4, ""),
        ({"priority": 0}, 4, "held"),
        ({"nodes": 2, "gpus": 4}, 6, "size-several"),
        ({"array_job_id": 1}, 4, "size-array"),
        ({"het_job_id": 1}, 4, "size-het"),
        ({"gpu_request": "gpu:a100:1,gpu:v100:1"}, 4, "size-types"),
        ({"comment": "slurmsched: min_gpus=1 max_gpus=16"}, 16, "size-room"),  # no node has so many
        ({"features_asked": "a*2"}, 4, "size-room"),  # which nodes it may have is not known
    ],
)
def test_sizes__jobs_that_keep_theirs(row: dict[str, Any], gpus: int, rule: str) -> None:
    """Nothing is written, and those that tell sizes hear why."""
    plan = planner({1: gpus}).plan(queue(row))
    assert asks(plan) == {}
    assert [refusal.rule for refusal in plan.refused if refusal.rule != "not-pending"] == ([rule] if rule else [])


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
    plan = planner({1: size}).plan(queue(has, pins=(record(f"gpu:{size}"),)))
    assert asks(plan) == ({1: ("gpu:2", f"gpu:{size}", "gpu:2")} if back else {})
    if back:
        assert [pin.over for pin in plan.pins] == [True]
        assert asks(planner({1: size}).plan(queue({}, pins=plan.pins))) == {}


def test_sizes__a_job_at_a_limit_gets_no_more() -> None:
    """Fewer it may have."""
    assert asks(planner({1: 4}).plan(queue({"reason": "QOSMaxGRESPerJob"}))) == {}
    assert asks(planner({1: 1}).plan(queue({"reason": "QOSMaxGRESPerJob"}))) == {1: ("gpu:1", "gpu:2", "gpu:2")}


@pytest.mark.parametrize(("has", "expected"), [("gpu:2", ["gpu:6"]), ("gpu:4", ["gpu:6", "gpu:2"])])
def test_sizes__a_refused_one_is_not_tried_again(has: str, expected: list[str], tmp_path: Path) -> None:
    """The gate's own reason is on record. A job that has one of ours gets its own back; then it is left alone."""
    log = PinLog(tmp_path / "journal.jsonl")
    log.note([record(has)] if has != "gpu:2" else [])
    pinning, written = Pinning(log), []
    for _ in range(4):
        given = queue({"gpus": int(has[4:]), "gpu_request": has}, pins=pinning.known)
        plan = planner({1: 6}).plan(given)
        pinning.begin(plan, given.jobs.job_id)
        steps = [step for step in plan.actions if isinstance(step, Retype)]
        status = {"gpu:6": "refused"}
        pinning.end([Outcome(step, status.get(step.gpus, "written"), "memory by GPU") for step in steps])
        has = next((step.gpus for step in steps if step.gpus != "gpu:6"), has)
        written += [(step.gpus, step.act) for step in steps]
    assert written == [(gpus, "size-1") for gpus in expected]
    (left,) = pinning.known
    assert (has, left.over, left.open, left.note) == ("gpu:2", True, False, "memory by GPU")
    assert log.known() == {1: left}


OTHER = "changed since the snapshot: it asks for gpu:4,nic:1"


def test_sizes__a_refusal_to_give_it_back_is_told_once(tmp_path: Path) -> None:
    """Its user added another GRES to a size of ours, which Slurm's list of jobs does not show: the write is tried each
    cycle, and the refusal told once, and again after a requeue or for another reason. When the other GRES is gone the
    job has its own again, and no size until it has run."""
    log = PinLog(tmp_path / "journal.jsonl")
    log.note([record("gpu:4")])
    told, submit_s = [], 900.0
    for refused in (OTHER, OTHER, OTHER, "another", "another", OTHER, "requeued", OTHER, OTHER, ""):
        submit_s += 10.0 * (refused == "requeued")
        pinning = Pinning(log)  # as the timer does
        given = queue({"gpus": 4, "gpu_request": "gpu:4", "submit_s": submit_s}, pins=pinning.known)
        plan = planner({1: 6 if refused == "requeued" else 2}).plan(given)
        pinning.begin(plan, given.jobs.job_id)
        (step,) = [step for step in plan.actions if isinstance(step, Retype)]
        outcome = Outcome(step, "refused" if refused else "written", OTHER if refused == "requeued" else refused)
        pinning.end([outcome])
        told.append(not repeated(outcome))
    assert told == [True, False, False, True, False, True, True, False, False, True]
    (left,) = Pinning(log).known
    assert (left.over, left.open) == (True, False)
    assert asks(planner({1: 6}).plan(queue({"submit_s": submit_s}, pins=(left,)))) == {}


def test_sizes__undo_tells_every_refusal(tmp_path: Path) -> None:
    """Whatever was told before."""
    log = PinLog(tmp_path / "journal.jsonl")
    log.note([record("gpu:4", over=True, note=OTHER)])
    given = queue({"gpus": 4, "gpu_request": "gpu:4"}, pins=Pinning(log).known)
    (step,) = given_back(given, "undo: its own").actions
    assert (step.gpus, repeated(Outcome(step, "refused", OTHER))) == ("gpu:2", False)


def test_sizes__a_policy_sees_what_the_user_asked_for() -> None:
    """Of a waiting job; one that runs has what it has."""
    given = queue({"gpus": 4, "gpu_request": "gpu:4"}, pins=(record("gpu:4"),))
    assert own_sizes(given).jobs.gpus.tolist() == [2]
    assert planner({1: 4}).plan(given).ranking.why["asks"].tolist() == [2]
    runs = queue({"gpus": 4, "gpu_request": "gpu:4", "state": "RUNNING", "start_s": 950.0}, pins=(record("gpu:4"),))
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
    plan = planner({1: want}).plan(queue({"gpus": 4, "gpu_request": "gpu:4"}, pins=(record("gpu:4"),)))
    assert asks(plan) == written
    assert [pin.open for pin in plan.pins] == [want == 6] * len(written)


def test_sizes__go_back_when_the_lever_is_turned_off_and_at_undo() -> None:
    """Both write the job's own request."""
    given = queue({"gpus": 4, "gpu_request": "gpu:4"}, pins=(record("gpu:4"),))
    back = {1: ("gpu:2", "gpu:4", "gpu:2")}
    assert asks(planner({1: 4}, on=False).plan(given)) == back
    undone = given_back(given, "undo")
    assert (asks(undone), [pin.open for pin in undone.pins], undone.actions[0].resizes) == (back, [False], True)


def test_sizes__somebody_elses_request_stands() -> None:
    """The record is over: neither this cycle nor a later one writes, until the job has run."""
    given = queue({"gpus": 3, "gpu_request": "gpu:3"}, pins=(record("gpu:4"),))
    plan = planner({1: 6}).plan(given)
    (left,) = plan.pins
    assert (asks(plan), left.over, left.open) == ({}, True, False)
    assert asks(planner({1: 6}).plan(replace(given, pins=(left,)))) == {}
    again = replace(given, jobs=given.jobs.with_columns(submit_s=np.array([990.0])), pins=(left,))
    assert asks(planner({1: 6}).plan(again)) == {1: ("gpu:6", "gpu:3", "gpu:3")}


def test_sizes__a_requeued_job_keeps_its_record() -> None:
    """A requeue keeps the request and moves the submission: the job still has its own to get back."""
    given = queue({"gpus": 4, "gpu_request": "gpu:4", "submit_s": 990.0}, pins=(record("gpu:4"),))
    plan = planner({1: 0}).plan(given)
    assert asks(plan) == {1: ("gpu:2", "gpu:4", "gpu:2")}
    assert plan.pins[-1].submit_s == 990.0


def test_sizes__what_a_user_changes_after_a_requeue_stands() -> None:
    """The record learns the new submission first: the job is left alone for that one."""
    given = queue({"gpus": 3, "gpu_request": "gpu:3", "submit_s": 990.0}, pins=(record("gpu:4"),))
    plan = planner({1: 6}).plan(given)
    (left,) = plan.pins
    assert (asks(plan), left.over, left.submit_s) == ({}, True, 990.0)


@pytest.mark.parametrize("want", [0, 2, 4, 6])
def test_sizes__a_job_for_which_others_leave_keeps_what_it_has(want: int) -> None:
    """An act was planned for the size that it has: its own, or one of ours."""
    act = Act("1-9", Purpose.PREEMPT, 1, 900.0, "bob", "n1", 60.0, 990.0)
    ours = queue({"gpus": 4, "gpu_request": "gpu:4"}, pins=(record("gpu:4"),), acts=(act,))
    for given in (queue({}, acts=(act,)), ours):
        plan = planner({1: want}).plan(given)
        assert (asks(plan), plan.pins) == ({}, ())


@dataclass(frozen=True)
class Later(Wanting):
    """It wants each job to start ten minutes from now besides."""

    def rank(self, given: Snapshot) -> Ranking:
        ranking = Wanting.rank(self, given)
        assert ranking.wants is not None
        return replace(ranking, wants=replace(ranking.wants, start_s=np.full(len(given.jobs), NOW + 600.0)))


def test_sizes__a_start_of_ours_leaves_the_size() -> None:
    """Both are written in one cycle; in the next the job waits for its start by us, and could start for its user."""
    made = replace(planner({}), policy=Later({1: 4}), lever=Lever(size=True, start=True))
    first = made.plan(queue({}))
    assert (asks(first), len(first.deferrals)) == ({1: ("gpu:4", "gpu:2", "gpu:2")}, 1)
    has = {"gpus": 4, "gpu_request": "gpu:4", "eligible_s": first.deferrals[0].until_s}
    assert asks(made.plan(queue(has, pins=first.pins, deferrals=first.deferrals))) == {}


@dataclass(frozen=True)
class Typed(Wanting):
    """It wants the GPU type of n1 for each job besides."""

    def rank(self, given: Snapshot) -> Ranking:
        ranking = Wanting.rank(self, given)
        assert ranking.wants is not None
        return replace(ranking, wants=replace(ranking.wants, gpu_type=Labels.of(["a100"] * len(given.jobs))))


def both(gpus: dict[int, int]) -> Planner:
    made = registry.make("placements", "consolidated", {}, key="placement")
    return replace(planner(gpus), policy=Typed(gpus), placement=made, pinning=Placement(types=True))


LIST = Pin(1, 900.0, "n1", "", NOW, values=("n1",))


@pytest.mark.parametrize(
    ("row", "pin"),
    [
        ({"gpus": 4, "gpu_request": "gpu:4"}, record("gpu:4")),  # it has the size that the policy wants
        ({"gpus": 3, "gpu_request": "gpu:3"}, record("gpu:2", "gpu:4", over=True)),
        ({"nodes_asked": "n1"}, LIST),
        ({}, replace(LIST, nodes="", over=True)),
    ],
)
def test_sizes__a_job_has_one_kind_of_record(row: dict[str, Any], pin: Pin) -> None:
    """Whatever is on record of it, open or left alone, stays: neither part writes over what the other has to undo."""
    plan = both({1: 4}).plan(queue(row, pins=(pin,)))
    assert ([step.kind for step in plan.actions if step.kind in ("pin", "retype")], plan.pins) == ([], ())


def test_sizes__of_a_new_job_the_size_comes_first() -> None:
    """Both parts are on: no list in the same cycle, nor in the next."""
    plan = both({1: 4}).plan(queue({}))
    assert ([step.kind for step in plan.actions if step.kind in ("pin", "retype")], len(plan.pins)) == (["retype"], 1)
    typed = both({}).plan(queue({}))
    assert [step.kind for step in typed.actions if step.kind == "pin"] == ["pin"]
