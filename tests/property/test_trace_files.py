"""Traces written and read back are equal, and no file of any kind makes a loader crash."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.errors import ConfigError, InputError
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.sim.traces.trace_io import load_trace, save_trace
from tests.recorded.playback import HERE
from tests.unit.sim.traces.test_public_kinds import DATA, FILES, same

EXCERPTS = [*(DATA / name for name in FILES), HERE / "public" / "sacct-P-gpu-mixed-states.txt"]
TIMES = st.floats(0, 1e9, allow_nan=False) | st.integers(0, 10**9).map(float)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6)


@st.composite
def recordeds(draw: st.DrawFn) -> RecordedTrace:
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
    return RecordedTrace(trace, "test", draw(st.just(float("nan")) | st.just(0.0)))


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
@settings(deadline=None, max_examples=25)
@given(recorded=recordeds())
def test_save__reads_back_equal(ending: str, recorded: RecordedTrace) -> None:
    """Every column, times to the last bit; a calendar moves the first submission to 0."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{ending}"
        save_trace(path, recorded)
        back = load_trace(path, strict=True)
    if ending == ".parquet" and not np.isnan(recorded.origin_s):
        first_s = recorded.trace.submit_s.min()
        assert back.origin_s == recorded.origin_s + first_s
        assert back.trace.submit_s.tolist() == (recorded.trace.submit_s - first_s).tolist()
    else:
        assert same(recorded, back)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.sampled_from(EXCERPTS),
    kind=st.sampled_from(["", *registry.plugin_names("traces")]),
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
            trace = load_trace(Path(folder) / path.name, kind, strict=strict).trace
        except (InputError, ConfigError) as error:
            assert str(error)
        else:
            assert len(trace) > 0


@settings(deadline=None, max_examples=40)
@given(content=st.binary(max_size=200), kind=st.sampled_from(registry.plugin_names("traces")))
def test_load__of_noise_is_an_input_error_or_a_trace(content: bytes, kind: str) -> None:
    """Any bytes read as any kind, those that look compressed too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise"
        for magic in (b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"SQLite format 3\x00"):
            path.write_bytes(magic + content)
            try:
                assert len(load_trace(path, kind).trace) > 0
            except InputError as error:
                assert str(path) in str(error)


ROUNDS = int(os.environ.get("SLURMSCHED_FUZZ_ROUNDS", "200"))  # 10,000 by hand
ODD = (
    "|", "||", "\n", "\r\n", "K", "M", "-", "+", ".", "_", "²", "٣", "\x00", "\x1f", "4294967294", "1e9", "Unknown",
    "1970-01-01T00:00:00", "+0100", "Z", "gres/gpu=9", "(null)", "sacct: error: x\n", " by 7", "9" * 20,
)  # fmt: skip
VALUES = (
    None, "", "x", "²", -2, 0, 1, 4_294_967_294, 1 << 70, 1.5, float("inf"), float("nan"), True, [], {}, [None],
    {"set": True, "infinite": True, "number": 0}, {"set": True}, ["RUNNING", "FOO"], [{"type": "gres"}],
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def kinds_are_found_once() -> Iterator[None]:
    """Entry points are looked up once, as that takes longer than to read a small file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entry_points_by_name", lru_cache(registry._entry_points_by_name))
        yield


def damaged(text: str, luck: random.Random) -> str:
    """A text with some of its parts cut out, doubled, or others put in."""
    for _ in range(luck.randint(1, 4)):
        at = luck.randrange(len(text) + 1)
        cut = luck.choice((0, 0, 1, 3, 20))
        put = luck.choice((*ODD, text[at : at + 9]))
        text = text[:at] + put + text[at + cut :]
    return text


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, item in pairs for each in places(item, (*path, key)))][bool(not path) :]


