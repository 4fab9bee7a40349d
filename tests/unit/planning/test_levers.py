"""A new lever is one file and a line: planned, gated, on record, sent, settled and undone like any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from slurmsched.config import ScopeConfig
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import (
    Action,
    Allocations,
    Jobs,
    JobState,
    Labels,
    Nodes,
    Outcome,
    Override,
    Partitions,
    Plan,
    Ranking,
    Reservations,
    Rights,
    SetField,
    Site,
    Snapshot,
)
from slurmsched.planning import levers
from slurmsched.planning.levers import LeverEntry, undo_plan
from slurmsched.planning.planner import Planner
from slurmsched.planning.proposals import Budget, Lever, Proposal
from slurmsched.registry import make_plugin
from slurmsched.slurm.live_cluster import LiveCluster, OperationInputs, SendCheck
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.recorder import OperationRecorder, Recorder
from slurmsched.slurm.site import SdiagLoad
from slurmsched.slurm.writer import WritePacer, command
from slurmsched.testing import snapshot

# --- the file: an action and a lever ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetQos(SetField):
    """Let a pending job run under another QOS."""

    kind: ClassVar[str] = "qos"
    field: ClassVar[str] = "qos"
    option: ClassVar[str] = "QOS"
    columns: ClassVar[tuple[str, ...]] = ("QOS",)


class QosLever(Lever):
    """Gives jobs of more than four GPUs the QOS "large", and takes it back where they ask for fewer by now."""

    @classmethod
    def of(cls, planner: Planner) -> Self:
        return cls()

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        own = {record.job_id: str(record.base) for record in snapshot.overrides if record.field == "qos"}
        names = [own.get(job, qos) for job, qos in zip(snapshot.jobs.job_id.tolist(), snapshot.jobs.qos, strict=True)]
        return replace(snapshot, jobs=snapshot.jobs.with_columns(qos=Labels.of(names)))

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        rows = np.flatnonzero(budget.jobs & (snapshot.jobs.gpus > 4))
        return _changed(snapshot, {int(row): "large" for row in rows}, "it takes more than four GPUs")

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        return _changed(snapshot, {}, "undo: its own QOS")


def _changed(snapshot: Snapshot, wanted: dict[int, str], why: str) -> Proposal:
    jobs, actions, overrides = snapshot.jobs, list[Action](), list[Override]()
    known = {record.job_id: record for record in snapshot.overrides if record.field == "qos"}
    for row, job in enumerate(jobs.job_id.tolist()):
        key, has = (job, float(jobs.submit_s[row])), jobs.qos[row]
        base = str(known[job].base) if job in known else has
        if (new := wanted.get(row, base)) != has:
            actions.append(SetQos(*key, why, f"qos-{job}", new, has, base))
            overrides.append(Override(*key, "qos", base, new, note=why))
    return Proposal(tuple(actions), tuple(overrides))


# --- the line --------------------------------------------------------------------------------------------------------

LINE = LeverEntry("qos", f"{__name__}:QosLever", ("qos",))


class OneSlurm:
    """A Slurm of one job that is read, looked at again and written; `update` is what scontrol is told."""

    def __init__(self) -> None:
        self.qos, self.told, self.answer = "normal", list[str](), "written"

    def read(self) -> Snapshot:
        row = {"job_id": 7, "submit_s": 100.0, "gpus": 8, "qos": self.qos, "eligible_s": 100.0}
        return snapshot([row], "1x8", now_s=1_000.0, site=Site(rights=Rights.OPERATOR))

    def run(self, *words: str, **_: Any) -> str:
        """squeue as the last look asks it."""
        values = {"JobID": "7", "SubmitTime": "1970-01-01T00:01:40", "Nice": "0", "State": "PENDING", "QOS": self.qos}
        names = words[words.index("-O") + 1].replace(":0|", "").split(",")
        return "|".join(values.get(name, "") for name in names) + "|\n"

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        for action in actions:
            self.told.append(command(action))
            if isinstance(action, SetQos) and self.answer == "written":
                self.qos = action.new
            yield Outcome(action, self.answer if isinstance(action, SetQos) else "written")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> OneSlurm:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(levers, "LEVERS", [*levers.LEVERS, LINE])
    return OneSlurm()


def cluster(slurm: OneSlurm, folder: Path) -> LiveCluster:
    """As a process that starts opens it."""
    path = folder / "journal.jsonl"
    recorder = Recorder(OverrideLog(path), OperationRecorder(OperationLog(path)))
    pace = WritePacer(Planner(PLANNER.policy).pace, SdiagLoad)
    inputs = OperationInputs(lambda: Reservations.build(0, {}))
    return LiveCluster(slurm, slurm, recorder, pace, apply=True, recheck=Recheck(slurm), inputs=inputs,
                       guard=SendCheck(), earlier_runs=lambda _: [])  # type: ignore[arg-type]  # fmt: skip


PLANNER = Planner(make_plugin("policies", "fifo", {}), scope=ScopeConfig(partitions=("*",)))


def sent(slurm: OneSlurm) -> list[str]:
    return [words for words in slurm.told if "QOS" in words]


def test_lever__is_sent_put_on_record_and_undone(slurm: OneSlurm, tmp_path: Path) -> None:
    """By a process after another, of which none knows more than what is on record."""
    now = cluster(slurm, tmp_path)
    now.apply(PLANNER.plan(now.read()))
    assert sent(slurm) == ["update JobId=7 QOS=large"]
    now = cluster(slurm, tmp_path)
    (record,) = now.read().overrides
    assert (record.field, record.base, record.sent, record.open) == ("qos", "normal", "large", True)
    assert not [action for action in PLANNER.plan(now.read()).actions if isinstance(action, SetQos)]
    now.apply(undo_plan(now.read()))
    assert (sent(slurm)[1:], slurm.qos) == (["update JobId=7 QOS=normal"], "normal")
    assert cluster(slurm, tmp_path).read().overrides == ()


def test_lever__a_policy_sees_the_value_of_the_user(slurm: OneSlurm, tmp_path: Path) -> None:
    """What slurmsched gave the job is none of its user's."""
    now = cluster(slurm, tmp_path)
    now.apply(PLANNER.plan(now.read()))
    given = cluster(slurm, tmp_path).read()
    assert (given.jobs.qos[0], QosLever().as_submitted(given).jobs.qos[0]) == ("large", "normal")


