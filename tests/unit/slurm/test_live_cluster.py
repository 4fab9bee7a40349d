"""The live cluster: on record before it is sent, never on a job that changed, and stopped for a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched import config
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError, SlurmUnreachableError
from slurmsched.model import (
    Action,
    JobState,
    JoinReservation,
    Operation,
    OperationStage,
    Outcome,
    Plan,
    Purpose,
    Requeue,
    Reservations,
    Reserve,
    Rights,
    SetNice,
    Signal,
    Site,
    Snapshot,
    Victim,  # fmt: skip
)
from slurmsched.planning.gate import CurrentJob
from slurmsched.slurm import live_cluster, recorder
from slurmsched.slurm.live_cluster import LiveCluster, OperationInputs, SendCheck
from slurmsched.slurm.recorder import OperationRecorder, Recorder
from slurmsched.slurm.site import SdiagLoad
from slurmsched.slurm.writer import WritePacer
from slurmsched.testing.builders import snapshot


class FakeSlurm:
    """Jobs with a nice, as reader, writer and recheck see them; answers are scripted by job id."""

    def __init__(self, jobs: Mapping[int, int], rights: Rights = Rights.OPERATOR) -> None:
        self.seen = {job_id: CurrentJob(100.0, JobState.PENDING, nice) for job_id, nice in jobs.items()}
        self.rights = rights
        self.answers: dict[int, str] = {}
        self.journalled: list[set[int]] = []  # ids in the journal at each write
        self.journal: OverrideLog | None = None
        self.load: SdiagLoad | Exception = SdiagLoad()
        self.closed = False
        self.told: list[str] = []  # kinds of actions
        self.words = "as scripted"
        self.asks_rights, self.known_rights = 0, rights  # how often they were asked for, and what was told last
        self.doubted = False

    def begin(self) -> None: ...

    def doubt_rights(self) -> None:
        self.doubted = True

    def read(self) -> Snapshot:
        if self.doubted or self.known_rights < Rights.OPERATOR:
            self.asks_rights, self.known_rights, self.doubted = self.asks_rights + 1, self.rights, False
        site = Site("lab", "26.05.5", self.known_rights, "slurmsched")
        return snapshot([{"job_id": job_id} for job_id in self.seen], site=site)

    def close(self) -> None:
        self.closed = True

    def recheck(self, actions: Sequence[Action]) -> dict[int, CurrentJob]:
        return {action.job_id: self.seen[action.job_id] for action in actions if action.job_id in self.seen}

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        for action in actions:
            assert self.journal is not None
            self.told.append(action.kind)
            self.journalled.append({record.job_id for record in self.journal.priorities()})
            status = self.answers.get(action.job_id, "written")
            if status == "written" and isinstance(action, SetNice):
                self.seen[action.job_id] = replace(self.seen[action.job_id], nice=action.new)
            yield Outcome(action, status, self.words)
            if status == "unknown":
                return

    def read_load(self) -> SdiagLoad:
        if isinstance(self.load, Exception):
            raise self.load
        return self.load


@dataclass
class Look:
    """What is read again. again: of an operation; by default all is as before."""

    recheck: Callable[[Sequence[Action]], dict[int, CurrentJob]]
    again: Callable[..., Snapshot] = lambda at, *_: at

    def __call__(self, actions: Sequence[Action]) -> dict[int, CurrentJob]:
        return self.recheck(actions)


def opened(
    slurm: FakeSlurm,
    folder: Path,
    *,
    apply: bool = True,
    paced: Iterator[float] | None = None,
    again: Callable[..., Snapshot] = lambda at, *_: at,
    inputs: OperationInputs | None = None,
    **options: Any,
) -> LiveCluster:
    path = folder / "journal.jsonl"
    slurm.journal = OverrideLog(path)
    times = paced or iter(lambda: 0.0, None)
    return LiveCluster(
        slurm,
        slurm,
        Recorder(slurm.journal, OperationRecorder(OperationLog(path))),
        WritePacer(config.PaceConfig(), slurm.read_load, clock=lambda: next(times), sleep=lambda _: None),
        apply=apply,
        recheck=Look(slurm.recheck, again),
        inputs=inputs or OperationInputs(lambda: Reservations.build(0, {})),
        guard=SendCheck(folder / "stop"),
        earlier_runs=lambda _: [],
        **options,
    )


def plan(*values: tuple[int, int]) -> Plan:
    """A plan that gives each (job, nice) its nice, from 0."""
    return Plan(actions=tuple(SetNice(job_id, 100.0, "queue 0", 0, new, 0) for job_id, new in values))


def statuses(receipt) -> dict[int, str]:
    return {outcome.action.job_id: outcome.status for outcome in receipt.outcomes}


def test_apply__dry_run_touches_nothing(tmp_path):
    """Not Slurm, not even the journal; the receipt tells how much was planned."""
    slurm = FakeSlurm({1: 0})
    receipt = opened(slurm, tmp_path, apply=False).apply(plan((1, -5)))
    assert (receipt.dry_run, receipt.planned, receipt.outcomes) == (True, 1, ())
    assert list(tmp_path.iterdir()) == []
    assert slurm.seen[1].nice == 0


def test_apply__is_on_record_before_it_is_sent(tmp_path):
    """When a write goes out, all of its chunk is in the journal."""
    slurm = FakeSlurm({1: 0, 2: 0})
    receipt = opened(slurm, tmp_path).apply(plan((1, -5), (2, -6)))
    assert statuses(receipt) == {1: "written", 2: "written"}
    assert slurm.journalled == [{1, 2}, {1, 2}]
    assert receipt.stopped == ""


def test_apply__a_refused_write_does_not_stop_the_others(tmp_path):
    """Slurm refusing one action never stops the others."""
    slurm = FakeSlurm({1: 0, 2: 0, 3: 0})
    slurm.answers[2] = "refused"
    receipt = opened(slurm, tmp_path).apply(plan((1, -5), (2, -6), (3, -7)))
    assert statuses(receipt) == {1: "written", 2: "refused", 3: "written"}


@pytest.mark.parametrize(
    "words",
    ["Access/permission denied", "15_0-2: Invalid user id", "scancel: error: Kill job error: ACCESS/PERMISSION DENIED"],
)
def test_apply__writes_refused_for_want_of_rights_are_tried_no_more(tmp_path, words):
    """The next read asks for the rights; without them nothing is sent, with them again it goes on by itself."""
    slurm = FakeSlurm({1: 0})
    slurm.answers[1], slurm.words, slurm.rights = "refused", words, Rights.USER
    cluster = opened(slurm, tmp_path)
    cluster.read()
    assert statuses(cluster.apply(plan((1, -5)))) == {1: "refused"}
    for _ in range(2):
        cluster.read()
        receipt = cluster.apply(plan((1, -5)))
        assert (receipt.outcomes, receipt.exit_code) == ((), 6)
    slurm.rights, slurm.answers = Rights.OPERATOR, {}
    cluster.read()
    assert statuses(cluster.apply(plan((1, -5)))) == {1: "written"}
    assert (len(slurm.told), slurm.asks_rights) == (2, 3)


def test_apply__other_refusals_say_nothing_of_rights(tmp_path):
    """Nobody asks for them then."""
    slurm = FakeSlurm({1: 0})
    slurm.answers[1], slurm.words = "refused", "Job has already finished"
    cluster = opened(slurm, tmp_path)
    cluster.read()
    cluster.apply(plan((1, -5)))
    assert not slurm.doubted


def test_apply__leaves_changed_jobs_alone(tmp_path):
    """Changed behind our back or gone: refused, not journalled, not sent."""
    slurm = FakeSlurm({1: 0, 2: 33})
    receipt = opened(slurm, tmp_path).apply(plan((1, -5), (2, -6), (9, -7)))
    assert statuses(receipt) == {1: "written", 2: "refused", 9: "refused"}
    assert all("changed since the snapshot" in outcome.message for outcome in receipt.refused)
    assert slurm.journalled == [{1}]
    assert slurm.seen[2].nice == 33


def test_apply__no_answer_stops_and_leaves_the_rest(tmp_path):
    """The one in flight is unknown, the rest unsent, and all of them are on record."""
    slurm = FakeSlurm({1: 0, 2: 0, 3: 0})
    slurm.answers[2] = "unknown"
    receipt = opened(slurm, tmp_path).apply(plan((1, -5), (2, -6), (3, -7)))
    assert statuses(receipt) == {1: "written", 2: "unknown"}
    assert (receipt.stopped, receipt.exit_code) == ("no answer to the write of job 2: as scripted", 3)
    assert {record.job_id for record in slurm.journal.priorities()} == {1, 2, 3}


def test_apply__stop_file_stops_all(tmp_path):
    """While the file is there nothing is sent, and the receipt says why."""
    slurm = FakeSlurm({1: 0})
    (tmp_path / "stop").touch()
    receipt = opened(slurm, tmp_path).apply(plan((1, -5)))
    assert receipt.outcomes == ()
    assert (receipt.stopped, receipt.exit_code) == (f"paused: {tmp_path / 'stop'} exists; remove it to go on", 75)


def test_apply__stop_file_keeps_what_jobs_were_asked(tmp_path):
    """An empty plan too changes nothing then; without the file what is stale goes after the actions."""
    slurm, forgotten = FakeSlurm({1: 0}), []
    cluster = opened(slurm, tmp_path, forget=lambda jobs: forgotten.append(jobs.job_id.tolist()))
    cluster.read()
    (tmp_path / "stop").touch()
    cluster.apply(Plan())
    assert forgotten == []
    (tmp_path / "stop").unlink()
    cluster.apply(Plan())
    assert forgotten == [[1]]


def test_apply__without_a_stop_file_nobody_looks(tmp_path):
    """`undo` gives values back while the stop file keeps cycles from writing."""
    slurm = FakeSlurm({1: 0})
    (tmp_path / "stop").touch()
    cluster = opened(slurm, tmp_path)
    cluster._guard = SendCheck()
    assert statuses(cluster.apply(plan((1, -5)))) == {1: "written"}


@pytest.mark.parametrize(
    ("load", "words", "code"),
    [(SdiagLoad(threads=999), "slurmctld is busy", 75), (SlurmUnreachableError("sdiag: no answer"), "sdiag", 3)],
)
def test_apply__busy_or_silent_slurmctld_is_left_alone(tmp_path, load, words, code):
    """Load is looked at before the first write."""
    slurm = FakeSlurm({1: 0})
    slurm.load = load
    receipt = opened(slurm, tmp_path).apply(plan((1, -5)))
    assert receipt.outcomes == ()
    assert words in receipt.stopped
    assert receipt.exit_code == code


def test_apply__looks_at_the_load_between_chunks(tmp_path, monkeypatch):
    """What was written stays in the receipt when a later look finds slurmctld busy."""
    monkeypatch.setattr(live_cluster, "CHUNK", 2)
    slurm = FakeSlurm(dict.fromkeys(range(1, 6), 0))
    loads = iter([SdiagLoad(), SdiagLoad(), SdiagLoad(threads=999)])
    slurm.read_load = lambda: next(loads)
    receipt = opened(slurm, tmp_path).apply(plan(*((job_id, -job_id) for job_id in range(1, 6))))
    assert statuses(receipt) == dict.fromkeys(range(1, 5), "written")
    assert "busy" in receipt.stopped


def test_apply__slow_answers_leave_the_rest_to_the_next_cycle(tmp_path):
    """Each answer takes a second (the rate limiter): five are enough."""
    slurm = FakeSlurm(dict.fromkeys(range(1, 20), 0))
    receipt = opened(slurm, tmp_path, paced=iter(float(2 * i) for i in range(10_000))).apply(
        plan(*((job_id, -1) for job_id in range(1, 20)))
    )
    assert list(statuses(receipt)) == [1, 2, 3, 4, 5]
    assert "rl_enable" in receipt.stopped


def test_apply__journal_that_takes_nothing_means_nothing_is_sent(tmp_path):
    """Slurm is as it was, and the receipt says so: what was observed can still reach the ledger."""
    slurm = FakeSlurm({1: 0})
    cluster = opened(slurm, tmp_path)
    (tmp_path / "journal.jsonl").mkdir()
    receipt = cluster.apply(plan((1, -5)))
    assert (receipt.outcomes, receipt.exit_code, slurm.seen[1].nice) == ((), 4, 0)
    assert "journal.jsonl" in receipt.stopped


def test_apply__journal_that_fails_later_keeps_the_receipt(tmp_path, monkeypatch):
    """What was sent before must reach the ledger: the error becomes the reason to stop."""
    monkeypatch.setattr(live_cluster, "CHUNK", 1)
    slurm = FakeSlurm({1: 0, 2: 0})
    cluster = opened(slurm, tmp_path)
    intend = slurm.journal.intend

    def full_at_the_second(cycle, actions):
        if actions[0].job_id == 2:
            raise LedgerError("disk full")
        intend(cycle, actions)

    monkeypatch.setattr(slurm.journal, "intend", full_at_the_second)
    receipt = cluster.apply(plan((1, -5), (2, -6)))
    assert statuses(receipt) == {1: "written"}
    assert (receipt.stopped, receipt.exit_code) == ("disk full", 4)


def test_apply__lost_outcome_lines_lose_no_receipt(tmp_path, monkeypatch):
    """The intentions are on disk, which is what counts."""
    slurm = FakeSlurm({1: 0})
    cluster = opened(slurm, tmp_path)

    def full(*_):
        raise LedgerError("disk full")

    monkeypatch.setattr(slurm.journal, "outcome", full)
    assert statuses(cluster.apply(plan((1, -5)))) == {1: "written"}


STEPS = (
    Reserve(1, 100.0, "nodes", "1-7", "slurmsched-1-7", "n1", "alice", 0.0, 3_600.0),
    JoinReservation(1, 100.0, "nodes", "1-7", "slurmsched-1-7"),
    Requeue(2, 100.0, "job 1 gets its GPUs", "1-7", 0),
)
OPERATION = Operation(
    "1-7",
    Purpose.PREEMPT,
    1,
    100.0,
    "alice",
    "n1",
    3_000.0,
    0.0,
    (Victim(2, 100.0, 0, 8),),
    stage=OperationStage.REQUEUED,
)


def acting_slurm() -> FakeSlurm:
    slurm = FakeSlurm({1: 0, 2: 0})
    slurm.seen[2] = CurrentJob(100.0, JobState.RUNNING, 0)
    return slurm


def test_apply__steps_of_an_operation_go_in_their_order_and_it_is_open_from_then_on(tmp_path):
    """It comes back with the next snapshot, of this process and of one that starts anew."""
    slurm = acting_slurm()
    cluster = opened(slurm, tmp_path)
    receipt = cluster.apply(Plan(actions=STEPS, operations=(OPERATION,)))
    assert [(o.action.kind, o.status) for o in receipt.outcomes] == [
        ("reserve", "written"), ("join", "written"), ("requeue", "written"),
    ]  # fmt: skip
    assert cluster.read().operations == opened(slurm, tmp_path).read().operations == (OPERATION,)


def test_apply__a_grace_begins_when_its_signal_was_sent(tmp_path):
    """Not when the queue was read: what was sent before may have taken long. A later cycle does not begin it anew."""
    slurm, now_s = acting_slurm(), iter((1_000.0, 1_045.0, 2_000.0, 2_045.0))  # of each apply, its begin and its end
    cluster = opened(slurm, tmp_path, clock=lambda: next(now_s))
    operation = replace(
        OPERATION, stage=OperationStage.WARNED, stage_s=999.0, victims=(Victim(2, 100.0, 0, 8, "USR2", 120.0),)
    )
    signal = Signal(2, 100.0, "job 1 gets its GPUs", "1-7", "USR2", 0)
    cluster.apply(Plan(actions=(*STEPS[:2], signal), operations=(operation,)))
    (known,) = cluster.read().operations
    assert (known.stage, known.stage_s) == (OperationStage.WARNED, 1_045.0)
    cluster.apply(Plan(operations=(known,)))
    assert cluster.read().operations[0].stage_s == opened(slurm, tmp_path).read().operations[0].stage_s == 1_045.0


def test_apply__after_a_refused_step_the_operation_is_taken_back(tmp_path):
    """Its later steps are not sent: nobody loses GPUs for nothing. Other operations and levers go on."""
    slurm = acting_slurm()
    slurm.answers[1] = "refused"
    cluster = opened(slurm, tmp_path)
    receipt = cluster.apply(Plan(actions=STEPS, operations=(OPERATION,)))
    assert [o.status for o in receipt.outcomes] == ["refused"] * 3
    assert slurm.told == ["reserve"]
    assert cluster.read().operations == (replace(OPERATION, stage=OperationStage.REVERSING, note="as scripted"),)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({}, ""),
        ({"dependency": "afterok:5"}, "its job waits for other jobs (afterok:5)"),
        ({"nodes": 2}, "its job asks for 2 nodes, 1 were chosen"),
    ],
)
def test_apply__an_operation_is_judged_again_when_its_nodes_are_reserved(tmp_path, change, note):
    """By what Slurm shows then, once for all its victims: nobody is stopped for a job that could not start."""
    slurm, looks = acting_slurm(), list[list[str]]()
    slurm.seen |= {2: CurrentJob(100.0, JobState.RUNNING, 0), 3: CurrentJob(100.0, JobState.RUNNING, 0)}
    rows = [{"job_id": 1, "gpus": 8, "submit_s": 100.0, "time_limit_s": 60.0}]
    rows += [{"job_id": job, "gpus": 4, "state": "RUNNING", "submit_s": 100.0} for job in (2, 3)]
    held = [{"job_id": job, "node": "n1", "gpus": 4} for job in (2, 3)]

    def again(at: Snapshot, operation: Operation, operations: Sequence[Operation]) -> Snapshot:
        looks.append(list(slurm.told))
        changed = [rows[0] | change | {"reservation": operation.reservation}, *rows[1:]]
        return snapshot(changed, "1x8", allocations=held, operations=operations, site=at.site)

    cluster = opened(slurm, tmp_path, again=again)
    cluster.read()
    operation = replace(OPERATION, victims=(Victim(2, 100.0, 0, 4), Victim(3, 100.0, 0, 4)))
    other = Requeue(3, 100.0, "job 1 gets its GPUs", "1-7", 0)
    receipt = cluster.apply(Plan(actions=(*STEPS, other), operations=(operation,)))
    assert looks == [["reserve", "join"]]
    assert [o.status for o in receipt.outcomes] == ["written"] * 2 + ["refused" if note else "written"] * 2
    (known,) = cluster.read().operations
    assert (known.stage, known.note) == ((OperationStage.REVERSING if note else OperationStage.REQUEUED), note)


def test_apply__job_that_changed_breaks_its_operation(tmp_path):
    """The victim ended between reading and writing: it is not requeued, which would run it again."""
    slurm = acting_slurm()
    slurm.seen[2] = CurrentJob(100.0, JobState.COMPLETED, 0)
    cluster = opened(slurm, tmp_path)
    cluster.apply(Plan(actions=STEPS, operations=(OPERATION,)))
    assert "requeue" not in slurm.told
    assert [operation.stage for operation in cluster.read().operations] == [OperationStage.REVERSING]


def test_apply__operation_whose_answer_is_unknown_is_not_sure(tmp_path):
    """Slurm did not answer in the middle: the next look at Slurm tells what is there."""
    slurm = acting_slurm()
    slurm.answers[2] = "unknown"
    cluster = opened(slurm, tmp_path)
    assert cluster.apply(Plan(actions=STEPS, operations=(OPERATION,))).exit_code == 3
    assert cluster.read().operations == opened(slurm, tmp_path).read().operations == (replace(OPERATION, sure=False),)


def test_apply__operation_of_which_nothing_was_sent_is_as_before(tmp_path):
    """The stop file came: a new operation does not exist, an old one stays where it was."""
    slurm = acting_slurm()
    cluster = opened(slurm, tmp_path)
    (tmp_path / "stop").touch()
    cluster.apply(Plan(actions=STEPS, operations=(OPERATION,)))
    assert (cluster.read().operations, slurm.told) == ((), [])


def test_apply__without_operator_rights_sends_nothing(tmp_path):
    """The receipt has the command that gives them; it is no error, so that the cycle is remembered."""
    slurm = FakeSlurm({1: 0}, rights=Rights.USER)
    cluster = opened(slurm, tmp_path)
    cluster.read()
    receipt = cluster.apply(plan((1, -5)))
    assert (receipt.outcomes, receipt.planned, receipt.exit_code) == ((), 1, 6)
    assert "adminlevel=Operator" in receipt.stopped
    assert not (tmp_path / "journal.jsonl").exists()


def test_apply__long_journal_is_cut_to_the_queue(tmp_path, monkeypatch):
    """Only jobs that Slurm still shows are kept; what this apply writes is added."""
    monkeypatch.setattr(recorder, "COMPACT_BYTES", 10)
    slurm = FakeSlurm({1: 0, 2: 0})
    cluster = opened(slurm, tmp_path)
    slurm.journal.intend("old", plan((1, -3), (77, -4)).actions)
    cluster.read()
    cluster.apply(plan((2, -5)))
    assert {record.job_id for record in slurm.journal.priorities()} == {1, 2}


def test_apply__journal_keeps_the_array_of_a_task_that_lives(tmp_path, monkeypatch):
    """A task that was split off is on record under its array, whose own record is gone: undo still needs the line."""
    monkeypatch.setattr(recorder, "COMPACT_BYTES", 10)
    slurm = FakeSlurm({})
    tasks = [{"job_id": 12, "array_job_id": 7}, {"job_id": 31, "het_job_id": 30, "het_offset": 1}]
    slurm.read = lambda: snapshot(tasks, site=Site("lab", "26.05.5", Rights.OPERATOR, "slurmsched"))
    cluster = opened(slurm, tmp_path)
    slurm.journal.intend("old", plan((7, -3), (30, -2), (77, -4)).actions)
    cluster.read()
    cluster.apply(Plan())
    assert {record.job_id for record in slurm.journal.priorities()} == {7, 30}


@pytest.mark.parametrize(("writes_per_s", "looks"), [(100.0, 1), (10.0, 5)])
def test_apply__looks_at_all_jobs_at_once_and_again_when_that_is_old(tmp_path, writes_per_s, looks):
    """One listing of the queue serves 500 writes at the usual pace; no write is later than FRESH_S after its look."""
    now_s = [0.0]
    seen_s: list[float] = []
    ages: list[float] = []
    slurm = FakeSlurm(dict.fromkeys(range(1, 501), 0))
    cluster = opened(slurm, tmp_path)
    limits = config.PaceConfig(writes_per_s=writes_per_s)
    cluster._monotonic = lambda: now_s[0]
    cluster._pace = WritePacer(
        limits, slurm.read_load, clock=lambda: now_s[0], sleep=lambda s: now_s.__setitem__(0, now_s[0] + s)
    )
    recheck, send = slurm.recheck, slurm.send

    def looked(actions):
        seen_s.append(now_s[0])
        return recheck(actions)

    def sent(actions):
        for outcome in send(actions):
            ages.append(now_s[0] - seen_s[-1])
            yield outcome

    cluster._recheck, slurm.send = looked, sent
    receipt = cluster.apply(plan(*((job_id, -1) for job_id in range(1, 501))))
    assert (len(receipt.written), len(seen_s)) == (500, looks)
    assert max(ages) <= live_cluster.FRESH_S


def test_close__lets_the_reader_go(tmp_path):
    """The reader may hold processes."""
    slurm = FakeSlurm({})
    opened(slurm, tmp_path).close()
    assert slurm.closed


@pytest.mark.parametrize("reserved", [False, True])
def test_read__reservations_where_jobs_are_placed(tmp_path, reserved):
    """One request more, without any operation."""
    asked = Reservations.build(1, {"name": ["fix"], "node_list": ["n1"]})
    cluster = opened(FakeSlurm({1: 0}), tmp_path, inputs=OperationInputs(lambda: asked, always=reserved))
    assert list(cluster.read().reservations.name) == (["fix"] if reserved else [])


def test_learn__snapshots_have_what_is_added_to_them(tmp_path):
    """From then on, behind what else is known of the cluster."""
    slurm = FakeSlurm({1: 0})
    cluster = opened(slurm, tmp_path)
    cluster.learn(lambda snapshot: replace(snapshot, warnings=(*snapshot.warnings, "learnt")))
    assert cluster.read().warnings[-1] == "learnt"
