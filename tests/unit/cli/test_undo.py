from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from slurmsched.daemon.lock import exclusive_lock
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import SetNice, SetSiteFactor
from slurmsched.slurm import open_cluster as opening


@pytest.fixture
def written(site, fakes, monkeypatch):
    """Job 11 holds a nice and a site factor of ours, job 12 a nice that we never wrote."""
    from dataclasses import replace

    cluster, _ = fakes
    jobs = cluster.snapshot.jobs.with_columns(nice=[-500, 77, 0], site_factor=[900, 0, 0])
    cluster.snapshot = replace(cluster.snapshot, jobs=jobs)
    first_s, second_s, _ = map(float, jobs.submit_s)
    actions = (
        SetNice(11, first_s, "test", 5, -500, 5),
        SetNice(12, second_s, "test", 0, -300, 0),
        SetSiteFactor(11, first_s, "test", 0, 900, 0),
    )
    OverrideLog(site.parent / "journal.jsonl").intend("1", actions)

    def open_live(config, *, apply, heed_stop, lead):
        assert not heed_stop
        cluster.applies = apply
        return cluster

    monkeypatch.setattr(opening, "open_live", open_live)
    return cluster


def test_undo__shows_only_unless_applied(run, written):
    """Without --apply the table is all that happens."""
    answer = run("undo")
    assert answer.code == 0
    assert "2 levers to restore; --apply does it" in answer.out
    assert "job 12 left alone" in answer.out
    assert written.sent == []


def test_undo__a_look_needs_no_lock(run, written, site):
    """What would be restored can be seen while the daemon works; to restore it the daemon must end first."""
    with exclusive_lock(site.parent / "lock"):
        assert "2 levers to restore; --apply does it" in run("undo").out
        assert run("undo", "--apply", "--yes").code == 5
    assert written.sent == []


def test_undo__restores_every_lever_to_its_base(run, written):
    """Nice goes back to what the user chose, site factor to 0; foreign values stay."""
    answer = run("undo", "--apply", "--yes")
    assert answer.code == 0
    assert [(a.kind, a.job_id, a.new) for a in written.sent] == [("nice", 11, 5), ("site_factor", 11, 0)]


def test_undo__asks_first(run, written, monkeypatch):
    """A no at the question leaves everything as it is."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert run("undo", "--apply").code == 130
    assert written.sent == []


def test_undo__without_a_terminal_wants_yes(run, written, monkeypatch):
    """From a script there is nobody to ask: the option is named, nothing is written."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    answer = run("undo", "--apply")
    assert (answer.code, written.sent) == (2, [])
    assert "--yes" in answer.err


def test_undo__needs_no_ledger(run, written, site):
    """With database lost the journal is enough."""
    assert not (site.parent / "ledger.db").exists()
    told = json.loads(run("undo", "--apply", "--yes", "--json").out)
    assert (len(told["restore"]), told["receipt"]["written"]) == (2, 2)


def test_undo__not_all_restored_is_exit_code_3(run, written):
    """A job that Slurm refused is told, and the exit code says that it is not done."""
    written.refuses = frozenset({11})
    answer = run("undo", "--apply", "--yes")
    assert answer.code == 3
    assert "job 11: refused" in answer.err


def test_undo__takes_preemptions_under_way_back(run, written):
    """The job's name comes off its reservation, which is deleted; both are shown before, and in the JSON."""
    from dataclasses import replace

    from slurmsched.model import Operation, Purpose, Reservations

    snapshot = written.snapshot
    operation = Operation(
        "11-7", Purpose.PREEMPT, 11, float(snapshot.jobs.submit_s[0]), "ann", "n1", 3_600.0, snapshot.now_s
    )
    jobs = snapshot.jobs.with_columns(reservation=[operation.reservation, "", ""])
    kept = Reservations.build(1, {"name": [operation.reservation]})
    written.snapshot = replace(snapshot, jobs=jobs, operations=(operation,), reservations=kept)
    assert "1 preemption to end" in run("undo").out
    promise, lost = replace(operation, id="12-7", purpose=Purpose.RESERVE), replace(operation, id="13-7", begun_s=0.0)
    written.snapshot = replace(written.snapshot, operations=(operation, promise, lost))
    assert "1 preemption to end, 1 gang reservation to end, 1 left-over reservation to end" in run("undo").out
    written.snapshot = replace(written.snapshot, operations=(operation,))
    steps = json.loads(run("undo", "--json").out)["steps"]
    assert [(step["job_id"], step["step"], step["name"]) for step in steps] == [
        (11, "join", ""), (11, "unreserve", operation.reservation),
    ]  # fmt: skip
    assert run("undo", "--apply", "--yes").code == 0
    assert [action.kind for action in written.sent][-2:] == ["join", "unreserve"]


def test_undo__asks_no_job_for_another_size(run, written):
    """Shown before, and sent like the others."""
    from dataclasses import replace

    snapshot = written.snapshot
    written.snapshot = replace(snapshot, jobs=snapshot.jobs.with_columns(wanted_gpus=[0, 0, 4]))
    assert "1 asked size" in run("undo").out
    assert run("undo", "--apply", "--yes").code == 0
    assert (written.sent[-1].kind, written.sent[-1].gpus) == ("want", 0)


def test_undo__names_cpus_and_memory(run, written):
    """Each job that gets its own back is counted before anybody says yes."""
    from dataclasses import replace

    from slurmsched.model import Override

    snapshot = written.snapshot
    keys = list(zip(snapshot.jobs.job_id.tolist(), snapshot.jobs.submit_s.tolist(), strict=True))
    jobs = snapshot.jobs.with_columns(cpus=[4, 4, 4], memory_mib=[1024, 1024, 1024])
    records = [Override(*key, "memory", 2048, 1024) for key in keys[:2]] + [Override(*keys[0], "cpus", 8, 4)]
    written.snapshot = replace(snapshot, jobs=jobs, overrides=tuple(records))
    assert "2 levers to restore, 1 number of CPUs, 2 amounts of memory;" in run("undo").out


def test_undo__closes_a_preemption_of_which_nothing_is_left(run, written, monkeypatch):
    """slurmsched was killed right after its last step: the record must not tell for ever that it is being cleaned up.
    One that only ends now is closed too, once Slurm shows nothing of it any more."""
    from dataclasses import replace

    from slurmsched.model import Operation, OperationStage, Purpose, Reservations

    operation = Operation(
        "11-7", Purpose.PREEMPT, 11, 1.0, "ann", "n1", 3_600.0, 1.0, stage=OperationStage.CLEANING, sure=False
    )
    kept, none = Reservations.build(1, {"name": [operation.reservation]}), Reservations.build(0, {})
    written.snapshot = replace(written.snapshot, operations=(operation,), reservations=kept)
    plans, true_apply = [], written.apply

    def apply(plan):
        plans.append(plan)
        written.snapshot = replace(written.snapshot, reservations=none)
        return true_apply(plan)

    monkeypatch.setattr(written, "apply", apply)
    assert run("undo", "--apply", "--yes").code == 0
    assert [[each.stage for each in plan.operations] for plan in plans] == [
        [OperationStage.REVERSING],
        [OperationStage.CLOSED],
    ]
    assert plans[1].actions == ()
