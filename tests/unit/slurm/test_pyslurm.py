"""The pyslurm reader and its child process, with a stand-in for pyslurm."""

from __future__ import annotations

import json
import sys
from dataclasses import fields

import numpy as np
import pytest
from structlog.testing import capture_logs

from slurmsched.config import SlurmConfig
from slurmsched.errors import SlurmUnreachableError
from slurmsched.slurm import pyslurm_reader
from slurmsched.slurm import reader as reader_module
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.pyslurm_child import answer, load_columns
from slurmsched.slurm.pyslurm_reader import FIRST_REST_S, PyslurmChild, PyslurmError, PyslurmReader
from slurmsched.slurm.reader import CommandReader, open_reader
from slurmsched.slurm.squeue import GROUPS, KIND_FIELDS, REQUEST_FIELDS, RUN_FIELDS, split_rows
from tests.recorded.playback import HERE, MARK, UNIT, Answer, Playback, recorded_versions

STAND_IN = """
import os, signal, time
__version__ = "25.11.2"
class Job:
    def __init__(self, **values): self.__dict__.update(values)
class Jobs:
    @staticmethod
    def load():
        print("noise of a client library")
        {body}
"""
JOB = {
    "user_id": 1001, "user_name": "alice", "account": "physics", "partition": "gpu", "qos": "normal", "name": "x|y",
    "comment": None,
    "state_reason": "None", "reservation": None, "allocated_nodes": None, "state": "PENDING",
    "array_tasks_waiting": "1-4", "id": 7, "nice": 5, "priority": 1, "num_nodes": 1, "cpus": 1,
    "memory": 1000, "requeue_count": 0, "array_id": 7, "heterogeneous_id": None, "heterogeneous_offset": None,
    "is_requeueable": True, "is_batch_job": True, "is_cronjob": False, "submit_time": 100, "eligible_time": None,
    "start_time": None, "end_time": None, "run_time": 0,
}  # fmt: skip
GOOD = f"return {{7: Job(**{JOB!r})}}"


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Starts a real child whose pyslurm does what `body` says."""
    opened: list[PyslurmChild] = []

    def start(body: str, timeout_s: float = 20.0) -> PyslurmChild:
        (tmp_path / "pyslurm.py").write_text(STAND_IN.replace("{body}", body))
        opened.append(PyslurmChild(Commands(timeout_s=timeout_s)))
        return opened[-1]

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield start
    for each in opened:
        each.close()


def test_child__ships_columns(child):
    """Numbers and texts as columns, several times from one process, whatever the library prints."""
    it = child(GOOD)
    assert it.version == "25.11.2"
    for _ in range(2):
        it.ask()
        columns = it.columns()
        assert (columns["job_id"].tolist(), columns["name"][1], columns["comment"][1]) == ([7], ["x|y"], [""])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
        ("os._exit(3)", "status 3"),
        ("raise RuntimeError('no answer')", "RuntimeError: no answer"),
        ("time.sleep(60)", "no answer within"),
    ],
)
def test_child__dies_alone(child, body, words):
    """A crash, an exit, an error or a hang of the library is an error here, in the time that is set."""
    it = child(body, timeout_s=300.0)
    if "sleep" in body:
        it._timeout_s = 0.5  # once it runs: a busy machine takes seconds to start it
    it.ask()
    with pytest.raises(PyslurmError, match=words):
        it.columns()


def test_child__tells_that_pyslurm_is_missing(tmp_path, monkeypatch):
    """Without pyslurm the reason is the import's own."""
    (tmp_path / "pyslurm.py").write_text("raise ImportError('libslurmfull.so: cannot open shared object file')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(PyslurmError, match="libslurmfull"):
        PyslurmChild(Commands(timeout_s=20))


def test_child__that_closes_its_output_and_lives_on_is_ended(child, monkeypatch):
    """It has a while to end; then it is killed, and that too is an error of the child."""
    monkeypatch.setattr(pyslurm_reader, "END_S", 0.2)
    it = child("os.closerange(3, 20); os.close(1); time.sleep(60)")
    it.ask()
    with pytest.raises(PyslurmError, match=r"did not end within 0\.2 s"):
        it.columns()
    assert it._process.poll() is not None


class Row:
    """A job as pyslurm shows it."""

    def __init__(self, **values):
        self.__dict__.update(JOB | values)


def test_load_columns__has_a_row_a_job():
    """None is 0 for a number, NaN for a time and "" for a text."""
    columns = load_columns(lambda: {7: Row(), 8: Row(id=8, array_id=None, submit_time=300, comment="c")})
    assert (columns["job_id"].tolist(), columns["array_job_id"].tolist()) == ([7, 8], [7, 0])
    assert columns["submit_s"].tolist() == [100.0, 300.0] and np.isnan(columns["eligible_s"]).all()
    codes, names = columns["comment"]
    assert [names[code] for code in codes] == ["", "c"]


class AskedUser(Row):
    """A job that counts how often its user's name is asked for."""

    asked = 0

    def __init__(self, **values):
        super().__init__(**values)
        del self.__dict__["user_name"]

    @property
    def user_name(self):
        AskedUser.asked += 1
        return {1: "alice", 2: "bob"}[self.user_id]


def test_load_columns__asks_once_for_the_name_of_a_user(monkeypatch):
    """pyslurm looks into the system's users each time."""
    monkeypatch.setattr(AskedUser, "asked", 0)
    jobs = {job: AskedUser(id=job, user_id=1 + job % 2) for job in range(6)}
    codes, names = load_columns(lambda: jobs)["user"]
    assert [names[code] for code in codes] == ["alice", "bob"] * 3
    assert AskedUser.asked == 2


def test_answer__turns_any_error_into_words():
    """Whatever the library raises is said, not thrown."""

    def load():
        raise ValueError("bad slurm.conf")

    assert answer(load) == ("error", "ValueError: bad slurm.conf")


class Replayed:
    """A child that answers with the columns of a recorded queue."""

    def __init__(self, columns, fails=False):
        self._columns, self.fails, self.asked, self.closed = columns, fails, 0, False

    def ask(self):
        self.asked += 1

    def columns(self):
        if self.fails:
            raise PyslurmError("pyslurm's process ended with signal 11")
        return dict(self._columns)

    def close(self):
        self.closed = True


class WithRequests(Playback):
    """A recording that also answers the small squeue of the pyslurm reader, from its full one."""

    def start(self, program, *arguments, stdin=""):
        if program != "squeue" or "--array" in arguments or f"JobID:0{MARK}" not in arguments[-1]:
            return super().start(program, *arguments, stdin=stdin)
        flat = split_rows((self.folder / "squeue.txt").read_bytes().decode().replace("\x1f", UNIT), MARK)
        rows = []
        for i in range(0, len(flat), len(GROUPS)):
            ids, kind, run = (group.split(UNIT) for group in flat[i : i + 3])
            found = dict(zip((*KIND_FIELDS, *RUN_FIELDS), (*kind, *run), strict=True))
            rows.append(f"{ids[0].strip()}{MARK}{UNIT.join(found[name] for name in REQUEST_FIELDS)}{MARK}\n")
        return Answer("".join(rows))


@pytest.fixture(params=recorded_versions())
def recording(request, monkeypatch):
    monkeypatch.setattr(reader_module, "fresh_mark", lambda: MARK)
    monkeypatch.setattr(pyslurm_reader, "fresh_mark", lambda: MARK)
    folder = HERE / request.param
    return WithRequests(folder), json.loads((folder / "facts.json").read_text())["now_s"]


def child_columns(jobs) -> dict:
    """The columns a child would send for these jobs."""
    numbers = ("job_id", "nice", "priority", "nodes", "cpus", "memory_mib", "restarts", "array_job_id", "het_job_id",
               "het_offset", "requeueable", "batch", "cron")  # fmt: skip
    columns = {name: np.asarray(getattr(jobs, name)).astype(np.int64) for name in numbers}
    columns |= {name: getattr(jobs, name) for name in ("submit_s", "eligible_s", "start_s", "end_s", "run_s")}
    columns["start_s"] = np.where(np.isnan(jobs.start_s), jobs.expected_start_s, jobs.start_s)  # one field in Slurm
    for name in ("user", "account", "partition", "qos", "name", "comment", "reason", "reservation", "node_list"):
        texts = getattr(jobs, name)
        columns[name] = texts.codes, list(texts.names)
    words = ["SUSPENDED" if state == 4 else "RUNNING" if state == 2 else "PENDING" for state in jobs.state.tolist()]
    tasks = [f"1-{count}" if count > 1 else "" for count in jobs.array_tasks.tolist()]
    for name, texts in (("state", words), ("array_tasks", tasks)):
        columns[name] = np.arange(len(texts)), texts
    return columns


def test_read__equals_the_command_reader(recording):
    """What pyslurm tells, joined with the commands' part, is the same snapshot, field by field."""
    commands, now_s = recording
    expected = CommandReader(commands, clock=lambda: now_s).read()
    reader = PyslurmReader(commands, CommandReader(commands), lambda _: Replayed(child_columns(expected.jobs)))
    found = reader.read()
    for spec in fields(found.jobs):
        np.testing.assert_array_equal(list(getattr(found.jobs, spec.name)), list(getattr(expected.jobs, spec.name)))
    assert found.allocations.gpu_mask.tolist() == expected.allocations.gpu_mask.tolist()


def test_read__an_array_whose_tasks_cannot_be_counted_is_left_alone(recording):
    """It says nothing of the other jobs, and pyslurm is read on."""
    commands, now_s = recording
    jobs = CommandReader(commands, clock=lambda: now_s).read().jobs
    columns = child_columns(jobs)
    columns["array_tasks"][1][0] = "1-x"
    with capture_logs() as logs:
        found = PyslurmReader(commands, CommandReader(commands), lambda _: Replayed(columns)).read()
    assert (logs, len(found.jobs), found.jobs.array_tasks[0], found.jobs.fixed_priority[0]) == ([], len(jobs), 1, True)
    assert any(warning.startswith(f"job {jobs.job_id[0]}: squeue shows") for warning in found.warnings)


def test_read__falls_back_when_the_child_dies(recording):
    """This read and those of the next while go by the commands; one warning says so; then a new child is tried."""
    commands, now_s = recording
    expected = CommandReader(commands, clock=lambda: now_s).read()
    now = [0.0]
    made: list[Replayed] = []

    def open_child(_):
        made.append(Replayed(child_columns(expected.jobs), fails=not made))
        return made[-1]

    reader = PyslurmReader(commands, CommandReader(commands), open_child, clock=lambda: now[0])
    with capture_logs() as logs:
        assert len(reader.read().jobs) == len(expected.jobs)
        now[0] = FIRST_REST_S / 2
        reader.read()
        assert (len(made), made[0].asked) == (1, 1)
        now[0] = FIRST_REST_S + 1
        assert len(reader.read().jobs) == len(expected.jobs)
    assert (len(made), made[1].asked) == (2, 1)
    assert [(entry["event"], entry["instead"]) for entry in logs] == [("pyslurm.failed", "cli")]


def test_doubt_rights__reaches_both_ways_to_read(recording, monkeypatch):
    """With the child and without it the next read asks for our rights again."""
    commands, now_s = recording
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    jobs = CommandReader(commands, clock=lambda: now_s).read().jobs
    with monkeypatch.context() as patch, capture_logs():
        patch.setattr(commands, "instead", {"users.txt": "UserName=12345(12345) DefAccount= AdminLevel=Operator\n"})
        dies = PyslurmReader(commands, CommandReader(commands), lambda _: Replayed(child_columns(jobs), fails=True))
        for reader in (PyslurmReader(commands, CommandReader(commands), lambda _: Replayed(child_columns(jobs))), dies):
            reader.read()
            for asked, doubt in ((0, False), (1, True)):
                if doubt:
                    reader.doubt_rights()
                commands.asked.clear()
                reader.read()
                assert sum("assoc_mgr" in words for words in commands.asked) == asked


def test_read__ends_a_child_whose_answer_was_not_taken(recording, monkeypatch):
    """slurmctld away between the two: the next read must not take the answer to this one's question for its own."""
    commands, now_s = recording
    made: list[Replayed] = []

    def open_child(_):
        made.append(Replayed(child_columns(CommandReader(commands, clock=lambda: now_s).read().jobs)))
        return made[-1]

    reader = PyslurmReader(commands, CommandReader(commands), open_child)
    start = commands.start

    def no_slurmctld(*_, **__):
        raise SlurmUnreachableError("away")

    reader.begin()
    monkeypatch.setattr(commands, "start", no_slurmctld)
    with pytest.raises(SlurmUnreachableError):
        reader.read()
    monkeypatch.setattr(commands, "start", start)
    reader.read()
    assert [(each.asked, each.closed) for each in made] == [(1, True), (1, False)]


def test_read__rests_longer_after_each_failure(recording):
    """A child that never works is tried ever less often."""
    commands, _ = recording
    now = [0.0]
    tries = []

    def open_child(_):
        tries.append(now[0])
        raise PyslurmError("no pyslurm")

    reader = PyslurmReader(commands, CommandReader(commands), open_child, clock=lambda: now[0])
    with capture_logs():
        for now[0] in range(0, 3000, 10):
            reader.begin()
    assert tries == [0, 60, 180, 420, 900, 1860]


def test_open_reader__takes_the_configured_adapter():
    """auto and cli are the commands, pyslurm is pyslurm."""
    assert [open_reader(SlurmConfig(adapter=name)).name for name in ("auto", "cli", "pyslurm")] == [
        "cli",
        "cli",
        "pyslurm",
    ]
