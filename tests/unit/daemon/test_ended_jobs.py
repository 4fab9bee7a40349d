"""What ended, from a sacct of ours: asked little by little, kept in a file, bounded, quiet when slurmdbd is away."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched import paths
from slurmsched.config import PastConfig as Settings
from slurmsched.daemon import ended_jobs
from slurmsched.daemon.ended_jobs import FIELDS, LATE_S, PAUSE_S, EndedJobsReader, load_runs
from slurmsched.errors import SlurmError
from slurmsched.model import Snapshot
from slurmsched.model.durations import DAY_S
from slurmsched.model.snapshot import Site
from slurmsched.slurm.accounting import DELIMITER
from slurmsched.testing import snapshot

NOW = 1_758_880_800.0  # 2025-09-26 10:00 UTC
SITE = Site(cluster="lab", settings={"AccountingStorageType": "accounting_storage/slurmdbd"})


def row(job: int, end_s: float, *, runs_s: float = 60.0, state: str = "COMPLETED", **more: Any) -> dict[str, str]:
    """A run of two GPUs of ann that ended then."""
    told = {
        "JobID": job, "JobIDRaw": job, "User": "ann", "Account": "x", "Partition": "gpu", "State": state,
        "Submit": int(end_s - runs_s - 10), "Start": int(end_s - runs_s), "End": int(end_s), "Suspended": "00:00:00",
        "NNodes": 1, "AllocTRES": "cpu=2,gres/gpu:a100=2,gres/gpu=2,mem=1G", "JobName": "train",
        "Comment": "slurmsched: model=bert", **more,
    }  # fmt: skip
    return {name: str(told.get(name, "")) for name in FIELDS}


class Sacct:
    """Commands that answer with all of `rows`, and note the spans that were asked for [s before NOW]."""

    def __init__(self, *rows: dict[str, str]) -> None:
        self.rows, self.away, self.spans = list(rows), False, list[tuple[float, float]]()

    def run(self, program: str, *options: str) -> str:
        from datetime import datetime

        told = dict(option.lstrip("-").partition("=")[::2] for option in options)
        ends = (datetime.fromisoformat(f"{told[name]}+00:00").timestamp() for name in ("starttime", "endtime"))
        self.spans.append(tuple(NOW - each for each in ends))  # type: ignore[arg-type]
        if self.away:
            raise SlurmError("slurmdbd is away")
        return "\n".join(DELIMITER.join(each.values()) for each in self.rows)


class Clock:
    """Stands still, but for `step` seconds at each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.step, self.now = step, 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def past(
    sacct: Sacct, folder: Path, *, keep: bool = True, clock: Clock | None = None, **settings: Any
) -> EndedJobsReader:
    told = Settings(**({"days": 3} | settings))
    return EndedJobsReader(sacct, told, folder / "past.npz", keep=keep, clock=clock or Clock())  # type: ignore[arg-type]


def at(now_s: float = NOW, site: Site = SITE) -> Snapshot:
    return replace(snapshot(now_s=now_s), site=site)


def test_past__is_what_accounting_tells(tmp_path: Path) -> None:
    """A row a job, by its end, with what estimators group by; jobs without GPUs and runs that go on are left out."""
    cpu, going_on = row(4, NOW - 20, AllocTRES="cpu=1"), row(5, NOW - 5, state="RUNNING", End="Unknown")
    found = past(Sacct(row(2, NOW - 10, state="FAILED"), row(1, NOW - DAY_S), cpu, going_on), tmp_path)(at()).past
    assert (found.job_id.tolist(), found.end_s.tolist()) == ([1, 2], [NOW - DAY_S, NOW - 10])
    texts = (found.user, found.account, found.partition, found.name, found.model, found.gpu_type)
    assert [text[0] for text in texts] == ["ann", "x", "gpu", "train", "bert", "a100"]
    assert (found.executed_s.tolist(), found.attained_gpu_s.tolist()) == ([60.0, 60.0], [120.0, 120.0])
    assert found.completed.tolist() == [True, False]


