"""Traces to share."""

from __future__ import annotations

import math
import stat
from dataclasses import fields
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.model import Labels
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.observe.anonymiser import TraceAnonymiser, read_key

KEY = b"0123456789abcdef"
FRIDAY = 1_758_873_600.0  # 2025-09-26 08:00 UTC


def recorded() -> RecordedTrace:
    trace = Trace.of(
        [70, 50, 60], [1, 2, 4], [0, 10, 20], [5, 6, 7], user=["ann", "bob", "ann"], account=["ann", "", "x"],
        name=["secret", "", "secret"], model=["bert", "bert", "vgg"], gpu_type=["a100"] * 3, state=["FAILED"] * 3,
        comment=["ann says hello slurmsched: deadline=+1h"] * 3,
    )  # fmt: skip
    return RecordedTrace(trace, "sacct", FRIDAY, 0.0, ("/home/ann/file: 3 jobs left out",))


def test_apply__hides_names_alike() -> None:
    """The same name the same hash, another column another hash; no name stays no name; warnings may hold paths."""
    hidden = TraceAnonymiser(KEY).apply(recorded())
    trace = hidden.trace
    assert (trace.user[0] == trace.user[2] != trace.user[1], trace.account[0] != trace.user[0]) == (True, True)
    assert (trace.account[1], trace.name[1], hidden.warnings) == ("", "", ())
    assert trace.comment.names == ("",)
    names = {*trace.user, *trace.account, *trace.name}
    assert not names & {"ann", "bob", "secret", "x"}
    assert trace.user.names == TraceAnonymiser(KEY).apply(recorded()).trace.user.names
    assert trace.user.names != TraceAnonymiser(KEY[::-1]).apply(recorded()).trace.user.names


def test_apply__keeps_what_the_trace_is_for() -> None:
    """Sizes, times, states, GPU types and models; ids are places."""
    before, trace = recorded().trace, TraceAnonymiser(KEY).apply(recorded()).trace
    for name in ("gpus", "submit_s", "duration_s"):
        assert getattr(trace, name).tolist() == getattr(before, name).tolist()
    assert (trace.job_id.tolist(), list(trace.state), list(trace.model)) == ([1, 2, 3], ["FAILED"] * 3, [*before.model])
    assert "bert" not in TraceAnonymiser(KEY, models=True).apply(recorded()).trace.model.names


def test_apply__hides_every_text_that_may_be_a_name() -> None:
    """A mark in every column: none is left. Models that are published and GPUs that are sold stay."""
    mark = "Zq7marker"
    columns = {name: [mark, "ResNet-50", "H100"] for name in (
        "user", "account", "partition", "qos", "name", "model", "gpu_type", "comment",
        "constraint", "node_list", "partitions", "dependency", "licenses")}  # fmt: skip
    trace = Trace.of(
        [1, 2, 3], [1, 1, 1], [0, 1, 2], [5, 5, 5], state=[f"CANCELLED by {mark}", mark, "FAILED"], **columns
    )
    made = TraceAnonymiser(KEY).apply(RecordedTrace(trace, mark, FRIDAY, 0.0, (mark,)))
    texts = [
        name
        for spec in fields(made.trace)
        if isinstance(column := getattr(made.trace, spec.name), Labels)
        for name in column
    ]
    assert [text for text in (*texts, made.kind, *made.warnings) if mark in text] == []
    assert (made.trace.model[1], made.trace.gpu_type[2], made.trace.state[0]) == ("ResNet-50", "H100", "CANCELLED")


def test_apply__moves_the_calendar_by_whole_weeks() -> None:
    """Hour and weekday stay; a shift is added; without a calendar there is no origin."""
    origin_s = TraceAnonymiser(KEY).apply(recorded()).origin_s
    assert (origin_s < 7 * 86_400, (FRIDAY - origin_s) % (7 * 86_400)) == (True, 0)
    assert TraceAnonymiser(KEY, shift_s=60.0).apply(recorded()).origin_s == origin_s + 60
    assert math.isnan(TraceAnonymiser(KEY, calendar=False).apply(recorded()).origin_s)


def test_read_key__makes_one_for_its_owner_alone(tmp_path: Path) -> None:
    """A second reading gives the same key."""
    key = read_key(tmp_path / "key")
    assert (read_key(tmp_path / "key"), len(key)) == (key, 32)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["not hex", "abcd"])
def test_read_key__refuses_a_bad_key(tmp_path: Path, text: str) -> None:
    """Not hexadecimal, or too short to keep a secret."""
    (tmp_path / "key").write_text(text)
    with pytest.raises(InputError, match="key"):
        read_key(tmp_path / "key")


def test_apply__arrays_and_features_have_other_names() -> None:
    """Arrays are numbered anew, features hashed; the jobs beside the trace are left out."""
    trace = Trace.of([7, 8, 9, 10], [1] * 4, [0.0, 1.0, 2.0, 3.0], [5.0] * 4, array_id=[0, 900, 900, 40],
                     constraint=["", "secret&ib", "", ""])  # fmt: skip
    made = TraceAnonymiser(KEY).apply(RecordedTrace(trace, "sacct", beside=trace))
    assert (made.trace.array_id.tolist(), made.beside) == ([0, 2, 2, 1], None)
    assert "secret" not in "".join(made.trace.constraint)
