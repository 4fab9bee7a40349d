"""The pyslurm reader and its child process, with stand-ins for pyslurm and for Slurm's client library."""

from __future__ import annotations

import ctypes
import json
import pwd
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from slurmsched.config import SlurmConfig
from slurmsched.errors import SlurmUnreachableError
from slurmsched.slurm import pyslurm_reader
from slurmsched.slurm import reader as reader_module
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.pyslurm_child import HeaderStructs, JobLoader, answer
from slurmsched.slurm.pyslurm_reader import FIRST_REST_S, PyslurmChild, PyslurmError, PyslurmReader
from slurmsched.slurm.reader import CommandReader, open_reader
from slurmsched.slurm.squeue import GROUPS, KIND_FIELDS, RUN_FIELDS, split_rows
from tests.recorded.playback import HERE, MARK, UNIT, Playback, recorded_versions

# Fields of a job by type, in no order of Slurm's: only slurm.h has that.
FIELDS = {
    "uint16_t": "batch_flag cpus_per_task ntasks_per_node requeue restart_cnt sockets_per_node",
    "uint32_t": "job_id array_job_id het_job_id het_job_offset job_state nice num_cpus num_nodes num_tasks priority "
    "state_reason time_limit user_id",
    "uint64_t": "bitflags",
    "time_t": "submit_time eligible_time start_time end_time suspend_time pre_sus_time",
    "char *": "account partition qos name comment resv_name nodes array_task_str dependency features req_nodes "
    "exc_nodes tres_per_job tres_per_task tres_per_socket tres_per_node state_desc user_name tres_alloc_str "
    "tres_req_str",
}
HEADER = f"""
typedef uint64_t sluid_t; /* of a step */
typedef struct {{ sluid_t sluid; uint32_t job_id; }} slurm_step_id_t;
#define CRON_JOB  SLURM_BIT(22)
typedef struct job_info {{
    slurm_step_id_t step_id; /* one; of
                              * another type */
    {" ".join(f"{kind} {name};" for kind, names in FIELDS.items() for name in names.split())}
}} slurm_job_info_t;
typedef struct job_info_msg {{
    time_t last_update; uint32_t record_count; slurm_job_info_t *job_array;
}} job_info_msg_t;
"""
NICE_0, NO_VAL16, NO_VAL, INFINITE = 0x8000_0000, 0xFFFE, 0xFFFF_FFFE, 0xFFFF_FFFF
WAITING = {
    "job_id": 7, "nice": NICE_0 + 5, "priority": 1, "num_nodes": 1, "num_cpus": 1, "num_tasks": 1, "time_limit": 60,
    "het_job_offset": NO_VAL, "sockets_per_node": NO_VAL16, "ntasks_per_node": NO_VAL16, "cpus_per_task": NO_VAL16,
    "requeue": 1, "batch_flag": 1, "user_id": 0, "submit_time": 100, "account": "physics", "partition": "gpu",
    "qos": "normal", "name": "x|y", "tres_req_str": "cpu=1,mem=4G",
}  # fmt: skip
STATES, REASONS = {0: b"PENDING", 1: b"RUNNING", 2: b"SUSPENDED", 3: b"COMPLETED"}, {0: b"None", 1: b"Priority"}
STAND_IN = """
import ctypes, os, signal, time
from tests.unit.slurm.test_pyslurm import WAITING, ClientLibrary, Job
__version__ = "25.11.2"
library = ClientLibrary([WAITING])
loads = library.slurm_load_jobs
def slurm_load_jobs(*arguments):
    print("noise of a client library", flush=True)
    {body}
    return loads(*arguments)
library.slurm_load_jobs = slurm_load_jobs
ctypes.CDLL = lambda name: library
"""


class Job:
    """A job as pyslurm shows it."""

    @staticmethod
    def load(job_id: int, jobs: Any = (WAITING,), **other: Any) -> Any:
        found = next(job for job in jobs if job["job_id"] == job_id)
        shown = {"id": job_id, "cpus": found["num_cpus"], "state": STATES[found.get("job_state", 0)].decode()}
        names = ("name", "account", "partition", "qos", "comment", "user_id", "submit_time")
        return SimpleNamespace(**{**{name: found.get(name) for name in names}, **shown, **other})


