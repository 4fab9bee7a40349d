"""The grammar of hints: what is read, what is ignored with a warning, what is left alone."""

from __future__ import annotations

import difflib
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.model import hints
from slurmsched.model.durations import duration_s, duration_text
from slurmsched.model.hint_values import Checkpoint, Deadline
from slurmsched.model.hints import (
    Hints,
    hint_column,
    hint_warnings,
    hints_alone,
    parse_hints,
    understood,
    value_text,
    written,
)
from slurmsched.testing import jobs

PAGE = Path(__file__).parents[3] / "docs" / "hints.md"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("preempt=yes", Hints(preempt=True)),
        ("preempt=NO", Hints(preempt=False)),
        ("ckpt=USR1@120", Hints(ckpt=Checkpoint("USR1", 120.0))),
        ("ckpt=sigusr1@2m", Hints(ckpt=Checkpoint("USR1", 120.0))),
        ("ckpt=10@60", Hints(ckpt=Checkpoint("USR1", 60.0))),
        ("restart=90s", Hints(restart_s=90.0)),
        ("dur=2h", Hints(dur_s=7_200.0)),
        ("topo=NVLink", Hints(topo="nvlink")),
        ("model=meta/llama-3.1", Hints(model="meta/llama-3.1")),
        ("min_gpus=2 max-gpus=8", Hints(min_gpus=2, max_gpus=8)),
        ("min-cpus=2 gpu-mem=10 min_mem=8G", Hints(min_cpus=2, gpu_mem=10, min_mem=8)),
        ("deadline=+12h", Hints(deadline=Deadline(after_submit_s=43_200.0))),
        ("deadline=2026-12-01T10:00:00+00:00", Hints(deadline=Deadline(at_s=1_796_119_200.0))),
        ("progress=30/90", Hints(progress=1 / 3)),
        ("loss=2.5:1.0:0.5", Hints(loss=0.25)),
        ("loss=2.5e+0:1E0:5e-1", Hints(loss=0.25)),
        ("share=no batch=512", Hints(share=False, batch=512)),
        ("mixed=yes", Hints(mixed=True)),
    ],
)
def test_parse_hints__reads_every_form(words: str, expected: Hints) -> None:
    """Each key in each of its forms, without warnings."""
    assert parse_hints(f"slurmsched: {words}") == expected


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("30s", 30), ("90m", 5_400), ("2h", 7_200), ("1d12h", 129_600), ("1.5h", 5_400), ("1w", 604_800), ("2H30M", 9_000),
     ("1-02:03:04", 93_784), ("1-02", 93_600), ("1-02:30", 95_400), ("02:00:00", 7_200), ("30:00", 1_800)],
)  # fmt: skip
def test_duration_s__reads_people_and_slurm(text: str, expected_s: float) -> None:
    """Units as people write them, and every form of sbatch --time but the bare number."""
    assert duration_s(text) == expected_s


@pytest.mark.parametrize(
    "text", ["", "h", "2", "2.5", "-2h", "0s", "2x", "1h 2m", "1..5h", "9999999w", "1e400h", "1:2:3:4"]
)
def test_duration_s__refuses_the_rest(text: str) -> None:
    """No number without a unit, nothing at or below zero, nothing over a century."""
    with pytest.raises(ValueError, match="is no duration"):
        duration_s(text)


@pytest.mark.parametrize(
    "comment",
    [
        "run 17 slurmsched: dur=2h topo=any",
        "run 17; slurmsched:dur=2h topo=any and then some",
        "SLURMSCHED: topo=any, dur=2h;",
        "slurmsched: dur=2h see http://x/?a=b slurmsched:\ttopo=any",
    ],
)
def test_parse_hints__leaves_other_text_alone(comment: str) -> None:
    """Hints begin after the mark, anywhere, and end at the first word of another form; a mark may come again."""
    assert parse_hints(comment) == Hints(dur_s=7_200.0, topo="any")


