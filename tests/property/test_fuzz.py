"""Whatever bytes Slurm, a user or a damaged disk brings: no exception but ours, no hang, no invented fact.

Recorded answers of two releases are changed at random and read. Each reader gets SLURMSCHED_FUZZ changes (`make fuzz`:
10,000), a few here. A failure names its seed: SLURMSCHED_FUZZ_SEED=SEED SLURMSCHED_FUZZ=1 repeats it.
"""

from __future__ import annotations

import copy
import io
import os
import random
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
import pytest
from structlog.testing import capture_logs

from slurmsched.config_file import parse_config
from slurmsched.db.boot_clock import BootClock
from slurmsched.db.operation_log import OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError, SlurmschedError
from slurmsched.model import JobState, Labels, Outcome, SetNice, Snapshot, slurm_text
from slurmsched.model.gres import MOST_DEVICES, parse_gres
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.operations import Operation, Purpose, Victim
from slurmsched.model.overrides import Override
from slurmsched.observe.snapshot_file import read_snapshot, saved_snapshot, write_snapshot
from slurmsched.planning.planner import Planner
from slurmsched.slurm import reader, slurm_json
from slurmsched.slurm.accounting import parse_runs, parse_shares, parse_typical_run_times
from slurmsched.slurm.cons_tres import read_gpu_request
from slurmsched.slurm.job_records import job_records, parse_gpu_options, read_record
from slurmsched.slurm.reader import CommandReader
from slurmsched.slurm.scontrol_tables import parse_reservations
from slurmsched.slurm.site import parse_load
from slurmsched.slurm.slurm_json import read_dump
from slurmsched.testing.builders import mixed_snapshot
from tests.recorded.playback import HERE, MARK, UNIT, Answer, Playback, Scontrol, recorded_versions

TRIES = int(os.environ.get("SLURMSCHED_FUZZ", "12"))
FIRST = int(os.environ.get("SLURMSCHED_FUZZ_SEED", "0"))
HANG_CPU_S = 1.0 if TRIES > 1000 else 10.0  # of our own CPU time: a busy machine is no hang

NUMBERS = [
    "²",
    "٣",
    "-1",
    "0",
    "nan",
    "inf",
    "-inf",
    "1e309",
    "4294967294",
    "4294967295",
    "18446744073709551615",
    "9" * 40,
    "1_000",
    "0x10",
    "1.5",
    "+7",
    "NO_VAL",
    "INFINITE",
    "UNLIMITED",
    "N/A",
    "(null)",
    "Unknown",
    "INVALID",
    "",
    " ",
]
WORDS = [
    "\n",
    "\r",
    "\x00",
    "\x1e",
    "\x1f",
    "\x85",
    "\u2028",
    "|",
    ",",
    "=",
    ":",
    "[",
    "]",
    "(",
    ")",
    "%",
    "@",
    "+",
    "_",
    "\nJobId=3 JobName=x UserId=a(1) MinCPUsNode=1 ",
    "GRES=gpu:8(IDX:0-7)",
    "IDX:0-99999999",
    "n[0-99999999]",
    "n[0-99999999,",
    "gpu:99999999999999999999",
    "1-999999999:1",
    "99999999-00:00:00",
    "JobName=",
    "NodeName=n1 ",
    "PartitionName=gpu ",
    "State=PONDERING",
    "é☃",
    "\ufffd",
    "[[[[",
    "n" * 300,
    MARK,
    UNIT,
    "8_[1-4]",
    "7+1",
]


ODD: list[Any] = [
    None, True, -1, 2**31, 2**32 - 2, 2**63, -(2**63), 1e308, 10**30, 0.5, [], {}, "²", "x\ny", ["RUNNING", 3], [None],
    {"set": True, "infinite": True, "number": 1}, {"set": True}, {"set": True, "infinite": False, "number": "9"},
    {"set": True, "infinite": False, "number": 2**64}, "n[0-99999999]", float("inf"), float("nan"),
]  # fmt: skip


