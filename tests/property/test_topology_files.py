"""Topology files as they come from mails, terminals and other systems: the same reading, never another link."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import LinkKind
from slurmsched.topology.gpu_links import links_of
from slurmsched.topology.topology_files import TopologyFile, kind_of_text, read_topology_text
from slurmsched.topology.topology_text import decoded

FOLDER = Path(__file__).parents[1] / "unit/topology/samples"
SAMPLES = {path.name: path.read_text() for path in sorted(FOLDER.glob("0*"))}
MATRICES = [name for name, text in SAMPLES.items() if kind_of_text(text) in ("nvidia-smi", "rocm-smi")]
PLAIN = settings(deadline=None, max_examples=150)
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")
Wires = set[tuple[int, int, LinkKind, int]]


def wires(reading: TopologyFile) -> Wires:
    return {link for one in reading.classes for link in links_of(one.topology)}


def told(reading: TopologyFile) -> tuple[object, ...]:
    """All of a reading that can be compared."""
    classes = [
        (one.nodes, one.devices, one.autodetect, list(links_of(one.topology)), one.topology.numa.tolist(),
         one.topology.nics, one.topology.mig.tolist())
        for one in reading.classes
    ]  # fmt: skip
    fabrics = [(one.kind, list(one.fabric.cell), list(one.fabric.node), one.fabric.node_cell.tolist())
               for one in reading.fabrics]  # fmt: skip
    return reading.kind, classes, fabrics, dict(reading.gpus), dict(reading.nic_names), reading.warnings, reading.notes


def encoded(text: str, encoding: str) -> bytes:
    mark = "\ufeff" if encoding == "utf-16-be" else ""  # big endian is told by its mark only
    return (mark + text).encode(encoding)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_decoded__reads_what_other_systems_write(name, encoding):
    """UTF-16 of a Windows shell, a byte order mark: the reading is that of the plain file."""
    assert told(read_topology_text(decoded(encoded(SAMPLES[name], encoding)))) == told(
        read_topology_text(SAMPLES[name])
    )


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("end", ["\r\n", "\r", "\r\r\n"])
def test_read_any__line_ends_do_not_matter(name, end):
    """Of DOS, of old terminals, and of a file that was converted twice, but for where a warning says something is."""
    one, other = read_topology_text(SAMPLES[name]), read_topology_text(SAMPLES[name].replace("\n", end))
    assert told(replace(other, warnings=()))[:5] == told(replace(one, warnings=()))[:5]


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("mark", ["> ", "dgx01: ", "gpu-a.b_c: ", ">"])
def test_read_any__what_stands_before_each_line_does_not_matter(name, mark):
    """Quoted in a mail, or as pdsh prints it."""
    quoted = "\n".join(mark + line for line in SAMPLES[name].splitlines())
    assert wires(read_topology_text(quoted)) == wires(read_topology_text(SAMPLES[name]))


@pytest.mark.parametrize("name", MATRICES)
def test_read_any__blanks_of_web_pages_are_blanks(name):
    """Copied from a page, each tab or blank is a no-break space, some of no width."""
    text = SAMPLES[name].expandtabs().replace(" ", "\u00a0\u200b")
    assert wires(read_topology_text(text)) == wires(read_topology_text(SAMPLES[name].expandtabs()))


@pytest.mark.parametrize("name", MATRICES)
def test_read_any__several_hosts_of_pdsh_are_not_mixed(name):
    """Lines of two nodes in turns: the first node's table, whatever the other's says."""
    mine, other = SAMPLES[name].splitlines(), SAMPLES["003-v100x8-vm-phb.txt"].splitlines()
    turns = zip_longest((f"a: {line}" for line in mine), (f"b: {line}" for line in other))
    text = "\n".join(line for turn in turns for line in turn if line is not None)
    assert wires(read_topology_text(text, kind_of_text(SAMPLES[name]))) == wires(read_topology_text(SAMPLES[name]))


@PLAIN
@given(one=st.sampled_from(MATRICES), other=st.sampled_from(MATRICES), at=st.integers(0, 5_000))
def test_read_any__a_second_table_adds_no_link(one, other, at):
    """A cut table with another machine's below it shows the first one's links and none of the second's."""
    first = SAMPLES[one][: at % (len(SAMPLES[one]) + 1)]
    found = read_topology_text(f"{first}\n{SAMPLES[other]}", kind_of_text(SAMPLES[one]))
    possible = wires(read_topology_text(SAMPLES[one])) | wires(read_topology_text(SAMPLES[other]))
    assert {link[:3] for link in wires(found)} <= {link[:3] for link in possible}


@PLAIN
@given(pieces=st.lists(st.tuples(st.sampled_from(sorted(SAMPLES)), st.integers(0, 5_000)), min_size=2, max_size=3))
def test_read_any__mixed_files_never_fail(pieces):
    """Pieces of files of several kinds in one, read as any of them."""
    text = "".join(SAMPLES[name][: at % (len(SAMPLES[name]) + 1)] for name, at in pieces)
    for kind in {kind_of_text(SAMPLES[name]) for name, _ in pieces}:
        assert read_topology_text(text, kind).kind == kind


@PLAIN
@given(
    content=st.binary(max_size=400)
    | st.sampled_from(list(SAMPLES.values())).map(lambda text: text.encode("utf-16")[::-1])
)
def test_decoded__any_bytes_are_some_text(content):
    """Nothing on disk makes the readers fail."""
    assert read_topology_text(decoded(content)).kind in (
        "",
        *{kind_of_text(text) for text in SAMPLES.values()},
        "scontrol",
    )