@pytest.mark.parametrize(
    "comment", ["", "dur=2h", "slurmsched dur=2h", "notslurmsched: dur=2h", "my-slurmsched: dur=2h"]
)
def test_parse_hints__needs_the_mark(comment: str) -> None:
    """Without "slurmsched:" as a word of its own nothing is a hint, and nothing is warned of."""
    assert parse_hints(comment) == Hints()


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("durr=2h", "unknown hint 'durr' (did you mean dur?)"),
        ("preempt=maybe", "preempt='maybe' is neither yes nor no; for example preempt=yes"),
        ("dur=2", "dur='2' is no duration with a unit: write"),
        ("dur=", "dur='' is no duration: write"),
        ("ckpt=USR1", "ckpt='USR1' is not SIGNAL@SECONDS"),
        ("ckpt=NOPE@5", "ckpt='NOPE@5' names no signal"),
        ("ckpt=99@5", "ckpt='99@5' names no signal"),
        ("ckpt=KILL@5", "ckpt='KILL@5' names a signal that no program can catch"),
        ("topo=rack", "topo='rack' is none of nvlink, numa, switch, any: choose one"),
        ("deadline=tomorrow", "deadline='tomorrow' is neither an ISO time nor +DURATION"),
        ("progress=9/3", "progress='9/3' has more done than there is in total"),
        ("loss=2.5:1.0", "loss='2.5:1.0' is not FIRST:BEFORE:NOW"),
        ("loss=1:1:1e400", "loss='1:1:1e400' is not FIRST:BEFORE:NOW"),
        ("progress=half", "progress='half' is not DONE/TOTAL"),
        ("min_gpus=0", "min_gpus='0' is no whole number above zero"),
        ("model=" + "x" * 99, "model='" + "x" * 37 + "...' is no name"),
        ("min_gpus=8 max_gpus=2", "min_gpus=8 is more than max_gpus=2; both are ignored"),
        ("hello", "no key=value follows slurmsched:"),
    ],
)
def test_parse_hints__warns_and_ignores(words: str, warning: str) -> None:
    """What is not understood leaves no value and one warning that says what to write."""
    found = parse_hints(f"slurmsched: {words}")
    assert found == Hints(warnings=found.warnings)
    assert [text.startswith(warning) for text in found.warnings] == [True]


def test_parse_hints__last_of_a_repeated_key_counts() -> None:
    """As with sbatch's own options; the repetition is warned of."""
    found = parse_hints("slurmsched: dur=1h dur=2h")
    assert (found.dur_s, found.warnings) == (7_200.0, ("dur is given more than once; the last one counts",))


def test_parse_hints__one_bad_word_spoils_no_other() -> None:
    """A warning is about its own word only."""
    found = parse_hints("slurmsched: dur=2h color=red topo=any")
    assert (found.dur_s, found.topo, len(found.warnings)) == (7_200.0, "any", 1)


def test_deadline__is_local_time_or_counts_from_submission() -> None:
    """A time without a zone is local to the cluster; + counts from the submission."""
    local = parse_hints("slurmsched: deadline=2026-12-01T10:00").deadline
    later = parse_hints("slurmsched: deadline=+1h").deadline
    assert local is not None and later is not None
    assert (local.due_s(0.0), later.due_s(50.0)) == (datetime(2026, 12, 1, 10).timestamp(), 3_650.0)


