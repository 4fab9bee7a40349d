"""Times, durations, sizes, task lists and key=value records."""

from __future__ import annotations

import math
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.errors import UnreadableError
from slurmsched.model.slurm_text import (
    count_tasks,
    memory_mib,
    real_number,
    record_fields,
    slurm_duration_s,
    split_records,
    time_s,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:05", 5.0), ("30:00", 1800.0), ("1:00:00", 3600.0), ("01:00:00", 3600.0), ("7-00:00:00", 604_800.0),
        ("1-02:03:04", 93_784.0), ("14:50.006", 890.006), ("UNLIMITED", math.inf), ("INFINITE", math.inf),
    ],
)  # fmt: skip
def test_duration_s__reads_slurm_durations(text, expected):
    """Minutes and seconds, hours, days, fractions, and no end."""
    assert slurm_duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["NOT_SET", "N/A", "Partition_Limit", "INVALID", ""])
def test_duration_s__is_nan_when_not_set(text):
    """Words for "none" are no duration."""
    assert math.isnan(slurm_duration_s(text))


@pytest.mark.parametrize("text", ["5", "1-2:3:4:5", "a:b", "-1:00", "1:2:3:4"])
def test_duration_s__refuses_other_text(text):
    """What Slurm never prints is an error with the text."""
    with pytest.raises(UnreadableError, match="duration"):
        slurm_duration_s(text)


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_duration_s__agrees_with_arithmetic(days, hours, minutes, seconds):
    """days-hours:minutes:seconds is a plain sum."""
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert slurm_duration_s(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == expected


def test_time_s__reads_both_formats():
    """Unix seconds as we ask for them, local ISO as recorded elsewhere."""
    moment = "2025-09-12T14:06:12"
    assert (time_s("1763321773"), time_s(moment)) == (1_763_321_773.0, datetime.fromisoformat(moment).timestamp())


@pytest.mark.parametrize("text", ["Unknown", "None", '"None"', "N/A", "NONE", "", "0"])
def test_time_s__is_nan_when_unknown(text):
    """Every way to say that a time is not known."""
    assert math.isnan(time_s(text))


def test_time_s__refuses_other_text():
    """A word that is no time is an error with the text."""
    with pytest.raises(UnreadableError, match="soon"):
        time_s("soon")


@pytest.mark.parametrize(
    ("text", "expected"), [("4000M", 4000.0), ("62.50G", 64_000.0), ("1T", 1_048_576.0), ("512", 512.0), ("0", 0.0)]
)
def test_memory_mib__reads_units(text, expected):
    """Sizes come to MiB whatever the unit."""
    assert memory_mib(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1-10%2", 10), ("0-8:4", 3), ("1-3,7", 4), ("5", 1), ("", 1), ("N/A", 1), ("1-9:2%3", 5), ("0,2,4", 3)],
)
def test_count_tasks__counts_pending_tasks(text, expected):
    """Ranges, steps and the limit after "%"."""
    assert count_tasks(text) == expected


def test_count_tasks__refuses_cut_text():
    """A list that Slurm cut short ("...") must not be counted."""
    with pytest.raises(UnreadableError):
        count_tasks("1,3,5,...")


def test_fields__keeps_blanks_and_empty_values():
    """A value goes up to the next key; the first of two equal keys counts."""
    record = "NodeName=n1 OS=Linux 6.1 #1 SMP\n   Command= WorkDir=/tmp\n Reason=not responding State=FAKE NodeName=n2"
    assert record_fields(record) == {
        "NodeName": "n1", "OS": "Linux 6.1 #1 SMP", "Command": "", "WorkDir": "/tmp", "Reason": "not responding",
        "State": "FAKE",
    }  # fmt: skip


def test_records__finds_each_record():
    """Blank lines, one line or many, indented or not."""
    text = "A=1 B=2\n  C=3\n\n A=4 B=5\n\nA=6\n"
    assert list(split_records(text, "A")) == ["A=1 B=2\n  C=3", "A=4 B=5", "A=6"]


@pytest.mark.parametrize(
    ("text", "expected"), [("2.5", 2.5), (" 1e3 ", 1000.0), ("", 7.0), ("nan", 7.0), ("inf", 7.0), ("UNLIMITED", 7.0)]
)
def test_real_number__a_finite_number_or_the_other_value(text: str, expected: float) -> None:
    """Slurm prints words where it has no number."""
    assert real_number(text, 7.0) == expected
