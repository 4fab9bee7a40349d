"""The grammar of gres and TRES text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import Gres, count_gpus, count_kind, count_mig, index_mask, is_mig, normal_form, parse_gres
from tests.recorded.playback import HERE

PUBLIC = HERE / "public"

ENTRIES = [
    ("gpu", (Gres("gpu"),)),
    ("gpu:4", (Gres("gpu", "", 4),)),
    ("gpu:a100", (Gres("gpu", "a100", 1),)),
    ("gpu:a100:4", (Gres("gpu", "a100", 4),)),
    ("gres:gpu:2", (Gres("gpu", "", 2),)),
    ("gres/gpu:4", (Gres("gpu", "", 4),)),
    ("gres/gpu=2", (Gres("gpu", "", 2),)),
    ("gres/gpu:a100=2", (Gres("gpu", "a100", 2),)),
    ("gpu:tesla:8(S:0-7)", (Gres("gpu", "tesla", 8),)),
    ("gpu:a100:2(S:2,7)", (Gres("gpu", "a100", 2),)),
    ("gpu:a100:3(IDX:0,2-3)", (Gres("gpu", "a100", 3, 0b1101),)),
    ("gpu:a:1(IDX:0),gpu:b:0(IDX:)", (Gres("gpu", "a", 1, 1), Gres("gpu", "b", 0))),
    ("gpu:a100:0(IDX:N/A)", (Gres("gpu", "a100", 0),)),
    ("gpu:2(IDX:0-1)", (Gres("gpu", "", 2, 3),)),
    ("gpu:1g.5gb:2", (Gres("gpu", "1g.5gb", 2),)),
    ("gpu:a100_1g.5gb:1", (Gres("gpu", "a100_1g.5gb", 1),)),
    ("shard:16", (Gres("shard", "", 16),)),
    ("shard:a100:4(2/8,2/8)", (Gres("shard", "a100", 4, parts=(2, 2), sizes=(8, 8)),)),
    ("gpu:(null):8(IDX:0-7)", (Gres("gpu", "", 8, 255),)),
    (
        "gpu:(null):0(IDX:N/A),shard:(null):3(1/4,2/4)",
        (Gres("gpu", "", 0), Gres("shard", "", 3, parts=(1, 2), sizes=(4, 4))),
    ),
    ("shard:a100:3(-/4,3/4)", (Gres("shard", "a100", 3, parts=(0, 3), sizes=(4, 4)),)),
    ("mps:(null):300(0/100,300/400)", (Gres("mps", "", 300, parts=(0, 300), sizes=(100, 400)),)),
    ("mps:1K", (Gres("mps", "", 1024),)),
    ("nsight:no_consume:1", (Gres("nsight", "", 1),)),
    ("pfsdir:scratch:no_consume:1", (Gres("pfsdir", "scratch", 1),)),
    ("cpu=4,gres/gpu=2", (Gres("cpu", "", 4), Gres("gpu", "", 2))),
    ("", ()),
    ("(null)", ()),
    ("N/A", ()),
]


@pytest.mark.parametrize(("text", "expected"), ENTRIES)
def test_parse_gres__reads_every_form(text, expected):
    """Prefixes, types, counts and remarks of all Slurm versions give the same entries."""
    assert parse_gres(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("billing=32,cpu=32,gres/gpu:a100=1,gres/gpu=1,mem=128G,node=1", 1),
        ("cpu=1,gres/gpu=2,gres/gpu:a100=2", 2),
        ("gres/gpu=3,gres/gpu:a100=2", 3),
        ("gres/gpu:a100=2,gres/gpu:h100=1,gres/gpu=3", 3),
        ("cpu=2,mem=40G,node=1,billing=1,gres/gpu=1", 1),
        ("cpu=1,mem=512M,node=1,fs/lustre=1,license/a@b=2", 0),
    ],
)
def test_parse_gres__counts_a_device_once_in_tres_text(text, expected):
    """A TRES text names devices by type and again without; the untyped key adds only what no type names."""
    assert count_gpus(parse_gres(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "gpu:a100:x:(",
        ":4",
        "gpu::",
        "gpu:4(IDX:0-x)",
        "gpu:4(IDX:3-0)",
        "gpu:4(IDX:0-99999)",
        "gpu:(nul):4",
        "gpu:-1",
        "4",
        "gpu:2 gpu:3",
        "gpu:2,,gpu:1",
    ],
)
def test_parse_gres__refuses_other_text(text):
    """Text outside the grammar is an error that carries it, never a guess."""
    with pytest.raises(UnreadableError) as error:
        parse_gres(text)
    assert error.value.text in text


def test_count_mig__keeps_slices_apart():
    """MIG devices are no GPUs of an NVLink set and are counted apart, whatever their prefix."""
    entries = parse_gres("gpu:a100:4,gpu:1g.5gb:2,gpu:a100_1g.5gb:1,gpu:nvidia_a100_3g.20gb:2,shard:8")
    assert (count_gpus(entries), count_mig(entries), count_kind(entries, "shard")) == (4, 5, 8)


@pytest.mark.parametrize("gpu_type", ["a100", "a100_80", "a100-80gb", "h100_80gb_hbm3", "rtx30", "v100-sxm2-32gb", ""])
def test_is_mig__is_false_for_whole_gpus(gpu_type):
    """A memory size in a type's name makes no slice of it."""
    assert not is_mig(gpu_type)


