"""Traces written and read back are equal, and no file of any kind makes a loader crash."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.errors import ConfigError, InputError
from slurmsched.replay.trace_files import Recorded, load, save
from slurmsched.replay.traces import Trace
from tests.recorded.playback import HERE
from tests.unit.replay.loaders.test_public_kinds import DATA, FILES, same

EXCERPTS = [*(DATA / name for name in FILES), HERE / "public" / "sacct-P-gpu-mixed-states.txt"]
TIMES = st.floats(0, 1e9, allow_nan=False) | st.integers(0, 10**9).map(float)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6)


@st.composite
def recordeds(draw: st.DrawFn) -> Recorded:
    """Traces with any column told or not."""
    ids = draw(st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=12, unique=True))
    many: Any = lambda values: draw(st.lists(values, min_size=len(ids), max_size=len(ids)))  # noqa: E731
    told: Any = lambda values: many(values | st.just(float("nan"))) if draw(st.booleans()) else None  # noqa: E731
    texts = {name: many(TEXTS) for name in ("user", "account", "name", "model", "gpu_type", "state")}
    more = {"start_s": told(TIMES), "requeues": many(st.integers(0, 9)), "gpu_share": many(st.floats(0.01, 1))}
    trace = Trace.of(
        ids, many(st.integers(1, 512)), many(TIMES), many(TIMES.map(lambda t: t + 1)), told(TIMES.map(lambda t: t + 1)),
        **texts, **{name: values for name, values in more.items() if values is not None},
    )  # fmt: skip
    return Recorded(trace, "test", draw(st.just(float("nan")) | st.just(0.0)))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
@settings(deadline=None, max_examples=25)
@given(recorded=recordeds())
def test_save__reads_back_equal(ending: str, recorded: Recorded) -> None:
    """Every column, times to the last bit; a calendar moves the first submission to 0."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{ending}"
        save(path, recorded)
        back = load(path, strict=True)
    if ending == ".parquet" and not np.isnan(recorded.origin_s):
        first_s = recorded.trace.submit_s.min()
        assert back.origin_s == recorded.origin_s + first_s
        assert back.trace.submit_s.tolist() == (recorded.trace.submit_s - first_s).tolist()
    else:
        assert same(recorded, back)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.sampled_from(EXCERPTS),
    kind=st.sampled_from(["", *registry.names("traces")]),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=12), st.integers(0, 40)), max_size=6),
    strict=st.booleans(),
)
def test_load__of_a_damaged_file_is_a_trace_or_an_input_error(
    path: Path, kind: str, cuts: list[tuple[float, bytes, int]], strict: bool
) -> None:
    """Bytes are cut out and others put in, and the kind may be another's: never an exception of another sort."""
    content = path.read_bytes()
    for place, put, cut in cuts:
        at = int(place * len(content))
        content = content[:at] + put + content[at + cut :]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / path.name).write_bytes(content)
        try:
            trace = load(Path(folder) / path.name, kind, strict=strict).trace
        except (InputError, ConfigError) as error:
            assert str(error)
        else:
            assert len(trace) > 0


@settings(deadline=None, max_examples=40)
@given(content=st.binary(max_size=200), kind=st.sampled_from(registry.names("traces")))
def test_load__of_noise_is_an_input_error_or_a_trace(content: bytes, kind: str) -> None:
    """Any bytes read as any kind, those that look compressed too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise"
        for magic in (b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"SQLite format 3\x00"):
            path.write_bytes(magic + content)
            try:
                assert len(load(path, kind).trace) > 0
            except InputError as error:
                assert str(path) in str(error)