class ClientLibrary:
    """Slurm's client library with these jobs, laid out as the header says. Texts are given as str."""

    def __init__(self, jobs: list[dict[str, Any]], header: str = HEADER) -> None:
        structs = HeaderStructs(header)
        self._job, self._message = structs.read("slurm_job_info_t"), structs.read("job_info_msg_t")
        self.jobs, self.loaded, self.fails, self._alive = jobs, 0, 0, list[Any]()

        def slurm_load_jobs(since: int, message: Any, flags: int) -> int:
            array = (self._job * len(self.jobs))(*(self._job(**self._raw(job)) for job in self.jobs))
            found = self._message(record_count=len(self.jobs), job_array=ctypes.addressof(array))
            self._alive += [array, found]
            message._obj.value = ctypes.addressof(found)
            self.loaded += 1
            return self.fails

        def slurm_free_job_info_msg(message: Any) -> None:
            self.loaded -= 1

        self.slurm_load_jobs, self.slurm_free_job_info_msg = slurm_load_jobs, slurm_free_job_info_msg
        self.slurm_job_state_string = lambda code: STATES[code]
        self.slurm_job_state_reason_string = lambda code: REASONS[code]

    def _raw(self, job: dict[str, Any]) -> dict[str, Any]:
        raw = dict(job)
        for name, value in job.items():
            if isinstance(value, str):
                self._alive.append(ctypes.create_string_buffer(value.encode()))
                raw[name] = ctypes.addressof(self._alive[-1])
        return raw


def load(*jobs: dict[str, Any], shown: Any = None) -> dict[str, Any]:
    """The columns of these jobs, each a waiting one with other values."""
    given = [WAITING | job for job in jobs]
    library = ClientLibrary(given)
    columns = JobLoader(library, HEADER, shown or (lambda job_id: Job.load(job_id, given))).load()
    assert library.loaded == 0  # what was loaded is freed
    return columns


def texts(coded: Any) -> list[str]:
    return [coded[1][code] for code in coded[0]]