def changed(body: str, rng: random.Random) -> str:
    """The text after one to four changes: numbers, cuts, copies, words."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body) + 1)
        end = min(len(body), at + rng.choice((1, 3, 10, 40, 200)))
        kind = rng.randrange(7)
        if kind < 2:  # one of the next numbers
            while at < len(body) and not body[at].isdigit():
                at += 1
            end = at
            while end < len(body) and body[end].isdigit():
                end += 1
            body = body[:at] + rng.choice(NUMBERS) + body[end:]
        elif kind == 2:
            body = body[:at] + rng.choice(WORDS) + body[at:]
        elif kind == 3:
            body = body[:at] + body[end:]
        elif kind == 4:
            body = body[:at] + body[at:end] + body[at:]
        elif kind == 5:
            body = (
                body[:at]
                + chr(rng.choice((0, 7, 9, 10, 32, 127, 233, 0xFFFD, rng.randrange(32, 127))))
                + body[at + 1 :]
            )
        else:
            lines = body.split("\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a] = lines[b]
            body = "\n".join(lines)
    return body


def changed_json(value: Any, rng: random.Random) -> Any:
    """The value with one to four of its parts replaced, dropped or doubled."""
    made = copy.deepcopy(value)
    for _ in range(rng.randint(1, 4)):
        holder, key = made, None
        for _ in range(rng.randint(1, 8)):
            keys = (
                list(holder)
                if isinstance(holder, dict)
                else list(range(len(holder)))
                if isinstance(holder, list)
                else []
            )
            if not keys:
                break
            parent, key = holder, rng.choice(keys)
            holder = holder[key]
        if key is None:
            continue
        if rng.random() < 0.15:
            del parent[key]
        else:
            parent[key] = rng.choice([*ODD, rng.choice(NUMBERS)])
    return made


@contextmanager
def watched(seed: int) -> Iterator[None]:
    """Ends a hang with an error that names the seed; so does anything but an error of ours."""

    def hang(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_CPU_S)
    try:
        yield
    except SlurmschedError as error:
        assert str(error)
    except BaseException as error:
        error.add_note(f"SLURMSCHED_FUZZ_SEED={seed} SLURMSCHED_FUZZ=1")
        raise
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def fuzz(body: str, read: Callable[[str], object]) -> None:
    """Read the text changed in so many ways."""
    for seed in range(FIRST, FIRST + TRIES):
        given = changed(body, random.Random(seed))
        with watched(seed):
            read(given)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reader, "fresh_mark", lambda: MARK)
    with capture_logs():
        yield


@cache
def answer(version: str, name: str) -> str:
    body = (HERE / version / name).read_bytes().decode()
    return body.replace("\x1f", UNIT) if name in ("squeue.txt", "unfolded.txt") else body


ANSWERS = ("squeue", "sprio", "nodes", "partitions", "details", "config", "expanded", "unfolded")
PLANNER = Planner.from_config(parse_config({"policy": {"name": "las"}, "scope": {"partitions": ["*"]}}))


@pytest.mark.parametrize("version", recorded_versions())
@pytest.mark.parametrize("name", ANSWERS)
def test_snapshot__of_a_changed_answer(version: str, name: str) -> None:
    """It is read or refused; what is read can be planned by, and no column holds what no cluster can."""
    playback = Playback(HERE / version)
    now_s = time.time()

    def read(given: str) -> None:
        playback.instead = {f"{name}.txt": given}
        playback.asked.clear()
        snapshot = CommandReader(playback, clock=lambda: now_s).read()
        check(snapshot)
        PLANNER.plan(snapshot)

    fuzz(answer(version, f"{name}.txt"), read)


def check(snapshot: Snapshot) -> None:
    """What holds of every cluster."""
    jobs, table = snapshot.jobs, snapshot.allocations
    assert len(np.unique(jobs.job_id)) == len(jobs)
    assert (jobs.job_id > 0).all()
    for name in ("gpus", "nodes", "cpus", "restarts", "array_tasks", "mig_devices", "shards"):
        assert (getattr(jobs, name) >= 0).all(), name
    assert not np.isinf(jobs.submit_s).any()
    holds = set(jobs.job_id[jobs.is_state(JobState.RUNNING | JobState.SUSPENDED)].tolist())
    assert set(table.job_id.tolist()) <= holds
    assert (table.gpus <= MOST_DEVICES).all() or not len(table)
    for row in range(len(table)):
        mask = int(table.gpu_mask[row])
        assert mask == 0 or mask.bit_count() == table.gpus[row]


@pytest.mark.parametrize("version", recorded_versions())
def test_snapshot__of_changed_texts_of_users(version: str) -> None:
    """Names, comments and accounts of some jobs: no fact of any other job changes."""
    before = CommandReader(Framed(HERE / version), clock=lambda: 1e9).read()
    rows = answer(version, "squeue.txt").split(MARK)
    for seed in range(FIRST, FIRST + TRIES):
        rng = random.Random(seed)
        made, at = list(rows), rng.randrange(len(rows) // 6)
        words = "".join(rng.choice(WORDS[:-4]) for _ in range(rng.randint(1, 5)))
        made[at * 6 + rng.choice((4, 5))] = words
        job = int(made[at * 6].partition(UNIT)[0])
        details = {number: with_text(record, words) if number == job else record
                   for number, record in job_records(answer(version, "details.txt"))}  # fmt: skip
        playback = Framed(HERE / version, {"squeue.txt": MARK.join(made), "details.txt": "".join(details.values())})
        playback.records = details  # type: ignore[misc]
        with watched(seed):
            after = CommandReader(playback, clock=lambda: 1e9).read()
            assert facts(after, job) == facts(before, job)
            for name in MAY_BE_UNKNOWN:  # -1 = not known, which chooses no nodes: a forged record puts a job in doubt
                now, was = getattr(after.jobs, name), getattr(before.jobs, name)
                assert ((now == was) | (now == -1) | (after.jobs.job_id == job)).all(), name


class Framed(Playback):
    """Answers about single jobs as scontrol does, each behind the host name that was asked for before it."""

    records: ClassVar[dict[int, str]] = {}

    def start(self, program: str, *arguments: str, stdin: str = "") -> Answer:
        return Scontrol(self.records).start(program, stdin=stdin) if stdin else super().start(program, *arguments)


def with_text(record: str, words: str) -> str:
    return record.rstrip("\n") + f" Comment={words} \n"


MAY_BE_UNKNOWN = {"switches", "segment_nodes"}


def facts(snapshot: Snapshot, but: int) -> dict[str, Any]:
    """All that is known of jobs but one, by column; allocations of it are left out, too."""
    found: dict[str, Any] = {}
    for kind, table in (("jobs", snapshot.jobs), ("allocations", snapshot.allocations)):
        rows = np.flatnonzero(table.job_id != but)
        for name in table.__dataclass_fields__.keys() - MAY_BE_UNKNOWN:
            column = getattr(table, name)
            found[f"{kind}.{name}"] = column.take(rows) if isinstance(column, Labels) else repr(column[rows].tolist())
    return {name: list(values) if isinstance(values, Labels) else values for name, values in found.items()}


@pytest.mark.parametrize("version", recorded_versions())
def test_texts__of_other_commands(version: str, tmp_path: Path) -> None:
    """sacct, sdiag, reservations, shares, how jobs ask, and single records."""
    fuzz(answer(version, "sacct.txt"), lambda given: parse_runs(given, []))
    fuzz(answer(version, "sdiag.txt"), parse_load)
    fuzz("ReservationName=a StartTime=1795848837 EndTime=1795849837 Nodes=n[1-2] Users=bob TRES=cpu=4 State=ACTIVE\n"
         "  NodeName=n1 CoreIDs=0-3\n", parse_reservations)  # fmt: skip
    fuzz("ann|gpu|90|cpu=1,gres/gpu=1\nbob|gpu|9|gres/gpu=2\n", lambda given: parse_typical_run_times(given, []))
    fuzz("root||1|\nphysics|root|10|\nlab|physics|parent|\n", lambda given: parse_shares(given, "lab"))
    asked = UNIT.join(["3", "gres/gpu:2", "N/A", "N/A", "N/A", "1", "1000M", "NODE"])
    fuzz(f"{asked}{MARK}\n", lambda given: parse_gpu_options(given, MARK, "Exclusive"))
    for job, record in list(job_records(answer(version, "details.txt")))[::8]:
        name = record.partition("JobName=")[2].partition(" ")[0]

        def gpu_request(given: str, job: int = job, name: str = name) -> None:
            made = read_record(given, name)
            if made is not None:
                read_gpu_request(job, made)
                assert len(made.spread) == 2

        fuzz(record, gpu_request)


SMALL: dict[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "gres": (("gpu:a100:4(IDX:0-3),shard:8(0/4,1/4)", "gres/gpu:a100=2,gres/gpu=3", "gpu:(null):8(S:0-1)"), parse_gres),
    "time_s": (("1763321773", "2025-09-12T14:06:12"), slurm_text.time_s),
    "duration_s": (("1-02:03:04", "02:03.500", "UNLIMITED"), slurm_text.slurm_duration_s),
    "memory_mib": (("62.50G", "4000M"), slurm_text.memory_mib),
    "count_tasks": (("1-10,15%4", "0-8:4"), slurm_text.count_tasks),
    "count_of": (("1.50K", "12"), slurm_text.parse_count),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_texts__never_break_a_reader(name: str) -> None:
    """A number that is told is one that can be: no NaN of a text that is none, nothing below 0, nothing endless."""
    examples, read = SMALL[name]

    def checked(given: str) -> None:
        value = read(given)
        none = given in slurm_text.UNSET | slurm_text.ENDLESS or (name == "time_s" and not given.strip("0"))
        if isinstance(value, int | float) and not none:
            assert 0 <= value < 10**15, given
        if name == "gres":
            for entry in value:  # type: ignore[attr-defined]
                assert 0 <= entry.count < 2**63 and entry.mask.bit_length() <= MOST_DEVICES

    for example in examples:
        fuzz(example, checked)


def test_hostlists__never_break_the_reader() -> None:
    """Names or ValueError, and never more than are allowed."""

    def read(given: str) -> None:
        try:
            assert len(expand_hostlist(given, 5000)) <= 5000
        except ValueError as error:
            assert str(error)

    for example in ("n[1-3,7],m1", "a[01-10]b[1-2]", "n[1-4999]"):
        fuzz(example, read)


@pytest.mark.parametrize("version", recorded_versions())
@pytest.mark.parametrize(("name", "reader"), [("jobs", "read_jobs"), ("nodes", "read_nodes"), ("sdiag", "read_load")])
def test_json__never_breaks_a_reader(version: str, name: str, reader: str, tmp_path: Path) -> None:
    """One odd row is left out or left alone, and the others are read; an answer of another form is refused."""
    body = orjson.loads(answer(version, f"{name}.json"))
    if name == "jobs":
        body["jobs"] = [{key: value for key, value in job.items() if key != "job_resources"} for job in body["jobs"]][
            :12
        ]
    for seed in range(FIRST, FIRST + TRIES):
        given = changed_json(body, random.Random(seed))
        with watched(seed):
            if name == "jobs":
                check_jobs(slurm_json.read_jobs(given, 1e9)[0])
            else:
                getattr(slurm_json, reader)(given)
        if name == "jobs" and seed % 10 == 0:
            (tmp_path / "jobs.json").write_bytes(
                orjson.dumps(body)[: seed * 7] + b"\xff" if seed % 20 else orjson.dumps(body)
            )
            with watched(seed):
                read_dump(tmp_path / "jobs.json")


def check_jobs(jobs: Any) -> None:
    assert len(np.unique(jobs.job_id)) == len(jobs)
    assert (jobs.job_id > 0).all() and (jobs.gpus >= 0).all()


def records(folder: Path) -> tuple[OverrideLog, OperationLog]:
    """The journal and the record of operations beside it."""
    path = folder / "journal.jsonl"
    return OverrideLog(path), OperationLog(path, BootClock(lambda: 2000.0))


def write_records(folder: Path) -> None:
    """Some lines of each."""
    journal, operations = records(folder)
    nice = SetNice(7, 100.0, "", 0, 9, 0)
    journal.intend("1-1", [nice, SetNice(8, 100.0, "", 5, -3, 5)])
    journal.outcome("1-1", [Outcome(nice, "written", "")])
    victim = Victim(3, 50.0, "n1", 900.0)
    operation = Operation("0a1b2c-1-1100", Purpose.PREEMPT, 1, 1000.0, "zoe", "n[1-2]", 600.0, 1100.0, (victim,))
    operations.begin([operation])
    operations.sent([operation])
    lists = Override(7, 100.0, "node_list", "", "n1", values=("n1",), since_s=1000.0)
    journal.record([lists, Override(9, 100.0, "start_time", 0.0, 3000.0)])


@pytest.mark.parametrize("name", ["journal.jsonl", "journal.operations.jsonl"])
def test_journal__never_breaks_a_reader(name: str, tmp_path: Path) -> None:
    """Lines that cannot be read are set aside or refused by an error of ours."""
    write_records(tmp_path)
    path = tmp_path / name
    whole = path.read_text()
    assert whole

    def read(given: str) -> None:
        path.write_bytes(given.encode("utf-8", "surrogatepass"))
        journal, operations = records(tmp_path)
        for each in (
            lambda: journal.priorities(lenient=True),
            journal.priorities,
            journal.known,
            journal.compact,
            journal.settle,
            operations.open,
        ):
            with suppress(LedgerError):
                each()

    fuzz(whole, read)
    lines = [orjson.loads(line) for line in whole.splitlines()]

    def read_values(seed: int) -> None:
        made = changed_json(lines, random.Random(seed))
        with suppress(TypeError):  # no JSON
            read("".join(orjson.dumps(line).decode() + "\n" for line in made))

    for seed in range(FIRST, FIRST + TRIES):
        with watched(seed):
            read_values(seed)


def test_snapshot_file__never_breaks_the_reader(tmp_path: Path) -> None:
    """A changed file is refused or read; nothing else comes of it."""
    given, tree = mixed_snapshot(20), parse_config({"policy": {"name": "fifo"}, "scope": {"partitions": ["*"]}})
    write_snapshot(tmp_path / "s", saved_snapshot(given, Planner.from_config(tree).plan(given), tree))
    whole = (tmp_path / "s").read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = orjson.loads(members["snapshot.json"])
    for seed in range(FIRST, FIRST + TRIES):
        rng = random.Random(seed)
        if seed % 2:
            content = bytearray(whole)
            for _ in range(rng.randint(1, 5)):
                content[rng.randrange(len(content))] = rng.randrange(256)
            (tmp_path / "s").write_bytes(bytes(content))
        else:
            try:
                made = {**members, "snapshot.json": orjson.dumps(changed_json(head, rng))}
            except TypeError:
                continue
            with zipfile.ZipFile(tmp_path / "s", "w") as file:
                for name, data in made.items():
                    file.writestr(name, data)
        with watched(seed):
            read_snapshot(tmp_path / "s")