def facts(recorded: RecordedTrace, ids: set[int]) -> dict[int, tuple[Any, ...]]:
    """What a trace tells of these jobs; times on the calendar."""
    columns = recorded.trace.columns()
    moved = {"submit_s": columns["submit_s"] + recorded.origin_s, "start_s": columns["start_s"] + recorded.origin_s}
    rows = zip(*({**columns, **moved}.values()), strict=True)
    return {int(row[0]): tuple(map(repr, row)) for row in rows if int(row[0]) in ids}


def test_sacct__one_damaged_row_changes_no_other(tmp_path: Path) -> None:
    """Of 13 rows one is damaged: nothing but an InputError is raised, and all that is told of the others stays."""
    header = "JobID|JobIDRaw|User|State|Submit|Start|End|Suspended|ElapsedRaw|NNodes|AllocTRES|SubmitLine|JobName"
    alloc = "cpu=8,mem=4G,gres/gpu:a100={},gres/gpu=5|sbatch -N1 --gpus=2 x.sh|a b"
    rows = [
        f"{n}|{n}|u{n}|FAILED|2024-01-{n}T00:00:00|2024-01-{n}T01:00:00|2024-01-{n}T02:00:00|00:00:00|3600|2|"
        + alloc.format(n % 5 + 1)
        for n in range(10, 23)
    ]
    path, luck = tmp_path / "t", random.Random(7)
    path.write_text("\n".join((header, *rows)) + "\n")
    whole = facts(load_trace(path, strict=True), set(range(10, 23)))
    for _ in range(ROUNDS):
        at = luck.randrange(len(rows))
        bad = damaged(rows[at], luck)
        path.write_text("\n".join((header, *rows[:at], bad, *rows[at + 1 :])) + "\n", encoding="utf-8")
        try:
            recorded = load_trace(path, "sacct", strict=luck.random() < 0.2)
        except InputError as error:
            assert str(path) in str(error)
            continue
        others = whole.keys() - {at + 10, *map(int, re.findall(r"(?a)(?:^|\n)(\d{1,9})", bad))}
        assert {job: whole[job] for job in others} == facts(recorded, others), bad


def test_sacct_json__one_odd_value_changes_no_other_job(tmp_path: Path) -> None:
    """Of four jobs one has values of other kinds: it is read, left out or refused, and the others stay."""
    (job,) = json.loads((HERE / "public" / "sacct-json-22.5.9.json").read_text())["jobs"]
    jobs = [job | {"job_id": n, "array": {}, "user": f"u{n}"} for n in range(10, 14)]
    path, luck = tmp_path / "t", random.Random(7)
    path.write_text(json.dumps({"jobs": jobs}))
    whole = facts(load_trace(path, strict=True), set(range(10, 14)))
    every = places(jobs[0])
    for _ in range(ROUNDS):
        at = luck.randrange(4)
        bad = copy.deepcopy(jobs[at])
        for *inner, last in luck.sample(every, 3):
            target = bad
            with contextlib.suppress(KeyError, TypeError, IndexError):
                for key in inner:
                    target = target[key]
                target[last] = copy.deepcopy(luck.choice(VALUES))
        path.write_text(json.dumps({"jobs": [*jobs[:at], bad, *jobs[at + 1 :]]}))
        recorded = load_trace(path, "sacct-json")
        others = whole.keys() - {at + 10}
        assert {job: whole[job] for job in others} == facts(recorded, others), bad


@pytest.mark.parametrize("name", ["sacct-P-gpu-mixed-states.txt", "sacct-json-22.5.9.json"])
def test_sacct__of_a_damaged_file_makes_up_no_job(name: str, tmp_path: Path) -> None:
    """Wherever it is damaged: a trace of no more jobs than lines that begin with an id, or an InputError."""
    text, path, luck = (HERE / "public" / name).read_text(), tmp_path / "t", random.Random(7)
    for _ in range(ROUNDS):
        bad = damaged(text, luck)
        path.write_text(bad, encoding="utf-8", newline="")
        try:
            recorded = load_trace(path, "sacct-json" if name.endswith("json") else "sacct")
        except InputError as error:
            assert str(path) in str(error)
        else:
            assert len(recorded.trace) <= 14
