"""One grammar of hints: Slurm's Lua understands a comment as slurmsched does."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.model.hints import KEYS, parse_hints, understood
from tests.unit.plugin import lua as slurm_lua

WRITTEN = runpy.run_path(str(slurm_lua.PLUGIN.parent / "packaging" / "hints_lua.py"))["table"]()
CASES = (
    "",
    "no hints at all",
    "run 17 slurmsched: dur=2h preempt=yes ckpt=USR1@120 and on it goes",
    "SlurmSched:DUR=1d12h Preempt=NO topo=NVLink,",
    "slurmsched: max-gpus=8 min_gpus=2; share=no batch=512 model=meta/llama-3.1",
    "slurmsched: min_gpus=9 max_gpus=8",
    "slurmsched: min_cpus=9 gpu_mem=0",
    "slurmsched: dur=2h dur=3h",
    "slurmsched: dur=2h dur=nonsense",
    "slurmsched: dur=2 bogus=1 topo=moon count",
    "slurmsched: and nothing",
    "slurmsched:slurmsched: dur=1h",
    "slurmsched:preempt=yes,slurmsched: dur=1h",
    "xslurmsched: dur=1h -slurmsched: dur=2h _slurmsched: dur=3h .slurmsched: dur=4h",
    "one slurmsched: dur=1h two slurmsched: topo=any three",
    "é slurmsched: model=é",
    "éslurmsched: dur=1h",
    "slurmsched: dur=1h " + "aa=1 " * 100,
    "slurmsched: dur=1h " + "x" * 1_005,
    "slurmsched: dur=1h " + "x" * 1_006,
    "slurmsched: dur=1h " + "é" * 503,
    "slurmsched: min_gpus=9 max_gpus=8 a=1 b=2 c=3",
    "x" * 2_000,
    *(f"slurmsched: dur={text}" for text in (
        "30s", "90m", "1.5h", "1.h", ".5h", "1..5h", "2H30M", "1w", "1-02:03:04", "1-02", "1-02:30", "1-", "1-:30",
        "1:2:3:4", "02:00:00", "30:00", "0s", "99999999w", "1e400h", "9" * 400 + "h", "", "2.5", "1h2x",
        "-2h", "+2h", "0:00")),
    *(f"slurmsched: ckpt={text}" for text in (
        "sigusr1@2m", "10@60", "SIGSIGUSR1@1", "KILL@9", "19@9", "0@5", "35@5", "RTMIN@5", "CLD@5", "poll@5", "IOT@5",
        "USR1", "@5", "USR1@", "USR1@0", "USR1@1234567", "USR1@5@6", "usr2@0s", "٣@5")),
    *(f"slurmsched: deadline={text}" for text in (
        "+12h", "+0s", "2027-01-31", "2027-02-29", "2028-02-29", "2100-02-29", "2027-13-01", "2027-00-01", "2027-01-32",
        "2027-01-31T12:00", "2027-01-31T12:00:59", "2027-01-31T24:00", "2027-01-31T12:60", "2027-01-31T12:00:60",
        "2027-01-31T12:00Z", "2027-01-31T12:00z", "2027-01-31T12:00+01:00", "2027-01-31T12:00:00-23:59",
        "2027-01-31T12:00+24:00", "2027-01-31T12:00+0100", "20270131", "2027-W01-1", "1969-12-31", "1970-01-01T00:00Z",
        "2027-01-31T12", "2027-01-31T12:00:00.5", "2027-01-31x12:00", "tomorrow")),
    *(f"slurmsched: progress={text}" for text in (
        "30/90", "0/1", "1/0", "2/1", "1.5/3.0", "1./2", "1/2/3", "/2", "1/" + "9" * 400, "a/b")),
    *(f"slurmsched: loss={text}" for text in (
        "2.3:0.9:0.8", "1:1:1", "1:2:3", "0:0:0", "1:2", "1:2:3:4", ":1:2", "1.:2:3", "-1:2:3", "1e3:2:1", "",
        "1.5E+2:9.9e-05:0e0", "1:1:1e", "1:1:e5", "1:1:1e5e5", "1:1:1e1.5", "1:1:0x1", "1:1:1e400", "1:1:1e-400",
        "9" * 400 + ":1:1", "1:1:" + "9" * 400)),
    *(f"slurmsched: batch={text}" for text in ("1", "0", "0000001", "12345678", "1.0", "-1", "x")),
    *(f"slurmsched: gpu_mem={text}" for text in ("8", "8G", "8g", "8GG", "G", "0G", "8M", "8Gi", "12345678G")),
    *(f"slurmsched: batches={text}" for text in ("32:64:128", "64:32:64", "", ":", "32:", ":32", "32::64", "0:1")),
    *(f"slurmsched: model={text}" for text in ("a" * 64, "a" * 65, "a_b.c+d/e-f", "a=b", "a:b")),
)  # fmt: skip


@pytest.fixture(scope="module", params=slurm_lua.VERSIONS)
def parse(request: pytest.FixtureRequest) -> Any:
    """parse(comment) -> hints, and write(hints) -> comment, in Lua of each version."""
    hints, keys = slurm_lua.grammar(slurm_lua.runtime(request.param))
    return (lambda text: hints.parse(text, keys)), (lambda parsed: hints.comment(parsed, keys))


def same(parse: Any, comment: str) -> None:
    """Keys, values and the number of warnings; and the comment that Lua writes means the same to Python."""
    read, write = parse
    ours, theirs = parse_hints(comment), read(comment)
    assert {key.name for key, _ in understood(ours)} == set(theirs["values"].keys())
    assert len(ours.warnings) == len(theirs.warnings), (ours.warnings, list(theirs.warnings.values()))
    again = write(theirs)
    assert dict(understood(parse_hints(again))) == dict(understood(ours))
    assert again == write(read(again))


@pytest.mark.parametrize("comment", CASES)
def test_parse__as_python_does(parse: Any, comment: str) -> None:
    """The shared table of cases."""
    same(parse, comment)


WORDS = st.sampled_from([" ", "  ", ",", ";", "slurmsched:", "Slurmsched: ", "x", "=", "-", "_",
                         *(k.example for k in KEYS),
                         *(f" {k.name}=" for k in KEYS), "2h", "yes", "1:30", "USR1@", "9", "/", "+"])  # fmt: skip


@given(comment=st.lists(WORDS, max_size=14).map("".join))
def test_parse__as_python_does_for_any_text(comment: str) -> None:
    """Marks, keys, values and separators in any order."""
    hints, keys = slurm_lua.grammar(LUA)
    same(((lambda text: hints.parse(text, keys)), (lambda parsed: hints.comment(parsed, keys))), comment)


LUA = slurm_lua.runtime()


def test_keys__are_those_of_the_grammar() -> None:
    """plugin/lua/slurmsched_keys.lua is what `python packaging/hints_lua.py` writes."""
    assert (slurm_lua.PLUGIN / "lua" / "slurmsched_keys.lua").read_text() == WRITTEN


def test_shown__escapes_what_a_terminal_would_obey() -> None:
    """Text of users reaches a terminal and slurmctld's log."""
    hints, _ = slurm_lua.grammar(LUA)
    assert hints.shown("a\x1b[31mb") == "'a\\x1b[31mb'"
