"""Options of jobs from their records and from squeue, and how long jobs usually ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.model import Site
from slurmsched.resources.topology_limits import topology_request
from slurmsched.slurm.accounting import parse_typical_run_times, read_typical_run_times
from slurmsched.slurm.job_records import (
    ExclusiveJobs,
    SpreadRequests,
    _exclusive_field,
    exclusive_field,
    parse_exclusive,
    parse_gpu_options,
)
from slurmsched.slurm.squeue import unit_of
from slurmsched.testing import snapshot
from tests.recorded.playback import Scontrol

ROWS = (("3", "gres/gpu:2", "N/A", "N/A", "N/A", "1", "1000M", "NODE"),
        ("1", "N/A", "N/A", "cpu=3,gres/gpu=2", "N/A", "2", "0", "NO"))  # fmt: skip


def text(rows, mark: str = "\x1e") -> str:
    return "".join("\n" * bool(at) + unit_of(mark).join(row) + mark for at, row in enumerate(rows)) + "\n"


def test_parse_asked__by_job_id():
    """Options that were not used are empty; a memory of 0 is the whole node's."""
    found = parse_gpu_options(text(ROWS), "\x1e", "Exclusive")
    assert found.job_id.tolist() == [1, 3]
    assert [list(found.per_job), list(found.per_task)] == [["", "gres/gpu:2"], ["cpu=3,gres/gpu=2", ""]]
    assert [found.tasks.tolist(), found.whole_memory.tolist(), found.exclusive.tolist()] == [
        [2, 1], [True, False], [False, True]]  # fmt: skip


@pytest.mark.parametrize(("version", "field"), [("26.05.5", "Exclusive"), ("24.11.5", "OverSubscribe"), ("25.11.2", ""),
                                                ("", "")])  # fmt: skip
def test_exclusive__is_read_where_it_is_sure(version, field):
    """By release; in between no job is said to be alone on its nodes."""
    assert _exclusive_field(Site("c", version)) == field
    if field == "OverSubscribe":
        found = parse_gpu_options(text([(*ROWS[0][:-1], "NO"), (*ROWS[1][:-1], "OK")]), "\x1e", field)
        assert found.exclusive.tolist() == [False, True]


def test_parse_asked__tasks_that_are_not_set():
    """squeue prints NO_VAL, or a word, where there is no -n: one task."""
    rows = [(*ROWS[1][:5], told, *ROWS[1][6:]) for told in ("4294967294", "N/A", "4")]
    found = [parse_gpu_options(text([row]), "\x1e", "Exclusive").tasks.tolist() for row in rows]
    assert found == [[1], [1], [4]]


def test_parse_asked__torn_answers_are_refused():
    """Half an answer is none; a row of other fields, or of no job, is left out."""
    with pytest.raises(UnreadableError):
        parse_gpu_options(text(ROWS)[:-9], "\x1e", "Exclusive")
    odd = [ROWS[0][:-2], ["²", *ROWS[0][1:]], ["9" * 30, *ROWS[0][1:]]]
    assert len(parse_gpu_options(text([*odd, *ROWS]), "\x1e", "Exclusive")) == len(ROWS)


def test_usual__run_times_of_gpu_jobs():
    """Ascending, by user and partition. Jobs without GPUs are left out; broken rows are counted; nobody has none."""
    rows = "ann|gpu|90|cpu=1,gres/gpu=1\nann|gpu|30|gres/gpu=2\nann|gpu|9|cpu=1\nbob|gpu|x|gres/gpu=1\nbroken\n"
    warnings: list[str] = []
    assert parse_typical_run_times(rows, warnings) == {("ann", "gpu"): (30.0, 90.0)}
    assert warnings == ["run times of users: 2 rows of sacct cannot be read"]
    assert read_typical_run_times(None, (), warnings) == {}  # type: ignore[arg-type]


# Which jobs ask for whole nodes, as squeue of either age tells.


# What `squeue --Format=JobID:0|,FIELD:0` printed of jobs submitted without options, with --exclusive, with
# --oversubscribe and with --exclusive=user, on 24.11.5 and 26.05.5.
OLD = "4|USER\n3|YES\n2|NO\n1|OK\n"
NEW = "4|USER\n3|NO\n2|NODE\n1|NO\n"


@pytest.mark.parametrize(
    ("version", "field"),
    [("slurm-wlm 24.11.5", "OverSubscribe"), ("slurm 25.11.2", "OverSubscribe"), ("slurm-wlm 26.05.5", "Exclusive"),
     ("slurm 27.11.0", "Exclusive")],
)  # fmt: skip
def test_field_of__squeue_has_a_field_of_its_own_since_26_05(version, field):
    """The same word means another thing before and after."""
    assert exclusive_field(version)[0] == field


