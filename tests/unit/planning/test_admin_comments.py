"""What slurmsched says in a job's AdminComment, whom it leaves alone, and how it takes the text back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig, PaceConfig, ScopeConfig
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import SlurmUnreachableError
from slurmsched.model import (
    Action,
    JobState,
    Operation,
    Outcome,
    Override,
    Plan,
    Purpose,
    Ranking,
    Reservations,
    Rights,
    SetAdminComment,
    Site,
    Snapshot,
    Victim,
)
from slurmsched.model.operations import OperationStage
from slurmsched.planning.admin_comments import LONGEST, AdminCommentLever, admin_comments
from slurmsched.planning.gate import GateContext
from slurmsched.planning.levers import undo_plan
from slurmsched.planning.planner import Planner
from slurmsched.planning.proposals import Budget
from slurmsched.registry import make_plugin
from slurmsched.slurm.live_cluster import LiveCluster, OperationInputs, SendCheck
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.recorder import OperationRecorder, Recorder
from slurmsched.slurm.site import SdiagLoad
from slurmsched.slurm.writer import WritePacer, argv_of
from slurmsched.testing import snapshot

DBD = {"AccountingStorageType": "accounting_storage/slurmdbd"}
T0 = 1_796_000_400.0  # 2026-11-30T01:00Z
ACT = Operation("a1", Purpose.PREEMPT, 17, T0 - 900, "bob", "n10,n2", 600.0, T0 - 60, (Victim(7, T0 - 999, 0, 4),),
                stage=OperationStage.REQUEUED, stage_s=T0 - 30)  # fmt: skip
REQUEUED = {"job_id": 7, "submit_s": T0 - 30, "restarts": 1, "gpus": 4}
FOR_WHOM = {"job_id": 17, "submit_s": T0 - 900, "gpus": 16, "nodes": 2}


def seen(*rows: dict[str, Any], records: Iterable[Override] = (), rights: Rights = Rights.ADMINISTRATOR,
         **more: Any) -> Snapshot:  # fmt: skip
    """These jobs of one cluster with this on record."""
    made = snapshot(list(rows), "12x8", now_s=T0, site=Site(rights=rights, settings=DBD))
    return replace(made, overrides=tuple(records), **more)


def on_record(field: str, base: str, sent: str, submit_s: float = T0 - 30) -> Override:
    return Override(7, submit_s, field, base, sent)


SAID = [
    ({"operations": (ACT,)},
     "slurmsched: requeued 2026-11-30T00:59Z for job 17", "slurmsched: nodes kept for it n[2,10]"),
    ({"past_operations": (replace(ACT, stage=OperationStage.CLOSED, stage_s=T0 - 10),)},
     "slurmsched: requeued 2026-11-30T00:59Z for job 17", None),
    ({"past_operations": (replace(ACT, stage=OperationStage.CLOSED, stage_s=T0 - 50),)}, None, None),
    ({"operations": (replace(ACT, victims=(), purpose=Purpose.RESERVE, promised_s=T0 + 3601),)},
     None, "slurmsched: nodes kept for it n[2,10] from about 2026-11-30T02:10Z"),
    ({"records": [on_record("node_list", "", "n10,n9,n11")]}, "slurmsched: node list n[9-11]", None),
    ({"records": [on_record("size", "gpu:4", "gpu:2")]}, "slurmsched: GPUs gpu:2, asked gpu:4", None),
    ({"records": [Override(7, T0 - 30, "cpus", 16, 4)]}, "slurmsched: CPUs 4, asked 16", None),
    ({"records": [on_record("gpu_type", "gpu:4", "gpu:a100:4")]}, "slurmsched: GPU type gpu:a100:4, asked gpu:4", None),
    ({"records": [on_record("nice", "0", "9"), on_record("node_list", "n1", "n1")]}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("known", "victim", "other"), SAID)
def test_admin_comment__says_what_is_on_record(known: dict, victim: str | None, other: str | None) -> None:
    """For whom a job was requeued, which nodes are kept for one, and which fields have a value of ours; no nice. A
    requeue before or after an operation was none of it."""
    found = admin_comments(seen(REQUEUED, FOR_WHOM, **known))
    assert (found.get(0), found.get(1)) == (victim, other)


def test_admin_comment__of_a_running_job_keeps_what_was_said() -> None:
    """It runs on that list. A waiting job keeps the last requeue alone, as the rest holds no more."""
    text = "slurmsched: requeued 2026-11-30T01:00Z for job 3; node list n1"
    known = [on_record("admin_comment", "", text)]
    run = REQUEUED | {"state": int(JobState.RUNNING)}
    assert admin_comments(seen(run, records=known)) == {0: text}
    assert admin_comments(seen(REQUEUED, records=known)) == {0: "slurmsched: requeued 2026-11-30T01:00Z for job 3"}


def test_admin_comment__of_an_array_or_a_het_job_is_not_written() -> None:
    """A write to their id would reach all parts."""
    size = [on_record("size", "gpu:4", "gpu:2")]
    assert not admin_comments(seen(REQUEUED | {"array_job_id": 7}, records=size))
    assert not admin_comments(seen(REQUEUED | {"het_job_id": 7}, records=size))
    assert admin_comments(seen(REQUEUED | {"array_job_id": 5}, records=size))


def test_admin_comment__is_short_and_harmless() -> None:
    """Whatever the names are: cut, and without characters that mean something to a command."""
    names = ",".join(f"räck{n}'; rm \"$x`-{n * n}" for n in range(400))
    known = [on_record(field, "x" * 500, names) for field in ("node_list", "gpu_type", "size")]
    (text,) = admin_comments(seen(REQUEUED, records=known, operations=(replace(ACT, nodes=names),))).values()
    assert len(text) <= LONGEST
    assert text.isascii()
    assert not set(text) & set("'\"`$|\n")
    assert argv_of(SetAdminComment(7, 0.0, "", "", text))[-1] == f"AdminComment={text}"


@pytest.mark.parametrize("text", ["a\nb", 'a"b', "$(x)", "a|b", "é", "x" * 1001])
def test_admin_comment__another_text_is_not_sent(text: str) -> None:
    """The writer looks once more."""
    with pytest.raises(ValueError, match="not a word"):
        argv_of(SetAdminComment(7, 0.0, "", "", text))


# --- planned, gated, on record, sent, settled, undone -----------------------------------------------------------------


class OneJob:
    """A Slurm of one job. comment: its AdminComment, asked: commands, sent: actions."""

    def __init__(self, rights: Rights) -> None:
        self.rights, self.comment, self.asked, self.sent, self.answer = rights, "", list[str](), list[str](), "written"
        self.row = dict(REQUEUED, eligible_s=T0 - 30)
        self.slurmdbd_down = self.crashes = False

    def read(self) -> Snapshot:
        return seen(self.row, rights=self.rights)

    def run(self, *words: str, **_: Any) -> str:
        self.asked.append(words[0])
        if words[0] == "sacct":
            if self.slurmdbd_down:
                raise SlurmUnreachableError("sacct: no answer")
            mark = words[4].removeprefix("--delimiter=")
            return f"7{mark}{self.comment}{mark}\n"
        if "admin_comment" in words[-1]:
            return f"7|{self.comment or '(null)'}{words[-1].partition('admin_comment:0')[2]}\n"
        at_s = int(self.row["submit_s"])
        values = {"JobID": "7", "SubmitTime": str(at_s), "Nice": "0", "State": "PENDING"}
        return (
            "|".join(values.get(name, "") for name in words[words.index("-O") + 1].replace(":0|", "").split(","))
            + "|\n"
        )

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        for action in actions:
            if self.crashes:
                raise SystemExit
            if isinstance(action, SetAdminComment):
                self.sent.append(" ".join(argv_of(action)))
                self.comment = action.new if self.answer == "written" else self.comment
            yield Outcome(action, self.answer)


PLANNER = Planner(make_plugin("policies", "fifo", {}), scope=ScopeConfig(partitions=("*",)))
TEXT = "slurmsched: GPUs gpu:2, asked gpu:4"


def cluster(slurm: OneJob, folder: Path, *, size: bool = True) -> tuple[LiveCluster, OverrideLog]:
    """As a process that starts opens it. size: the job has a size of ours."""
    log = OverrideLog(folder / "journal.jsonl")
    log.record([on_record("size", "gpu:4", "gpu:2" if size else "gpu:4", float(slurm.row["submit_s"]))])
    recorder = Recorder(log, OperationRecorder(OperationLog(folder / "journal.jsonl")))
    inputs = OperationInputs(lambda: Reservations.build(0, {}))
    made = LiveCluster(slurm, slurm, recorder, WritePacer(PaceConfig(), SdiagLoad), apply=True, recheck=Recheck(slurm),
                       inputs=inputs, guard=SendCheck(), earlier_runs=lambda _: [])  # type: ignore[arg-type]  # fmt: skip
    return made, log


def cycle(slurm: OneJob, folder: Path, *, size: bool = True, on: bool = True) -> list[str]:
    """One cycle of a new process that keeps the size as it is; what it was refused."""
    now, _ = cluster(slurm, folder, size=size)
    plan = replace(PLANNER, lever=LeverConfig(admin_comment=on)).plan(now.read())
    ours = tuple(action for action in plan.actions if isinstance(action, SetAdminComment))
    records = tuple(record for record in plan.overrides if record.field == "admin_comment")
    return [outcome.message for outcome in now.apply(replace(plan, actions=ours, overrides=records)).refused]


@pytest.mark.parametrize(
    ("rights", "command"),
    [(Rights.ADMINISTRATOR, "scontrol update JobId=7"), (Rights.OPERATOR, "sacctmgr -iQ modify job where jobid=7 set")],
)
def test_lever__writes_once_and_undo_takes_it_back(rights: Rights, command: str, tmp_path: Path, monkeypatch) -> None:
    """Where its right allows it. A text that is there is not written again, and an empty one is not taken back."""
    monkeypatch.setenv("TZ", "UTC")
    slurm = OneJob(rights)
    cycle(slurm, tmp_path), cycle(slurm, tmp_path)
    assert slurm.sent == [f"{command} AdminComment={TEXT}"]
    for _ in range(2):
        now, _ = cluster(slurm, tmp_path)
        plan = undo_plan(now.read())
        only = [each for each in plan.actions if isinstance(each, SetAdminComment)]
        now.apply(replace(plan, actions=tuple(only)))
    assert slurm.sent[1:] == [f"{command} AdminComment="]


@pytest.mark.parametrize("rights", [Rights.ADMINISTRATOR, Rights.OPERATOR])
def test_lever__leaves_the_text_of_somebody_else(rights: Rights, tmp_path: Path) -> None:
    """It is refused once, and asked for again only when the job was submitted again."""
    slurm = OneJob(rights)
    slurm.comment = f"by | hand\n{TEXT}"
    said = cycle(slurm, tmp_path)
    assert said == ["changed since the snapshot: the text of another user is in its AdminComment"]
    assert (cycle(slurm, tmp_path), slurm.sent, slurm.comment) == ([], [], f"by | hand\n{TEXT}")
    slurm.row["submit_s"] = slurm.row["eligible_s"] = T0 - 5
    slurm.comment = ""
    cycle(slurm, tmp_path)
    assert len(slurm.sent) == 1


def test_lever__a_text_that_was_added_to_is_not_ours_any_more(tmp_path: Path) -> None:
    """Neither a new text nor undo takes what an admin wrote behind it."""
    slurm = OneJob(Rights.ADMINISTRATOR)
    cycle(slurm, tmp_path)
    slurm.comment += "; do not touch"
    cycle(slurm, tmp_path, size=False)
    now, _ = cluster(slurm, tmp_path)
    now.apply(undo_plan(now.read()))
    assert slurm.comment == f"{TEXT}; do not touch"


def test_lever__takes_the_text_when_nothing_holds_any_more_and_when_it_is_off(tmp_path: Path) -> None:
    """The job has its own size again, or lever.admin_comment is false."""
    for folder, options in (("a", {"size": False}), ("b", {"on": False})):
        (tmp_path / folder).mkdir()
        slurm = OneJob(Rights.ADMINISTRATOR)
        cycle(slurm, tmp_path / folder)
        assert slurm.comment == TEXT
        cycle(slurm, tmp_path / folder, **options)
        assert slurm.comment == ""


def test_lever__a_requeued_job_is_told_anew_in_accounting(tmp_path: Path) -> None:
    """slurmdbd begins another record; slurmctld keeps the text."""
    for rights, writes in ((Rights.OPERATOR, 2), (Rights.ADMINISTRATOR, 1)):
        folder = tmp_path / rights.name
        folder.mkdir()
        slurm = OneJob(rights)
        cycle(slurm, folder)
        slurm.row["submit_s"] = slurm.row["eligible_s"] = T0 - 5
        slurm.comment = "" if rights is Rights.OPERATOR else slurm.comment
        cycle(slurm, folder)
        assert (len(slurm.sent), slurm.comment) == (writes, TEXT)


def test_lever__without_the_right_nothing_is_planned() -> None:
    """A user may not write it; an Operator needs slurmdbd for it."""
    known = [on_record("size", "gpu:4", "gpu:2")]
    for site in (Site(rights=Rights.USER, settings=DBD), Site(rights=Rights.OPERATOR)):
        plan = PLANNER.plan(replace(seen(REQUEUED, records=known), site=site))
        assert not [action for action in plan.actions if isinstance(action, SetAdminComment)]
        assert not [each for each in undo_plan(replace(seen(REQUEUED, records=known), site=site)).actions
                    if isinstance(each, SetAdminComment)]  # fmt: skip


def test_lever__a_refused_write_is_tried_again(tmp_path: Path) -> None:
    """slurmdbd was away: nothing is on record, and the next cycle writes it."""
    slurm = OneJob(Rights.OPERATOR)
    slurm.answer = "refused"
    cycle(slurm, tmp_path)
    slurm.answer = "written"
    cycle(slurm, tmp_path)
    assert (len(slurm.sent), slurm.comment) == (2, TEXT)


@pytest.mark.parametrize("why", ["unknown", "crash", "unknown, written"])
def test_lever__a_write_without_an_answer_is_sent_again(why: str, tmp_path: Path) -> None:
    """Once, whether or not Slurm had taken it: what is on record says that it is not sure."""
    slurm = OneJob(Rights.ADMINISTRATOR)
    slurm.answer, slurm.crashes = "unknown", why == "crash"
    with pytest.raises(SystemExit) if slurm.crashes else nullcontext():
        cycle(slurm, tmp_path)
    slurm.answer, slurm.crashes, tries = "written", False, len(slurm.sent)
    slurm.comment = TEXT if why == "unknown, written" else ""
    cycle(slurm, tmp_path), cycle(slurm, tmp_path)
    assert (len(slurm.sent), slurm.comment) == (tries + 1, TEXT)


def test_lever__a_text_that_may_be_there_is_taken_back(tmp_path: Path) -> None:
    """Slurm took it and did not answer; then nothing holds any more."""
    slurm = OneJob(Rights.ADMINISTRATOR)
    slurm.answer = "unknown"
    cycle(slurm, tmp_path)
    slurm.answer, slurm.comment = "written", TEXT
    cycle(slurm, tmp_path, size=False), cycle(slurm, tmp_path, size=False)
    assert (len(slurm.sent), slurm.comment) == (2, "")


def test_undo__without_the_right_is_refused_and_stays_on_record(tmp_path: Path) -> None:
    """It says so with exit code 6 and may be tried again. A text goes from where it was written, whatever the right."""
    slurm = OneJob(Rights.ADMINISTRATOR)
    cycle(slurm, tmp_path)
    slurm.rights = Rights.USER
    now, log = cluster(slurm, tmp_path)
    plan = undo_plan(now.read())
    assert [action.new for action in plan.actions if isinstance(action, SetAdminComment)] == [""]
    receipt = now.apply(plan)
    assert (receipt.exit_code, log.known()[7, "admin_comment"].sent, slurm.comment) == (6, TEXT, TEXT)
    slurm.rights = Rights.OPERATOR
    (action,) = [each for each in undo_plan(now.read()).actions if isinstance(each, SetAdminComment)]
    assert " ".join(argv_of(action)).startswith("scontrol update")
    cycle(slurm, tmp_path, size=False)
    assert len(slurm.sent) == 1


def test_lever__a_text_that_cannot_be_read_is_refused_quietly_but_not_by_undo(tmp_path: Path) -> None:
    """slurmdbd is down: a cycle does not say so of each job. It writes once slurmdbd is back."""
    slurm = OneJob(Rights.OPERATOR)
    slurm.slurmdbd_down = True
    assert cycle(slurm, tmp_path) == []
    slurm.slurmdbd_down = False
    cycle(slurm, tmp_path)
    assert slurm.comment == TEXT
    slurm.slurmdbd_down = True
    now, log = cluster(slurm, tmp_path)
    log.lenient = True
    only = [each for each in undo_plan(now.read()).actions if isinstance(each, SetAdminComment)]
    assert [each.message for each in now.apply(Plan(tuple(only))).refused] == ["its AdminComment could not be read"]


def test_lever__writes_within_the_budget() -> None:
    """The rest waits for the next cycle."""
    rows = [REQUEUED | {"job_id": job} for job in (7, 8, 9)]
    at = seen(*rows, records=[Override(job, T0 - 30, "gpu_type", "gpu:4", "gpu:a:4") for job in (7, 8, 9)])
    every = np.ones(3, np.bool_)
    budget = Budget(every, 2, np.zeros(3, np.int64), ~every, GateContext(at))
    proposal = AdminCommentLever(True, ScopeConfig(partitions=("*",))).propose(at, Ranking(np.arange(3)), budget)
    assert ([action.job_id for action in proposal.actions], proposal.postponed) == ([7, 8], (9,))
