"""Columns: read-only arrays and text columns."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model import Labels, frozen


def test_frozen__cannot_be_written() -> None:
    """Writing to a column raises."""
    with pytest.raises(ValueError, match="read-only"):
        frozen([1.0, 2.0], np.float64)[0] = 3.0


def test_frozen__is_not_changed_through_the_source() -> None:
    """A writeable array given is copied, so its owner cannot change the column; and it stays writeable."""
    source = np.zeros(2)
    column = frozen(source, np.float64)
    source[0] = 5.0
    assert column.tolist() == [0.0, 0.0]


def test_frozen__keeps_a_read_only_array() -> None:
    """No copy where nothing could write."""
    column = frozen([1], np.int64)
    assert frozen(column, np.int64) is column


def test_labels__equal_columns_have_equal_codes() -> None:
    """Names ascend, whatever order the texts came in."""
    column = Labels.of(["b", "a", "b"])
    assert (column.names, column.codes.tolist(), list(column)) == (("a", "b"), [1, 0, 1], ["b", "a", "b"])


def test_labels__cannot_be_written() -> None:
    """Codes that a reader made with numpy are frozen like every other column."""
    with pytest.raises(ValueError, match="read-only"):
        Labels(np.zeros(2, np.int32), ("a",)).codes[0] = 1


def test_labels__take_drops_names_no_row_holds() -> None:
    """The cut column is equal to one made from the same texts."""
    cut = Labels.of(["b", "a", "c"]).take(np.array([2, 0]))
    assert (cut.names, cut.codes.tolist()) == (("b", "c"), [1, 0])


def test_labels__map_calls_once_a_name() -> None:
    """The function sees each distinct text once; rows get its value."""
    seen: list[str] = []
    lengths = Labels.of(["aa", "b", "aa"]).map(lambda name: seen.append(name) or len(name), np.int64)
    assert (lengths.tolist(), seen) == ([2, 1, 2], ["aa", "b"])


def test_labels__of_nothing() -> None:
    """An empty column maps to an empty one and holds no name."""
    empty = Labels.of([])
    assert (len(empty), empty.map(len, np.int64).tolist(), empty.isin(["x"]).tolist()) == (0, [], [])


def test_labels__constant_and_isin() -> None:
    """One name for all rows; isin tells by row."""
    assert Labels.constant("gpu", 2).isin({"gpu"}).tolist() == [True, True]
    assert Labels.of(["a", "b"]).isin({"b"}).tolist() == [False, True]