@pytest.mark.parametrize(("version", "text"), [("slurm 24.11.5", OLD), ("slurm 26.05.5", NEW)])
def test_exclusive__asks_in_the_words_of_its_version(version, text):
    """One squeue a time; its version is asked once."""
    asked = []

    class Commands:
        def run(self, *words: str) -> str:
            asked.append(words)
            return version if "--version" in words else text

    exclusive = ExclusiveJobs(Commands())
    assert (exclusive(), exclusive()) == (frozenset({2}), frozenset({2}))
    assert ["--version" in words for words in asked] == [True, False, False]


def test_exclusive__unreadable_answers_are_errors():
    """Nobody's nodes are cleared on a guess."""
    with pytest.raises(UnreadableError):
        exclusive_field("squeue")
    with pytest.raises(UnreadableError):
        parse_exclusive("x|NODE\n", "NODE")


@pytest.mark.parametrize("row", ["7", "7|", "7|NODE|NODE"])
def test_exclusive__a_row_of_another_form_asks_for_whole_nodes(row):
    """One row says nothing of the others; where in doubt a job needs more, not less."""
    assert parse_exclusive(f"1|NO\n{row}\n2|NODE\n", "NODE") == frozenset({2, 7})


# What waiting gangs ask of the fabric, asked once.


RECORD = (
    "JobId={job} JobName=x UserId=a(1) MinCPUsNode=1 WorkDir=/a StdOut=/b SegmentSize={job} Switches=1@00:05:00 "
    "TresPerNode=gres/gpu:1"
)


def queue(*jobs: int, nodes: int = 2, submit_s: float = 5.0):
    others = [{"job_id": job, "gpus": 1} for job in range(50, 80)]
    gangs = [{"job_id": job, "gpus": 4, "nodes": nodes, "submit_s": submit_s, "name": "x"} for job in jobs]
    return snapshot([*gangs, *others]).jobs


def test_spreads__are_asked_of_gangs_that_wait_once():
    """A job of one node is not asked for; one that is gone is not known; a new one of the same id is asked anew."""
    scontrol = Scontrol({job: RECORD.format(job=job) for job in (3, 4)})
    spreads = SpreadRequests(scontrol)
    for jobs in (queue(3, 9), queue(3, 9)):
        found = spreads(jobs)
        assert (found.switches[:2].tolist(), found.segment_nodes[:2].tolist()) == ([1, -1], [3, -1])
    assert scontrol.asked == [[3, 9], [9]]
    assert not spreads(queue(4, nodes=1)).segment_nodes.any()
    spreads(queue(3, submit_s=6.0))
    assert scontrol.asked[2:] == [[3]]


@pytest.mark.parametrize("column", ["comment", "name"])
def test_spreads__a_users_text_begins_no_record(column):
    """Job 3 has a line like the record of job 4 in it, and keeps its own wish."""
    words = "a\nJobId=4 JobName=x UserId=a(1) MinCPUsNode=1 WorkDir=/ Switches=9@00:05:00"
    told = {"name": "x", "comment": "", column: words}
    text = (
        f"JobId=3 JobName={told['name']} UserId=a(1) WorkDir=/a Comment={told['comment']} StdOut=/b Switches=1@00:05:00"
    )
    gangs = [{"job_id": job, "gpus": 4, "nodes": 2, "name": "x"} for job in (3, 4)]
    gangs[0][column] = words
    for records in ({3: text, 4: RECORD.format(job=4)}, {4: RECORD.format(job=4), 3: text}):
        found = SpreadRequests(Scontrol(records))(snapshot(gangs).jobs)
        assert found.switches[1] == 1
        assert found.switches[0] in (-1, 1)  # its own text may put its own wish in doubt


@pytest.mark.parametrize(
    "words",
    [
        " WorkDir=/x",
        " StdOut=/x",
        "\n" + RECORD.format(job=3),
        "\nJobId=4 ",
        " WorkDir=/x StdOut=/y\nJobId=77 JobName=x ",
    ],
)
def test_spreads__a_users_text_does_not_hide_a_wish(words):
    """A record in doubt is no job without wishes: no nodes are chosen for it. It is asked for less and less."""
    scontrol = Scontrol({3: RECORD.format(job=3).replace(" MinCPUsNode=1", f" MinCPUsNode=1 Comment={words}")})
    spreads, jobs = SpreadRequests(scontrol), queue(3)
    tables = [spreads(jobs) for _ in range(8)]
    assert {(int(found.switches[0]), int(found.segment_nodes[0])) for found in tables} == {(-1, -1)}
    assert len(scontrol.asked) == 4  # reads 1, 2, 4 and 8
    assert (
        topology_request(replace(snapshot([]), jobs=tables[0]), 0)
        == "whether it asks for switches or a segment is not known"
    )
    scontrol.records = {3: RECORD.format(job=3)}
    assert [int(spreads(jobs).switches[0]) for _ in range(8)][-1] == 1
