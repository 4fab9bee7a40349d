"""The file of finished points."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.errors import InputError, LockedError
from slurmsched.sim.experiments.parameter_sweep import open_results

A, B = {"key": "a", "jobs": 1}, {"key": "b", "jobs": 2}


def test_results__come_back(tmp_path: Path) -> None:
    """In their order; what a second opening adds comes behind."""
    path = tmp_path / "r.jsonl"
    for row in (A, B):
        with open_results(path) as results:
            results.add(row)
    with open_results(path) as results:
        assert list(results.rows.values()) == [A, B]


@pytest.mark.parametrize("cut", [1, 5, 18])
def test_results__drop_a_torn_last_line(tmp_path: Path, cut: int) -> None:
    """Wherever it was cut off; the next row is readable again."""
    path = tmp_path / "r.jsonl"
    with open_results(path) as results:
        results.add(A)
        results.add(B)
    path.write_bytes(path.read_bytes()[:-cut])
    with open_results(path) as results:
        assert results.rows == {"a": A}
        results.add(B)
    with open_results(path) as results:
        assert results.rows == {"a": A, "b": B}


@pytest.mark.parametrize("line", ["hello", "3", '{"jobs": 1}'])
def test_results__refuse_a_file_of_something_else(tmp_path: Path, line: str) -> None:
    """With the line; the file stays as it was."""
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"key": "a"}}\n{line}\n')
    with pytest.raises(InputError, match=r"r\.jsonl:2: is no row of a sweep"), open_results(path):
        pass
    assert path.read_text().endswith(f"{line}\n")


def test_results__are_of_one_sweep_at_a_time(tmp_path: Path) -> None:
    """A second one is told so, and may go on when the first has ended."""
    path = tmp_path / "r.jsonl"
    with open_results(path), pytest.raises(LockedError, match="another sweep writes here"), open_results(path):
        pass
    with open_results(path) as results:
        assert results.rows == {}


def test_results__name_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Before anything is played."""
    with pytest.raises(InputError, match="cannot be written"), open_results(tmp_path / "no" / "r.jsonl"):
        pass