def test_hint_column__numbers_by_row() -> None:
    """NaN where not given or not understood; yes is 1 and no 0."""
    table = jobs([{"comment": f"slurmsched: {words}"} for words in ("dur=2h preempt=yes", "preempt=no", "dur=x")])
    assert np.array_equal(hint_column(table, "dur_s"), [7_200.0, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(hint_column(table, "preempt"), [1.0, 0.0, np.nan], equal_nan=True)


def test_hint_column__refuses_texts() -> None:
    """A field that holds no number has no column of numbers."""
    with pytest.raises(ValueError, match="hint topo is no number"):
        hint_column(jobs([{"comment": "slurmsched: topo=any"}]), "topo")


def test_hint_warnings__one_text_a_fault() -> None:
    """Jobs whose hints have one fault are told of once, by the first of them; beyond `most` the rest is counted."""
    rows = [{"job_id": i, "comment": f"slurmsched: k{i // 2}=1 dur={i}h"} for i in range(4, 10)]
    first, second, rest = hint_warnings(jobs([{"job_id": 1, "comment": "slurmsched: dur=2h"}, *rows]), most=2)
    assert [text.partition(";")[0] for text in (first, second)] == [
        "job 4 and 1 more: unknown hint 'k2'",
        "job 6 and 1 more: unknown hint 'k3'",
    ]
    assert rest == "1 more fault in hints of other jobs"


def test_parse_hints__tells_few_of_many_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three, the rest by number, each of at most 300 characters; a near key is looked for only of short words."""
    looked: list[str] = []
    near = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", lambda name, *a, **k: looked.append(name) or near(name, *a, **k))
    odd = "\U000e0001" * 40
    found = parse_hints(f"slurmsched: prempt=yes {'y' * 21}=1 dur={odd} topo=1 {'aa=1 ' * 90}").warnings
    assert (len(found), found[-1], looked) == (4, "91 more faults", ["prempt"])
    assert [len(text) <= 300 for text in found] == [True] * 4


@pytest.mark.parametrize(("text", "read"), [("x" * 1_005, True), ("x" * 1_006, False), ("é" * 503, False)])
def test_parse_hints__leaves_a_comment_longer_than_slurm_takes_alone(text: str, read: bool) -> None:
    """By bytes, and says so; one without the mark is nobody's business."""
    found = parse_hints(f"slurmsched: dur=1h {text}")
    assert (found.dur_s == 3_600.0, bool(found.warnings)) == (read, not read)
    assert (written(f"slurmsched: dur=1h {text}") != (), parse_hints(text * 2).warnings) == (read, ())


def test_hint_warnings__are_bounded_in_length() -> None:
    """20 jobs of one user with comments as long as can be make some kilobytes, not hundreds."""
    many = [{"job_id": n, "comment": f"slurmsched: dur={n} " + "aa=1 " * 190} for n in range(1, 40)]
    texts = hint_warnings(jobs(many))
    assert (len(texts), max(map(len, texts)) <= 320, sum(map(len, texts)) < 7_000) == (21, True, True)


def test_hint_warnings__jobs_that_ended_are_past_advice() -> None:
    """Slurm shows them for MinJobAge; the fault of one that goes on is told by that one."""
    bad = {"comment": "slurmsched: k1=1"}
    both = jobs([{"job_id": 4, "state": "CANCELLED", **bad}, {"job_id": 5, **bad}])
    assert [text.partition(";")[0] for text in hint_warnings(both)] == ["job 5: unknown hint 'k1'"]
    assert hint_warnings(jobs([{"job_id": 4, "state": "COMPLETED", **bad}])) == ()


@pytest.mark.parametrize("key", hints.KEYS, ids=lambda key: key.name)
def test_keys__example_is_understood(key: Any) -> None:
    """The example of each key parses to a value of its field, and is what its own name says."""
    found = parse_hints(f"slurmsched: {key.example}")
    assert [given.name for given, _ in understood(found)] == [key.name]
    assert found.warnings == ()


def test_docs_hints__is_the_grammar() -> None:
    """docs/hints.md is what `python -m slurmsched.model.hints` prints."""
    assert PAGE.read_text(encoding="utf-8") == hints.reference()


@pytest.mark.parametrize(
    ("comment", "kept"),
    [
        ("", ""),
        ("run 17 of ann", ""),
        ("run 17 slurmsched: dur=2h preempt=yes of ann", "slurmsched: dur=2h preempt=yes"),
        ("slurmsched: who=ann dur=soon topo=numa", "slurmsched: topo=numa"),
    ],
)
def test_hints_alone__drops_all_other_text(comment: str, kept: str) -> None:
    """Unknown keys and values that are not understood may say anything."""
    assert hints_alone(comment) == kept


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (129_600.0, "1d12h"),
        (5_400.0, "1h30m"),
        (90.5, "1m30.5s"),
        (0.0, "0s"),
        (119.99999999, "2m"),
        (86_399.9999, "1d"),
    ],
)
def test_duration_text__in_units(value_s: float, text: str) -> None:
    """Those that are not there are left out."""
    assert duration_text(value_s) == text


@given(st.integers(1, 10**9))
def test_duration_text__is_read_back(value_s: int) -> None:
    """To the second."""
    assert duration_s(duration_text(value_s)) == value_s


@pytest.mark.parametrize(
    "words",
    [*(key.example for key in hints.KEYS), "loss=0.9:0.5:0.4", "batches=64:32", "deadline=2026-11-30T12:00", "dur=90m"],
)
def test_written__in_the_comments_own_words(words: str) -> None:
    """Whatever the form; of a key given twice the last that is understood, and none that is ignored."""
    assert written(f"run 7 slurmsched: {words} of ann") == (words,)
    assert written(f"slurmsched: {words} {words} who=ann") == (words,)
    assert written("slurmsched: min_gpus=4 max_gpus=2 dur=1h dur=soon") == ("dur=1h",)


def test_value_text__as_it_is_understood() -> None:
    """In few characters."""
    comment = "slurmsched: preempt=yes dur=90m loss=0.9:0.5:0.4 batches=64:32 progress=1/3"
    told = [value_text(key, value) for key, value in understood(parse_hints(comment))]
    assert told == ["yes", "1h30m", "0.333333", "0.2", "32:64"]
