"""Damaged files: never a crash, and never a link that the whole file does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import GpuTopology, LinkKind
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.topology_files import kind_of_text, read_topology_text

SAMPLES = {path.name: path.read_text() for path in sorted((Path(__file__).parent / "samples").glob("0*"))}
WIRED = [name for name in SAMPLES if name < "050" or name.startswith("067")]
Damage = Callable[[str, int, int], str]
PLAIN = settings(deadline=None, max_examples=150)


def links(node: GpuTopology) -> set[tuple[int, int, LinkKind, int]]:
    return set(links_of(node))


def possible(node: GpuTopology) -> set[tuple[int, int, LinkKind, int]]:
    """The links, and XGMI of which no longer is told whether it is direct."""
    return links(node) | {(i, j, kind, 0) for i, j, kind, _ in links_of(node) if kind == LinkKind.XGMI}


def cut(text: str, at: int, _: int) -> str:
    """The text up to some place."""
    return text[: at % (len(text) + 1)]


def narrow(text: str, at: int, _: int) -> str:
    """Every line cut at one width, as a narrow terminal cuts them."""
    return "\n".join(line[: at % 120] for line in text.split("\n"))


def without_column(text: str, at: int, _: int) -> str:
    """One column of tabs deleted, as `cut` does."""
    lines = [line.split("\t") for line in text.split("\n")]
    return "\n".join("\t".join(line[: at % 20] + line[at % 20 + 1 :]) for line in lines)


def without_word(text: str, at: int, _: int) -> str:
    """The same of words."""
    lines = [line.split() for line in text.split("\n")]
    return "\n".join("\t".join(line[: at % 20] + line[at % 20 + 1 :]) for line in lines)


def without_line(text: str, at: int, _: int) -> str:
    lines = text.split("\n")
    del lines[at % len(lines)]
    return "\n".join(lines)


def without_cell(text: str, at: int, more: int) -> str:
    """One cell of one line deleted."""
    lines = text.split("\n")
    cells = lines[at % len(lines)].split("\t")
    del cells[more % len(cells)]
    lines[at % len(lines)] = "\t".join(cells)
    return "\n".join(lines)


def escaped(text: str, at: int, more: int) -> str:
    """Colours of a terminal strewn in, between the letters too."""
    codes = ("\x1b[4m", "\x1b[0m", "\x1b[1;31m", "\x1b[K")
    places = sorted({at % (len(text) + 1), more % (len(text) + 1)}, reverse=True)
    for place in places:
        text = text[:place] + codes[(at + more) % len(codes)] + text[place:]
    return text


def spaced(text: str, at: int, _: int) -> str:
    """Tabs turned to spaces."""
    return text.replace("\t", " " * (1 + at % 8)) if at % 2 else text.expandtabs(8)


def broken(text: str, at: int, more: int) -> str:
    """A line break put in."""
    place = at % (len(text) + 1)
    return text[:place] + ("\r\n" if more % 2 else "\n") + text[place:]


WAY = st.tuples(st.integers(0, 5_000), st.integers(0, 5_000))
RECODED = st.tuples(st.sampled_from((escaped, spaced)), WAY)
LOSSES = st.tuples(st.sampled_from((cut, narrow, without_line, without_cell, broken, escaped, spaced)), WAY)
# A column that header and rows lose in different places shows by the rows' X; if those rows are cut off too, nothing
# in the file tells. So a lost column comes with no other loss, and to no sample that is cut already.
COLUMNS = st.tuples(st.sampled_from((without_column, without_word)), WAY)
LOST = st.lists(LOSSES, min_size=1, max_size=3)
NARROWER = st.tuples(COLUMNS, RECODED) | st.tuples(RECODED, COLUMNS)
WHOLE = [name for name in WIRED if "-cut" not in name or "cpu-lists" in name]


def damaged(text: str, ways: Sequence[tuple[Damage, tuple[int, int]]]) -> str:
    for damage, (at, more) in ways:
        text = damage(text, at, more)
    return text


@PLAIN
@given(case=st.tuples(st.sampled_from(WIRED), LOST) | st.tuples(st.sampled_from(WHOLE), NARROWER))
def test_read_any__damage_never_makes_a_link(case):
    """Whatever is lost is unknown: each link that is still read is one of the whole file's."""
    name, ways = case
    whole = read_topology_text(SAMPLES[name])
    found = read_topology_text(damaged(SAMPLES[name], ways), whole.kind)
    assert links(found.classes[0].topology) <= possible(whole.classes[0].topology)


@pytest.mark.parametrize("name", WIRED)
@pytest.mark.parametrize("damage", [spaced, escaped])
def test_read_any__links_survive_what_loses_nothing(name, damage):
    """Colours, and spaces in the place of tabs, take no link away."""
    assert links(read_topology_text(SAMPLES[name]).classes[0].topology) == links(
        read_topology_text(damage(SAMPLES[name], 7, 350), kind_of_text(SAMPLES[name])).classes[0].topology
    )


@PLAIN
@given(name=st.sampled_from(sorted(SAMPLES)), ways=LOST | NARROWER, junk=st.text(max_size=30), at=st.integers(0, 5_000))
def test_read_any__never_fails(name, ways, junk, at):
    """Damage and junk of any kind give a reading, by the content's kind and by the original's."""
    text, kind = damaged(SAMPLES[name], ways), kind_of_text(SAMPLES[name])
    text = text[: at % (len(text) + 1)] + junk + text[at % (len(text) + 1) :]
    assert read_topology_text(text, kind).kind == kind
    assert read_topology_text(text).kind in ("", *{kind_of_text(sample) for sample in SAMPLES.values()}, "scontrol")


@PLAIN
@given(name=st.sampled_from(WIRED), at=st.integers(0, 5_000))
def test_read_any__a_cut_node_has_no_more_gpus(name, at):
    """A file that is cut shows no GPU that the whole one lacks."""
    whole = read_topology_text(SAMPLES[name])
    found = read_topology_text(SAMPLES[name][:at], whole.kind)
    assert found.classes[0].topology.gpus <= whole.classes[0].topology.gpus