def test_lever__a_refused_value_is_not_there(slurm: OneSlurm, tmp_path: Path) -> None:
    """Nothing has to be given back."""
    slurm.answer = "refused"
    now = cluster(slurm, tmp_path)
    now.apply(PLANNER.plan(now.read()))
    assert (len(sent(slurm)), cluster(slurm, tmp_path).read().overrides) == (1, ())


def test_lever__what_somebody_changed_meanwhile_is_not_overwritten(slurm: OneSlurm, tmp_path: Path) -> None:
    """The last look before a write reads the field too."""
    now = cluster(slurm, tmp_path)
    plan = PLANNER.plan(now.read())
    slurm.qos = "urgent"
    receipt = now.apply(plan)
    assert [outcome.message for outcome in receipt.refused] == ["changed since the snapshot: its QOS is urgent"]
    assert (sent(slurm), slurm.qos) == ([], "urgent")


def test_lever__a_process_that_dies_leaves_its_record(slurm: OneSlurm, tmp_path: Path) -> None:
    """The value is on record before it is sent, whatever Slurm has heard of it."""
    now = cluster(slurm, tmp_path)
    plan = PLANNER.plan(now.read())
    now._recorder.begin(plan, None)  # and nothing more
    (record,) = cluster(slurm, tmp_path).read().overrides
    assert (record.base, record.sent) == ("normal", "large")


