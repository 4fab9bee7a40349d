"""How jobs ask, and how long jobs usually ran, from squeue's and sacct's answers."""

from __future__ import annotations

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.model import Site
from slurmsched.slurm.accounting import parse_typical_run_times, read_typical_run_times
from slurmsched.slurm.job_options import _exclusive_field, parse_gpu_options
from slurmsched.slurm.squeue import unit_of

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