def test_past__runs_of_a_requeued_job_are_one_job(tmp_path: Path) -> None:
    """On whichever days they ended; a job whose last known run was requeued is not over."""
    first, second = row(7, NOW - DAY_S, state="REQUEUED"), row(7, NOW - 100, runs_s=40)
    found = past(Sacct(first, second, row(8, NOW - 50, state="REQUEUED")), tmp_path)(at()).past
    assert (found.job_id.tolist(), found.executed_s.tolist(), found.end_s.tolist()) == ([7], [100.0], [NOW - 100])


def test_past__leaves_out_jobs_of_0_s(tmp_path: Path) -> None:
    """They tell nothing of run times; a run of 0 s that was requeued is a part of its job."""
    requeued, second = row(7, NOW - 200, runs_s=0, state="REQUEUED"), row(7, NOW - 100, runs_s=40)
    found = past(Sacct(row(1, NOW - 10, runs_s=0, state="FAILED"), requeued, second), tmp_path)(at()).past
    assert (found.job_id.tolist(), found.executed_s.tolist()) == ([7], [40.0])


def test_past__asks_backwards_then_only_for_what_is_new(tmp_path: Path) -> None:
    """The latest day first; within the hour nothing; then what ended since, an hour of lateness with it."""
    sacct = Sacct()
    known = past(sacct, tmp_path)
    known(at())
    assert sacct.spans == [(DAY_S, 0.0), (2 * DAY_S, DAY_S), (3 * DAY_S, 2 * DAY_S)]
    known(at(NOW + 3_599))
    assert len(sacct.spans) == 3
    sacct.rows = [row(1, NOW - 30), row(2, NOW + 30)]  # the first was told late
    assert known(at(NOW + 3_600)).past.job_id.tolist() == [1, 2]
    assert sacct.spans[3:] == [(LATE_S, -3_600.0)]


def test_past__a_cycle_spends_little_time_on_it(tmp_path: Path) -> None:
    """One call of 4 s, and a second as 5 s are not over; the third waits for the next cycle."""
    sacct = Sacct()
    known = past(sacct, tmp_path, clock=Clock(4.0))
    counts = []
    for cycle in range(4):
        known(at(NOW + 60 * cycle))
        counts.append(len(sacct.spans))
    assert counts == [1, 2, 3, 3]


def test_past__is_kept_for_the_next_process(tmp_path: Path) -> None:
    """A process a cycle asks no more than a daemon; the past it reads is the same."""
    sacct = Sacct(row(1, NOW - 30), row(2, NOW - 20, User="bob"))
    first = past(sacct, tmp_path)(at()).past
    calls = len(sacct.spans)
    assert (tmp_path / "past.npz").stat().st_mode & 0o777 == 0o640  # as the journal: names of users are in it
    again = past(sacct, tmp_path)(at(NOW + 60)).past
    assert (len(sacct.spans), again.job_id.tolist(), list(again.user)) == (calls, [1, 2], list(first.user))


def test_past__who_only_looks_writes_nothing(tmp_path: Path) -> None:
    """Without a file it asks by itself; with one it reads it, and asks nobody."""
    sacct = Sacct(row(1, NOW - 30))
    assert len(past(sacct, tmp_path, keep=False)(at()).past) == 1
    assert (list(tmp_path.iterdir()), len(sacct.spans)) == ([], 3)
    past(sacct, tmp_path)(at())
    looked = past(sacct, tmp_path, keep=False)(at(NOW + 2 * DAY_S))
    assert (len(looked.past), len(sacct.spans)) == (1, 6)


def test_past__slurmdbd_away_costs_a_warning_and_a_pause(tmp_path: Path) -> None:
    """What is known stays; it is left in peace for ten minutes, by later processes too, and then asked for less."""
    sacct = Sacct(row(1, NOW - 30))
    past(sacct, tmp_path)(at())
    sacct.away, later_s = True, NOW + 7_200.0
    told = past(sacct, tmp_path)(at(later_s))
    assert (told.warnings, len(told.past)) == (("jobs that ended: slurmdbd is away",), 1)
    assert (past(sacct, tmp_path)(at(later_s + 60)).warnings, len(sacct.spans)) == ((), 4)
    kept = load_runs(tmp_path / "past.npz")
    assert kept is not None and kept.span_s == DAY_S / 2
    sacct.away = False
    assert (past(sacct, tmp_path)(at(later_s + PAUSE_S)).warnings, len(sacct.spans)) == ((), 5)