def test_lever__what_the_gate_leaves_out_is_not_on_record(slurm: OneSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that nobody sends a value to has none."""
    monkeypatch.setattr(QosLever, "propose", lambda _, at, *__: _changed(at, {0: "large"}, "whatever the scope"))
    plan = replace(PLANNER, scope=ScopeConfig(partitions=("elsewhere",))).plan(slurm.read())
    assert (plan.actions, plan.overrides) == ((), ())
    assert [refusal.rule for refusal in plan.refused] == ["managed"]


def test_lever__that_is_off_is_asked_while_a_job_has_its_value(
    slurm: OneSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then is its file loaded."""
    off = replace(LINE, on=lambda _: False)
    monkeypatch.setattr(levers, "LEVERS", [off])
    given = OneSlurm().read()
    assert levers.levers_of(PLANNER, given) == {}
    held = replace(given, overrides=(Override(7, 100.0, "qos", "normal", "large"),))
    assert list(levers.levers_of(PLANNER, held)) == ["qos"]


def record(
    job_id: int = 7, submit_s: float = 10.0, kind: str = "nice", base: int = 50,
    values: Iterable[int] = (-900, -950), last: int = -950,
) -> Override:  # fmt: skip
    return Override(job_id, submit_s, kind, base, last, values=tuple(values))


def undone(snapshot: Snapshot, records: Iterable[Override]) -> Plan:
    return undo_plan(replace(snapshot, overrides=tuple(records)))


def one_job(**columns: Any) -> Snapshot:
    jobs = Jobs.build(1, {"job_id": [7], "submit_s": [10.0], "nice": [-950]} | columns)
    return Snapshot(0.0, jobs, Nodes.build(0, {}), Partitions.build(0, {}), Allocations.build(0, {}))


def changes(snapshot: Snapshot, *records: Override) -> list[tuple[str, int, int]]:
    return [(action.kind, action.old, action.new) for action in undone(snapshot, records).actions]


def test_undo__gives_the_base_back():
    """A value we wrote becomes the user's own again."""
    assert changes(one_job(), record()) == [("nice", -950, 50)]


def test_undo__also_for_a_running_job():
    """It may be requeued one day."""
    assert changes(one_job(state=[int(JobState.RUNNING)]), record()) == [("nice", -950, 50)]


def test_undo__leaves_a_foreign_value_alone_and_says_so():
    """Somebody changed it since: that wish counts."""
    plan = undone(one_job(nice=[123]), [record()])
    assert plan.actions == ()
    assert [refusal.rule for refusal in plan.refused] == ["foreign"]


def test_undo__nothing_to_do_at_the_base():
    """No write for a job that is back already."""
    assert changes(one_job(nice=[50]), record()) == []


def test_undo__finds_a_requeued_job_under_its_new_submit_time():
    """A requeue moves the submit time; the last base on record counts, any value ever sent is ours."""
    earlier, later = record(submit_s=1.0, base=0, values=frozenset({-950})), record(submit_s=2.0, base=60)
    assert changes(one_job(restarts=[1]), earlier, later) == [("nice", -950, 60)]


def test_undo__an_id_used_again_is_another_job():
    """Same id, other submit time, never restarted: not ours."""
    assert changes(one_job(), record(submit_s=3.0)) == []


def test_undo__both_levers_of_one_job():
    """A site that changed lever.kind gets both back."""
    site = record(kind="site_factor", base=0, values=frozenset({77}))
    assert changes(one_job(site_factor=[77]), record(), site) == [("nice", -950, 50), ("site_factor", 77, 0)]


def test_undo__a_site_factor_that_slurm_does_not_show_goes_back_too():
    """sprio leaves out jobs that wait for a dependency or a time: what was sent last counts."""
    site = record(kind="site_factor", base=0, values=frozenset({77, 0}), last=77)
    assert changes(one_job(nice=[0]), site) == [("site_factor", 0, 0)]
    assert changes(one_job(nice=[0]), replace(site, sent=0)) == []


def test_undo__a_task_that_took_its_arrays_value_along():
    """The array is gone from the queue; its task ran and was requeued with the nice it had."""
    task = one_job(job_id=[8], array_job_id=[7], restarts=[1], submit_s=[99.0])
    assert changes(task, record()) == [("nice", -950, 50)]


def test_undo__an_array_is_written_with_all_its_tasks():
    """One write of the record reaches them; a second one would find them changed."""
    columns = {"job_id": [7, 8], "array_job_id": [7, 7], "submit_s": [10.0, 10.0], "nice": [-950, -950]}
    snapshot = replace(one_job(), jobs=Jobs.build(2, columns))
    assert [action.job_id for action in undone(snapshot, [record()]).actions] == [7]


@pytest.mark.parametrize(
    ("task", "records", "expected"),
    [
        (77, [], [(7, -950, 50), (8, 77, 77)]),  # its user set it, and nobody wrote to it since
        (50, [], [(7, -950, 50)]),  # to what all of them had
        (-873, [record(job_id=8, base=77, values=frozenset({-873}), last=-873)], [(7, -950, 50), (8, -873, 77)]),
        (60, [record(job_id=8, base=77, values=frozenset({-873}), last=-873)], [(7, -950, 50), (8, 60, 60)]),
    ],
)
def test_undo__a_task_with_a_nice_of_its_own_keeps_it(task, records, expected):
    """What its array gets back reaches the task as well: it gets its own right behind."""
    columns = {"job_id": [7, 8], "array_job_id": [7, 7], "submit_s": [10.0, 10.0], "nice": [-950, task]}
    snapshot = replace(one_job(), jobs=Jobs.build(2, columns))
    plan = undone(snapshot, [record(), *(replace(each, submit_s=10.0) for each in records)])
    assert [(action.job_id, action.old, action.new) for action in plan.actions] == expected
    assert all(action.base == action.new for action in plan.actions)
    assert plan.refused == ()
