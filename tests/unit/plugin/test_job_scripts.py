"""plugin/job: what a job tells and reads, by shell and by Python, with and without a shared folder."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from slurmsched.model.hints import REPORTED, parse_hints
from slurmsched.slurm.job_reports import RunningJobRequest, read_report, write_job_requests
from tests.unit.plugin.lua import PLUGIN

SCRIPT = PLUGIN / "job" / "slurmsched-job"
EXAMPLES = PLUGIN / "job" / "examples"
WORDS = ("progress=30/90", "loss=2.3:0.9:0.8", "batch=64", "throughput=512.5", "noise=1800", "metric=0.76")
SLURM = """#!/bin/sh
case $0 in
*squeue) echo "$*" >>asked; cat comment ;;
*) for word; do case $word in comment=*) printf '%s' "${word#comment=}" >comment ;; esac; done; echo "$*" >>asked ;;
esac
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's surroundings: its folder with reports and wants, and a Slurm that keeps one comment."""
    for name in ("jobs/reports", "jobs/wants", "bin", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("squeue", "scontrol"):
        (tmp_path / "bin" / name).write_text(SLURM)
        (tmp_path / "bin" / name).chmod(0o755)
    for name, value in {"SLURM_JOB_ID": "7", "SLURMSCHED_JOBS": str(tmp_path / "jobs"), "TMPDIR": str(tmp_path / "tmp"),
                        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*words: str, **more: str) -> tuple[int, str]:
    """Exit code and output of the script."""
    done = subprocess.run([SCRIPT, *words], env=os.environ | more, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def told(job: Path) -> tuple[str, ...]:
    """What slurmsched reads."""
    folder = os.open(job / "jobs" / "reports", os.O_RDONLY)
    try:
        return read_report(folder, 7, os.getuid()).words
    finally:
        os.close(folder)


def module() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(PLUGIN / "job" / "slurmsched_job.py")))


def test_report__of_the_shell_is_read_and_not_too_often(job: Path) -> None:
    """Every key; the second within the time does nothing; a planted time to come or a link holds nobody up."""
    assert said("report", *WORDS) == (0, "")
    assert (told(job), {word.partition("=")[0] for word in WORDS}) == (WORDS, set(REPORTED))
    assert said("report", "progress=31/90")[0] == 0 and told(job)[0] == "progress=30/90"
    assert said("report", "progress=31/90", SLURMSCHED_REPORT_S="0")[0] == 0 and told(job) == ("progress=31/90",)
    (report := job / "jobs" / "reports" / "7").write_text("time=99999999999 x")
    assert said("report", "progress=32/90")[0] == 0 and told(job) == ("progress=32/90",)
    report.unlink()
    report.symlink_to(job / "comment")
    assert said("report", "progress=33/90")[0] == 0 and told(job) == ("progress=33/90",)
    assert not (job / "comment").exists() and [*report.parent.iterdir()] == [report]


@pytest.mark.parametrize(
    "words",
    [(), ("progress",), ("min_gpus=1",), ("metric=$(id)",), ("metric=1 2",), ("batch=",), ("progress=x/y",),
     ("progress=30",), ("throughput=-5",), ("metric=fast",), ("loss=1:2:",)],
)  # fmt: skip
def test_report__refuses_what_is_no_report(job: Path, words: tuple[str, ...]) -> None:
    """With a word for the user, and nothing written."""
    code, text = said("report", *words)
    assert (code, bool(text), told(job)) == (2, True, ())


def test_report__goes_into_the_comment_without_a_folder(job: Path) -> None:
    """In place of what it told before; the user's text and other hints stay; no longer than Slurm takes."""
    (job / "comment").write_text("run 17 slurmsched: dur=2h progress=0/90")
    gone = {"SLURMSCHED_JOBS": str(job / "none"), "SLURMSCHED_REPORT_S": "0"}
    assert said("report", "progress=30/90", "batch=64", **gone) == (0, "")
    assert said("report", "progress=31/90", **gone) == (0, "")
    text = (job / "comment").read_text()
    assert text == "run 17 slurmsched: dur=2h slurmsched: batch=64 slurmsched: progress=31/90"
    assert (parse_hints(text).progress, parse_hints(text).warnings) == (31 / 90, ())
    assert said("report", "progress=32/90", SLURMSCHED_JOBS=gone["SLURMSCHED_JOBS"]) == (0, "")
    assert (job / "comment").read_text() == text
    (job / "comment").write_text("x" * 1_010)
    assert said("report", "progress=30/90", **gone)[0] == 1 and (job / "comment").read_text() == "x" * 1_010


