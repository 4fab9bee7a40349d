"""`slurmsched reproduce`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from slurmsched.cli.main import main
from slurmsched.sim.experiments import reproduction
from slurmsched.sim.experiments.reproduction import PublishedRow, PublishedTable

real_tables = reproduction.published_tables
ROW = PublishedRow(
    "small", "here", trace="tiresias_60", cluster="2x4", policy="fifo", figures={"makespan_s": (5_747.0, 5_747.0)}
)
OFF = PublishedRow(
    "small", "here", trace="tiresias_60", cluster="4x4", policy="fifo", figures={"makespan_s": (5_747.0, 5_747.0)}
)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[PublishedRow]:
    made = [ROW]

    def tables(names: tuple[str, ...] = ()) -> Iterator[PublishedTable]:
        yield PublishedTable("small", "A small table", "here", tuple(made))

    monkeypatch.setattr(reproduction, "published_tables", tables)
    return made


def test_reproduce__prints_a_table(rows: list[PublishedRow], capsys: pytest.CaptureFixture[str]) -> None:
    """Title, source, settings, a line a row."""
    assert main(["reproduce", "small"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines[:3] == ["small: A small table", "Theirs: here.", "Settings: policy=fifo."]
    assert lines[4].split()[-1] == "equal"


def test_reproduce__replays_the_tables_that_are_named(
    rows: list[PublishedRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that docs/replay.md names are among those shipped, with rows to replay, and no other one is replayed."""
    shipped, wanted = {table.name: table for table in real_tables()}, list[tuple[str, ...]]()
    fake = reproduction.published_tables
    monkeypatch.setattr(reproduction, "published_tables", lambda names=(): wanted.append(tuple(names)) or fake(names))
    assert main(["reproduce", "fifo", "muri"]) == 0
    assert wanted == [("fifo", "muri")]
    assert [bool(shipped[name].rows) for name in wanted[0]] == [True, True]


def test_reproduce__prints_one_json_value(rows: list[PublishedRow], capsys: pytest.CaptureFixture[str]) -> None:
    """Every figure, with settings and digest."""
    assert main(["reproduce", "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert (made["verdict"], made["settings"], made["figures"]["makespan_s"]["ours"]) == (
        "equal", {"policy": "fifo"}, 5_747.0,
    )  # fmt: skip


def test_reproduce__ends_with_3_if_a_row_does_not_hold(
    rows: list[PublishedRow], capsys: pytest.CaptureFixture[str]
) -> None:
    """The row is named on stderr; the table is printed all the same."""
    rows.append(OFF)
    assert main(["reproduce", "small", "--json"]) == 10
    shown = capsys.readouterr()
    assert [each["holds"] for each in json.loads(shown.out)] == [True, False]
    assert "slurmsched: small: tiresias_60 on 4x4: differs from the published figure" in shown.err


def test_reproduce__lists_without_replaying(capsys: pytest.CaptureFixture[str]) -> None:
    """Name, rows, what, source of those shipped."""
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = {each["name"]: each["rows"] for each in json.loads(capsys.readouterr().out)}
    assert listed["fifo"] == len(reproduction.published_table("fifo").rows)


def test_reproduce__refuses_an_unknown_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the tables there are."""
    assert main(["reproduce", "nowhere"]) == 2
    assert "no published table called 'nowhere'; there are 1d-las" in capsys.readouterr().err