def test_normal_form__sums_and_sorts():
    """Equal types are one entry, zeros vanish, order does not matter."""
    assert normal_form(parse_gres("gpu:h200:4,gpu:h100:1,gpu:h100:1,gpu:b:0,nic:5")) == "gpu:h100:2,gpu:h200:4"


@settings(deadline=None)
@given(st.sets(st.integers(0, 62), max_size=20))
def test_index_mask__holds_each_index_once(indices):
    """The mask of a list of indices has exactly those bits."""
    assert index_mask(",".join(map(str, sorted(indices)))) == sum(1 << i for i in indices)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gpu", "shard"]),
            st.sampled_from(["", "a100", "1g.5gb", "nvidia_a100_3g.20gb"]),
            st.integers(1, 99),
        ),
        max_size=6,
    )
)
def test_normal_form__reads_back(entries):
    """The normal form follows the grammar and keeps every count."""
    given_entries = [Gres(*entry) for entry in entries]
    read = parse_gres(normal_form(given_entries))
    assert [count(read) for count in (count_gpus, count_mig)] == [
        count(given_entries) for count in (count_gpus, count_mig)
    ]


def _rows(name: str) -> list[list[str]]:
    return [line.split() for line in Path(PUBLIC, name).read_text().splitlines()]


def test_parse_gres__finds_gpus_among_many_kinds():
    """Of ten no_consume kinds around it only the GPUs count, and used ones have their indices (22.x to 24.x)."""
    rows = {row[0]: (parse_gres(row[1]), parse_gres(row[2]), row[3]) for row in _rows("sinfo-gres-many-types.txt")}
    gpus = {name: (count_gpus(has), count_gpus(used)) for name, (has, used, _) in rows.items()}
    assert (len(rows), gpus["a0001"], gpus["a0008"], gpus["a0020"], gpus["a0235"]) == (
        14,
        (4, 4),
        (4, 2),
        (4, 3),
        (2, 0),
    )
    assert rows["a0016"][1][0].mask == 0b1001


def test_parse_gres__reads_used_and_unused():
    """GresUsed says IDX:N/A where nothing is used (23.x)."""
    used = {row[0].partition(".")[0]: parse_gres(row[2])[0] for row in _rows("sinfo-gres-used.txt")}
    assert [(entry.count, entry.mask) for entry in used.values()] == [(8, 255), (4, 15), (0, 0)]


def test_parse_gres__a_text_longer_than_any_is_refused():
    """A user's, to take our time."""
    assert len(parse_gres(",".join(["gpu:1"] * 600))) == 600
    with pytest.raises(UnreadableError, match="too long"):
        parse_gres(",".join(["gpu:1"] * 800))