def test_report__of_an_array_task_changes_its_own_comment_alone(job: Path) -> None:
    """The id of one task is that of the whole array, whose tasks have a comment each."""
    (job / "comment").write_text("of this task\nof another task\n")
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURMSCHED_JOBS": str(job / "none")}
    assert said("report", "progress=30/90", **task) == (0, "")
    assert (job / "comment").read_text() == "of this task slurmsched: progress=30/90"
    assert [line.split()[:4] for line in (job / "asked").read_text().splitlines()] == [
        ["-h", "-j", "7_3", "-o"], ["update", "jobid=7_3", "comment=of", "this"],
    ]  # fmt: skip


def test_wants__of_a_size_end_with_the_run_that_was_asked(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that came back without that size does not leave for it again and again; other requests hold."""
    write_job_requests(job / "jobs", {7: RunningJobRequest(4, 1_000, run=1)})
    for restarts, gpus in (("", 0), ("1", 4), ("2", 0)):
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        assert tuple(module().wants()) == (gpus, 1_000, False)
        assert said("wants", "gpus") == (0, f"{gpus}\n" if gpus else "")
        assert said("wants") == (0, f"gpus={gpus}\ncheckpoint=1000\n" if gpus else "checkpoint=1000\n")


def test_wants__are_read_as_slurmsched_writes_them(job: Path) -> None:
    """By shell and by Python; nothing where nothing is wanted."""
    assert (said("wants"), tuple(module().wants())) == ((0, ""), (0, 0, False))
    write_job_requests(job / "jobs", {7: RunningJobRequest(4, 1_000, True)})
    assert said("wants") == (0, "gpus=4\ncheckpoint=1000\nstop=yes\n")
    assert (said("wants", "gpus"), said("wants", "cpus")[0]) == ((0, "4\n"), 2)
    assert tuple(module().wants()) == (4, 1_000, True)


def test_module__tells_what_the_shell_tells(job: Path) -> None:
    """At most once in a while; other names are an error, a folder that is away is none."""
    made = module()
    values: dict[str, Any] = {"progress": (30, 90), "loss": (2.3, 0.9, 0.8), "batch": 64, "throughput": 512.5,
                              "noise": 1_800, "metric": 0.76}  # fmt: skip
    assert (made.report(**values), made.report(progress=(31, 90))) == (True, False)
    assert told(job) == WORDS
    with pytest.raises(ValueError, match="got min_gpus"):
        made.report(min_gpus=3)
    (job / "comment").write_text("")
    os.environ["SLURMSCHED_JOBS"] = str(job / "none")
    assert module().report(progress=(31, 90)) and "progress=31/90" in (job / "comment").read_text()


def test_module__finds_the_script_where_the_page_puts_it(job: Path) -> None:
    """The script in PATH, the module in another folder (docs/talking-jobs.md)."""
    shutil.copy(SCRIPT, job / "bin")
    shutil.copy(PLUGIN / "job" / "slurmsched_job.py", job / "jobs")
    (job / "comment").write_text("")
    os.environ["SLURMSCHED_JOBS"] = str(job / "none")
    assert runpy.run_path(str(job / "jobs" / "slurmsched_job.py"))["report"](progress=(31, 90))
    assert "progress=31/90" in (job / "comment").read_text()


def test_module__leaves_no_file_where_a_report_cannot_be_put(job: Path) -> None:
    """And says so."""
    (job / "jobs" / "reports" / "7").mkdir()
    assert not module().report(progress=(31, 90))
    assert [path.name for path in (job / "jobs" / "reports").iterdir()] == ["7"]


def trained(job: Path, workers: int, steps: int = 12) -> dict[str, Any]:
    """State of the elastic example after a run with so many workers, and what it printed."""
    argv = [sys.executable, str(EXAMPLES / "elastic.py"), str(steps), "state.json", str(workers)]
    text = (
        Path(argv[1]).read_text().replace("time.sleep(600)", "os._exit(0)").replace("STEP_S = 0.05", "STEP_S = 0.001")
    )
    code = f"import sys; sys.argv = {argv[1:]!r}; __file__ = {argv[1]!r}\n{text}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads((job / "state.json").read_text()) | {"said": done.stdout}


def test_elastic__changes_its_size_between_steps_and_loses_none(job: Path) -> None:
    """It leaves for the size that is wanted, goes on there, and ends as one that never changed."""
    write_job_requests(job / "jobs", {7: RunningJobRequest(3)})
    first = trained(job, 1)
    assert (first["step"], "leaves at step 1 for 3" in first["said"]) == (1, True)
    assert "requeue 7" in (job / "asked").read_text()
    last = trained(job, 3)
    assert (last["step"], last["runs"], told(job)[:2]) == (12, [[0, 1], [1, 3]], ("progress=2/12", "batch=64"))
    assert last["sum"] == sum((step * 64 + sample) % 1000 for step in range(12) for sample in range(64))


def test_elastic__trains_on_where_slurm_takes_no_requeue(job: Path) -> None:
    """slurmctld may be away for a while: that ends no training."""
    (job / "bin" / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    write_job_requests(job / "jobs", {7: RunningJobRequest(3)})
    state = trained(job, 1)
    assert (state["step"], state["said"].count("stays"), state["runs"]) == (12, 1, [[0, 1]])


@pytest.mark.parametrize("name", ["report_lightning", "report_huggingface"])
def test_callbacks__tell_progress_and_stop_when_that_is_wanted(job: Path, monkeypatch, name: str) -> None:
    """Beside stand-ins for the libraries: what the callbacks do themselves."""
    for library in ("lightning", "lightning.pytorch", "lightning.pytorch.callbacks", "transformers", "torch"):
        monkeypatch.setitem(sys.modules, library, MagicMock(Callback=object, TrainerCallback=object))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "slurmsched_job", raising=False)
    made = runpy.run_path(str(EXAMPLES / f"{name}.py"))["ReportProgress"]
    if name == "report_lightning":
        heard = made(64)
        state = MagicMock(is_global_zero=True, estimated_stepping_batches=90, should_stop=False)
        state.strategy.reduce_boolean_decision = lambda own, all: own
        step = lambda: heard.on_train_batch_end(state, None, None, None, 0)  # noqa: E731
        stopped = lambda: state.should_stop  # noqa: E731
    else:
        heard, state = made(), MagicMock(max_steps=90)
        control = SimpleNamespace(should_training_stop=False, should_save=False)
        args = SimpleNamespace(per_device_train_batch_size=16, gradient_accumulation_steps=2, world_size=2)
        step = lambda: heard.on_step_end(args, state, control)  # noqa: E731
        stopped = lambda: control.should_training_stop  # noqa: E731
    for done in (29, 30):
        state.global_step = done
        step()
    assert (told(job)[0], parse_hints(f"slurmsched: {' '.join(told(job))}").batch, stopped()) == (
        "progress=30/90",
        64,
        False,
    )
    write_job_requests(job / "jobs", {7: RunningJobRequest(0, 5, True)})
    step()
    assert stopped() and (name == "report_lightning" or control.should_save)


def test_huggingface__every_process_does_what_the_first_one_reads(job: Path, monkeypatch) -> None:
    """Each would see the file at another step, save there alone, and hang. A request is saved for once."""
    for library in ("transformers", "torch"):
        monkeypatch.setitem(sys.modules, library, MagicMock(TrainerCallback=object))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "slurmsched_job", raising=False)
    sent: list[Any] = []
    hear = lambda box, src: box.__setitem__(0, sent[-1]) if sent else sent.append(box[0])  # noqa: E731
    sys.modules["torch"].distributed.broadcast_object_list = hear
    made = runpy.run_path(str(EXAMPLES / "report_huggingface.py"))["ReportProgress"]
    args = SimpleNamespace(per_device_train_batch_size=1, gradient_accumulation_steps=1, world_size=2)
    first, second = made(), made()
    said = []
    for request in (0, 5, 5):
        sent.clear()
        write_job_requests(job / "jobs", {7: RunningJobRequest(0, request, request > 0)})
        for rank, each in enumerate((first, second)):
            state = SimpleNamespace(global_step=1, max_steps=9, is_world_process_zero=not rank)
            control = SimpleNamespace(should_training_stop=False, should_save=False)
            each.on_step_end(args, state, control)
            said.append((control.should_training_stop, control.should_save))
            write_job_requests(job / "jobs", {7: RunningJobRequest()})  # before the second process has looked
    assert said == [(False, False)] * 2 + [(True, True)] * 2 + [(True, False)] * 2
