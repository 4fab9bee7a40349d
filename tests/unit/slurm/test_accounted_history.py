"""A job's history by accounting: runs, what slurmsched wrote to AdminComment, and nothing that others wrote there."""

from __future__ import annotations

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.slurm.accounted_history import FIELDS, accounted_history


class Sacct:
    """sacct that has these records; each a row of FIELDS."""

    def __init__(self, *records: tuple[str, ...], cut: int = 0) -> None:
        self.records, self.cut = records, cut

    def run(self, program: str, *options: str) -> str:
        assert (program, options[-1]) == ("sacct", ",".join(FIELDS))
        mark = next(word for word in options if word.startswith("--delimiter=")).removeprefix("--delimiter=")
        text = "".join("".join(f"{value}{mark}" for value in record) + "\n" for record in self.records)
        return text[: len(text) - self.cut]


SAID = "slurmsched: requeued 2026-11-30T01:10Z for job 17"
FIRST = ("7", "ann", "1796000000", "1796000100", "1796001010", "REQUEUED", "n1", "slurmsched: node list n1")
AGAIN = ("7", "ann", "1796001010", "1796002000", "Unknown", "RUNNING", "n[2-3]", f"{SAID}; node list n1")


def told(*records: tuple[str, ...]) -> list[tuple[float, str, str, str]]:
    rows = accounted_history(Sacct(*records), 7)  # type: ignore[arg-type]
    return [(row.time_s, row.by, row.what, row.outcome) for row in rows]


def test_history__has_runs_and_what_slurmsched_did() -> None:
    """In the order of time; what two records say is one event."""
    assert told(AGAIN, FIRST) == [
        (1796000000.0, "slurmsched", "node list n1", ""),
        (1796000100.0, "Slurm", "run 0 began on n1", ""),
        (1796001010.0, "Slurm", "run 0 ended after 910 s", "REQUEUED"),
        (1796001010.0, "slurmsched", "requeued 2026-11-30T01:10Z for job 17", ""),
        (1796002000.0, "Slurm", "run 1 began on n[2-3]", ""),
    ]


def test_history__has_nothing_of_other_jobs_and_other_writers() -> None:
    """An id that was used again by another user, an array's other tasks, and the text of an administrator."""
    others = (("7", "bob", "1795000000", "1795000001", "1795000002", "COMPLETED", "n9", "slurmsched: node list n9"),
              ("8", "ann", "1796000000", "1796000100", "1796000200", "COMPLETED", "n8", SAID))  # fmt: skip
    assert told(*others, FIRST) == told(FIRST)
    by_hand = told((*FIRST[:-1], f"ask me | {SAID}\nslurmsched: node list n5"))
    assert [row[1] for row in by_hand] == ["Slurm", "Slurm"]
    assert told() == []
    forged = told((*FIRST[:-1], "slurmsched: requeued 2026-13-45T99:99Z for job x"))
    assert forged[0] == (1796000000.0, "slurmsched", "requeued 2026-13-45T99:99Z for job x", "")


def test_history__of_a_cut_answer_is_an_error() -> None:
    """Better than a part that looks like all."""
    with pytest.raises(UnreadableError):
        accounted_history(Sacct(FIRST, cut=30), 7)  # type: ignore[arg-type]