@pytest.fixture
def site(tmp_path) -> Commands:
    """Slurm's commands, with the header where an installation has it."""
    for path, text in (("bin/squeue", "#!/bin/sh\n"), ("include/slurm/slurm.h", HEADER)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    return Commands(bin_dir=str(tmp_path / "bin"), timeout_s=20.0)


@pytest.fixture
def child(tmp_path, monkeypatch, site):
    """Starts a real child whose library does what `body` says."""
    opened: list[PyslurmChild] = []

    def start(body: str, timeout_s: float = 20.0) -> PyslurmChild:
        (tmp_path / "pyslurm.py").write_text(STAND_IN.replace("{body}", body))
        opened.append(PyslurmChild(Commands(bin_dir=site.bin_dir, timeout_s=timeout_s)))
        return opened[-1]

    monkeypatch.setattr(sys, "path", [str(tmp_path), str(HERE.parent.parent), *sys.path])
    yield start
    for each in opened:
        each.close()


def test_child__ships_columns(child):
    """Numbers and texts as columns, several times from one process, whatever the library prints."""
    it = child("pass")
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


def test_child__says_what_is_missing(tmp_path, monkeypatch, site):
    """Without pyslurm the reason is the import's own; without slurm.h, where it was looked for."""
    (tmp_path / "pyslurm.py").write_text("raise ImportError('libslurmfull.so: cannot open shared object file')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(PyslurmError, match="libslurmfull"):
        PyslurmChild(site)
    (tmp_path / "include/slurm/slurm.h").unlink()
    with pytest.raises(PyslurmError, match=f"there is no {tmp_path}/include/slurm/slurm.h; install the headers"):
        PyslurmChild(site)


def test_child__that_closes_its_output_and_lives_on_is_ended(child, monkeypatch):
    """It has a while to end; then it is killed, and that too is an error of the child."""
    monkeypatch.setattr(pyslurm_reader, "END_S", 0.2)
    it = child("os.closerange(3, 20); os.close(1); time.sleep(60)")
    it.ask()
    with pytest.raises(PyslurmError, match=r"did not end within 0\.2 s"):
        it.columns()
    assert it._process.poll() is not None


def test_structs__are_laid_out_as_c_does():
    """Comments, names and aliases of types, structs in structs and pointers; whatever is unknown is refused."""
    job = HeaderStructs(HEADER).read("job_info")
    assert (job.step_id.offset, job.batch_flag.offset, job.job_id.offset) == (0, 16, 28)
    assert ctypes.sizeof(HeaderStructs(HEADER).read("job_info_msg_t")) == 24
    with pytest.raises(ValueError, match="declares no blob_t"):
        HeaderStructs("struct job { blob_t b; };").read("job")
    with pytest.raises(ValueError, match=r"job has an unknown field: char name\[8\]"):
        HeaderStructs("struct job { char name[8]; };").read("job")
    with pytest.raises(ValueError, match="declares no slurm_job_info_t"):
        JobLoader(ClientLibrary([]), "/* an empty file */", Job.load)
    with pytest.raises(ValueError, match="has no batch_flag"):
        JobLoader(ClientLibrary([]), HEADER.replace("batch_flag", "batch"), Job.load)


def test_loader__has_a_row_a_job():
    """No value is 0 for a number, NaN for a time and "" for a text."""
    two = load({}, {"job_id": 8, "array_job_id": 4, "array_task_str": "1-4%2", "submit_time": 300, "comment": "c",
                    "time_limit": INFINITE, "bitflags": 1 << 22, "eligible_time": 50, "priority": NO_VAL})  # fmt: skip
    assert (two["job_id"].tolist(), two["array_job_id"].tolist(), two["nice"].tolist()) == ([7, 8], [0, 4], [5, 5])
    assert (two["submit_s"].tolist(), two["time_limit_s"].tolist()) == ([100.0, 300.0], [3600.0, np.inf])
    assert (two["cron"].tolist(), two["sockets"].tolist(), two["het_offset"].tolist()) == ([0, 1], [0, 0], [0, 0])
    assert np.isnan(two["eligible_s"][0]) and np.isnan(two["start_s"]).all() and two["priority"].tolist() == [1, 0]
    assert (texts(two["comment"]), texts(two["array_tasks"])) == (["", "c"], ["", "1-4%2"])
    assert texts(two["tres_alloc"]) == ["cpu=1,mem=4G"] * 2
    assert load()["job_id"].tolist() == [] == texts(load()["name"])


def test_loader__computes_what_squeue_shows(monkeypatch):
    """Run times, nodes for tasks a node, reasons, states, TRES that a job got."""
    monkeypatch.setattr("time.time", lambda: 1000.9)
    ran = {"job_state": 1, "start_time": 400, "tres_alloc_str": "cpu=9"}
    found = load(
        ran,
        ran | {"job_id": 8, "suspend_time": 900, "pre_sus_time": 30},
        ran | {"job_id": 9, "job_state": 2, "suspend_time": 900, "pre_sus_time": 30, "state_desc": "why"},
        ran | {"job_id": 10, "job_state": 3, "end_time": 460},
        {"job_id": 11, "num_cpus": 8, "ntasks_per_node": 2, "cpus_per_task": 2, "start_time": 2000, "state_reason": 1},
    )
    assert found["run_s"].tolist() == [600.0, 130.0, 30.0, 60.0, 0.0]
    assert (found["nodes"].tolist(), texts(found["tres_alloc"])[3:]) == ([1, 1, 1, 1, 2], ["cpu=9", "cpu=1,mem=4G"])
    assert texts(found["state"]) == ["RUNNING", "RUNNING", "SUSPENDED", "COMPLETED", "PENDING"]
    assert texts(found["reason"]) == ["None", "None", "why", "None", "Priority"]


def test_loader__asks_once_for_the_name_of_a_user(monkeypatch):
    """Slurm sends names only where it is told to; the system is slow to ask. An unknown user is a number."""
    asked: list[int] = []

    def known(uid: int) -> Any:
        asked.append(uid)
        return SimpleNamespace(pw_name={1: "alice"}[uid])

    monkeypatch.setattr(pwd, "getpwuid", known)
    jobs = [{"job_id": job, "user_id": 1 + job % 2} for job in range(1, 5)] + [{"job_id": 5, "user_name": "bob"}]
    given = [WAITING | job for job in jobs]
    loader = JobLoader(ClientLibrary(given), HEADER, lambda job_id: Job.load(job_id, given))
    assert [texts(loader.load()["user"]) for _ in range(2)] == [["2", "alice", "2", "alice", "bob"]] * 2
    assert asked == [1, 2, 2]  # not of bob; of the unknown one again, who may be new


def test_loader__is_confirmed_by_pyslurm():
    """A header of another release shifts the fields: that is found before a column is used. Once is enough."""
    for other, words in (({"name": "z", "qos": "z"}, "name, qos"), ({"name": "z", "submit_time": 3}, "submit_time")):
        with pytest.raises(ValueError, match=f"not of this library: job 7 has another {words}$"):
            load({}, shown=lambda job_id, other=other: Job.load(job_id, **other))
    with pytest.raises(ValueError, match="pyslurm finds none of the jobs"):
        load({}, shown=lambda job_id: {}[job_id])
    shifted = HEADER.replace("uint32_t job_id; uint32_t array_job_id;", "uint32_t array_job_id; uint32_t job_id;")
    with pytest.raises(ValueError, match="pyslurm finds none of the jobs"):
        JobLoader(ClientLibrary([WAITING]), shifted, Job.load).load()
    asked: list[int] = []
    library = ClientLibrary([])
    loader = JobLoader(library, HEADER, lambda job_id: asked.append(job_id) or Job.load(job_id))
    loader.load()
    library.jobs = [WAITING, WAITING]
    assert ([len(loader.load()["job_id"]) for _ in range(2)], asked) == ([2, 2], [7, 7])
    library.fails = 1
    with pytest.raises(OSError, match="is slurmctld up"):
        loader.load()


@pytest.mark.parametrize("text", ["None", "", "\xe4", "\xf6"])
@pytest.mark.parametrize("field", ["name", "comment"])
def test_loader__is_not_turned_off_by_a_users_text(field, text):
    """pyslurm shows no text, "" and "None" alike, and it may fail at a text beyond ASCII."""
    given = [WAITING | {"job_id": 7, field: text}, WAITING | {"job_id": 8}]

    def shown(job_id):
        job = Job.load(job_id, given)
        if job_id == 7:
            setattr(job, field, "?" if text == "\xf6" else None)
            if text == "\xe4":
                delattr(job, field)
        return job

    assert texts(load(*given, shown=shown)[field])[0] == text


def test_loader__looks_again_at_a_job_that_changes():
    """It may start between the load and pyslurm's look at it. Another layout differs each time."""
    given = [WAITING, WAITING | {"job_id": 8}]
    library, asked = ClientLibrary(given), list[int]()

    def shown(job_id, late=1):
        asked.append(job_id)
        return Job.load(job_id, given, **({"state": "RUNNING"} if len(asked) <= late else {}))

    assert len(JobLoader(library, HEADER, shown).load()["job_id"]) == 2
    assert (library.loaded, asked) == (0, [8, 8, 7])
    with pytest.raises(ValueError, match=r"job 8 has another state$"):
        JobLoader(library, HEADER, lambda job_id: shown(job_id, 99)).load()


def test_loader__confirms_the_length_of_a_record():
    """One job fits a header whose struct is too short. The next load, of several jobs, is compared again."""
    longer = HEADER.replace("} slurm_job_info_t;", "uint64_t work; } slurm_job_info_t;")
    library = ClientLibrary([WAITING], longer)
    loader = JobLoader(library, HEADER, lambda job_id: Job.load(job_id, library.jobs))
    assert loader.load()["job_id"].tolist() == [7]
    library.jobs = [WAITING | {"job_id": job_id} for job_id in (7, 8, 9)]
    with pytest.raises(ValueError, match="not of this library: pyslurm finds none of the jobs"):
        loader.load()


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


@pytest.fixture(params=recorded_versions())
def recording(request, monkeypatch):
    monkeypatch.setattr(reader_module, "fresh_mark", lambda: MARK)
    folder = HERE / request.param
    return Playback(folder), json.loads((folder / "facts.json").read_text())["now_s"]


def child_columns(jobs, folder: Path) -> dict:
    """The columns a child would send for these jobs of a recording."""
    numbers = ("job_id", "nice", "priority", "nodes", "cpus", "restarts", "array_job_id", "het_job_id", "het_offset",
               "requeueable", "batch", "cron")  # fmt: skip
    columns = {name: np.asarray(getattr(jobs, name)).astype(np.int64) for name in numbers}
    times = ("submit_s", "eligible_s", "start_s", "end_s", "run_s", "time_limit_s")
    columns |= {name: getattr(jobs, name) for name in times}
    columns["start_s"] = np.where(np.isnan(jobs.start_s), jobs.expected_start_s, jobs.start_s)  # one field in Slurm
    named = ("user", "account", "partition", "qos", "name", "comment", "reason", "reservation", "node_list",
             "dependency", "features_asked", "nodes_asked", "nodes_excluded")  # fmt: skip
    for name in named:
        column = getattr(jobs, name)
        columns[name] = column.codes, list(column.names)
    words = ["SUSPENDED" if state == 4 else "RUNNING" if state == 2 else "PENDING" for state in jobs.state.tolist()]
    tasks = [f"1-{count}" if count > 1 else "" for count in jobs.array_tasks.tolist()]
    asked = [requests_of(folder)[job] for job in jobs.job_id.tolist()]
    for name, found in (("state", words), ("array_tasks", tasks)):
        columns[name] = np.arange(len(found)), found
    for name, source in (("tasks", "NumTasks"), ("sockets", "Sockets")):
        columns[name] = np.array([int(row[source]) if row[source].isdecimal() else 0 for row in asked])
    for name in ("tres_per_job", "tres_per_task", "tres_per_socket", "tres_per_node", "tres_alloc"):
        shown = [row[name.replace("_", "-")] for row in asked]
        columns[name] = np.arange(len(asked)), ["" if text == "N/A" else text for text in shown]
    return columns


def requests_of(folder: Path) -> dict[int, dict[str, str]]:
    """What squeue and its second call show of each job of a recording."""
    found = {}
    for path in filter(Path.exists, (folder / "unfolded.txt", folder / "squeue.txt")):
        flat = split_rows(path.read_bytes().decode().replace("\x1f", UNIT), MARK)
        for i in range(0, len(flat), len(GROUPS)):
            ids, kind, run = (group.split(UNIT) for group in flat[i : i + 3])
            found[int(ids[0])] = dict(zip((*KIND_FIELDS, *RUN_FIELDS), (*kind, *run), strict=True))
    return found


def test_read__equals_the_command_reader(recording):
    """What pyslurm tells, joined with the commands' part, is the same snapshot, field by field."""
    commands, now_s = recording
    expected = CommandReader(commands, clock=lambda: now_s).read()
    reader = PyslurmReader(
        commands, CommandReader(commands), lambda _: Replayed(child_columns(expected.jobs, commands.folder))
    )
    found = reader.read()
    for spec in fields(found.jobs):
        np.testing.assert_array_equal(list(getattr(found.jobs, spec.name)), list(getattr(expected.jobs, spec.name)))
    assert found.allocations.gpu_mask.tolist() == expected.allocations.gpu_mask.tolist()


def test_read__an_array_whose_tasks_cannot_be_counted_is_left_alone(recording):
    """It says nothing of the other jobs, and pyslurm is read on."""
    commands, now_s = recording
    jobs = CommandReader(commands, clock=lambda: now_s).read().jobs
    columns = child_columns(jobs, commands.folder)
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
        made.append(Replayed(child_columns(expected.jobs, commands.folder), fails=not made))
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
        dies = PyslurmReader(
            commands, CommandReader(commands), lambda _: Replayed(child_columns(jobs, commands.folder), fails=True)
        )
        for reader in (
            PyslurmReader(commands, CommandReader(commands), lambda _: Replayed(child_columns(jobs, commands.folder))),
            dies,
        ):
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
        made.append(Replayed(child_columns(CommandReader(commands, clock=lambda: now_s).read().jobs, commands.folder)))
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