def test_past__a_pause_ends_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """It is not waited for until the clock has come that far again."""
    sacct = Sacct(row(1, NOW - 30))
    past(sacct, tmp_path)(at())
    sacct.away = True
    past(sacct, tmp_path)(at(NOW + 18_000.0))
    sacct.away, spans = False, len(sacct.spans)
    assert (past(sacct, tmp_path)(at(NOW + 7_200.0)).warnings, len(sacct.spans)) == ((), spans + 1)


@pytest.mark.parametrize("again", [False, True])
def test_past__what_ends_after_the_clock_was_set_back_is_read(tmp_path: Path, again: bool) -> None:
    """By a week, in the daemon or between two of them: nothing that ends in that week is left out, and once it is over
    what was known of it before counts once."""
    sacct, back_s = Sacct(row(1, NOW - 30)), NOW - 7 * DAY_S
    known = past(sacct, tmp_path, days=30)
    known(at())
    known = past(sacct, tmp_path, days=30) if again else known
    known(at(back_s))
    sacct.rows.append(row(2, back_s + 1_800))
    assert 2 in known(at(back_s + 3_600)).past.job_id
    for day in range(1, 8):
        found = known(at(back_s + day * DAY_S))
    assert found.past.job_id.tolist() == [2, 1]


def test_past__is_bounded_in_rows_and_in_time(tmp_path: Path) -> None:
    """The latest rows stay, and no more days are asked for; what is older than `days` goes."""
    sacct = Sacct(*(row(job, NOW - 100 * job) for job in range(1, 9)))
    known = past(sacct, tmp_path, rows=5)
    assert (known(at()).past.job_id.tolist(), len(sacct.spans)) == ([5, 4, 3, 2, 1], 1)
    assert known(at(NOW + 3 * DAY_S - 250)).past.job_id.tolist() == [2, 1]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_past__a_file_that_cannot_be_read_is_made_anew(tmp_path: Path, content: bytes) -> None:
    """Accounting still has it all."""
    (tmp_path / "past.npz").write_bytes(content)
    assert len(past(Sacct(row(1, NOW - 30)), tmp_path)(at()).past) == 1
    assert load_runs(tmp_path / "past.npz") is not None


def test_past__a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The cycle goes on with what was read."""
    (tmp_path / "file").touch()
    told = past(Sacct(row(1, NOW - 30)), tmp_path / "file")(at())
    assert (len(told.past), "cannot be kept" in told.warnings[0]) == (1, True)


def test_past__rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    """A job name with a line break makes two of them; the others count."""
    torn = row(2, NOW - 20, JobName="two\nlines")
    told = past(Sacct(row(1, NOW - 30), torn), tmp_path, days=1)(at())
    assert (told.past.job_id.tolist(), told.warnings) == ([1], ("jobs that ended: 2 rows of sacct cannot be read",))


def test_past__without_slurmdbd_nobody_is_asked(tmp_path: Path) -> None:
    """There is no history to read."""
    sacct = Sacct(row(1, NOW - 30))
    assert (len(past(sacct, tmp_path)(at(site=Site())).past), sacct.spans) == (0, [])


def test_save__writes_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor to a name that somebody knew before."""
    monkeypatch.setattr(paths.secrets, "token_hex", lambda _: "aa")
    (tmp_path / "kept").write_text("kept")
    for name in (f".past.npz.{os.getpid()}", ".past.npz.aa.new"):
        (tmp_path / name).symlink_to(tmp_path / "kept")
    with pytest.raises(FileExistsError):
        ended_jobs.save_runs(tmp_path / "past.npz", ended_jobs.KnownRuns(0.0, 1.0, 1.0))
    assert (tmp_path / "kept").read_text() == "kept"
