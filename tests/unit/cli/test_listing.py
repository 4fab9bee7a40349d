"""Columns, order, filters and CSV of lists, with squeue's letters and names."""

from __future__ import annotations

import csv
import importlib
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slurmsched.cli import listing
from slurmsched.cli.framework import TEXTS, Output
from slurmsched.cli.listing import Choice, Column, Listing


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_format__takes_squeues_letters_and_widths(run, fakes):
    """Text between letters is kept, a width cuts and pads, a dot puts the value to the right."""
    lines = run("queue", "-o", "%.5i|%3u|%P end").out.splitlines()
    assert lines == ["  JOB|USE|PARTITION end", "   12|bob|gpu,long end", "   11|ann|gpu end"]


def test_format__takes_names(run, fakes):
    """Those of `squeue -O` too, in any case; the table has these columns only."""
    assert rows_of(run("queue", "-o", "JobID,UserName,gpus").out) == [
        ["job", "user", "gpus"], ["12", "bob", "1"], ["11", "ann", "4"],
    ]  # fmt: skip


def test_noheader__prints_rows_alone(run, fakes):
    """What another program reads; notes go to stderr."""
    cluster, _ = fakes
    cluster.snapshot = replace(cluster.snapshot, warnings=("n1 does not answer",))
    answer = run("queue", "--noheader", "-o", "jobid")
    assert (answer.out.split(), "warning: n1 does not answer" in answer.err) == (["12", "11"], True)


@pytest.mark.parametrize(
    ("key", "order"), [("jobid", [11, 12]), ("-i", [12, 11]), ("-gpus", [11, 12]), ("u,i", [11, 12])]
)
def test_sort__by_names_and_letters(run, fakes, key, order):
    """The first counts most; a minus sorts the largest first. Ranks stay those of the whole queue."""
    rows = json.loads(run("queue", "--json", f"--sort={key}").out)["jobs"]
    assert [(row["job_id"], row["rank"]) for row in rows] == [(job, {12: 1, 11: 2}[job]) for job in order]


def test_sort__counts_digits_in_names_and_puts_the_unknown_last():
    """n2 before n10, whichever way round it is sorted."""
    nodes = Listing((Column("node", "node", "node"),))
    rows = [SimpleNamespace(node=node) for node in ("n10", None, "n2")]
    assert [row.node for row in nodes.ordered(rows, "node")] == ["n2", "n10", None]
    assert [row.node for row in nodes.ordered(rows, "-node")] == ["n10", "n2", None]


@pytest.mark.parametrize("words", [("-o", "%Z"), ("-o", "owner"), ("--sort", "owner"), ("-o", "a b"), ("-o", "%")])
def test_format__names_the_columns_where_one_is_unknown(run, fakes, words):
    """Before Slurm is asked, with exit code 2."""
    answer = run("queue", *words)
    assert (answer.code, "columns: rank, jobid (%i), user (%u)" in answer.err) == (2, True)


def test_csv__has_raw_values_under_the_names(run, fakes):
    """Whatever stands in them."""
    cluster, _ = fakes
    jobs = cluster.snapshot.jobs.with_columns(name=['a,"b"\n', "x", "y"])
    cluster.snapshot = replace(cluster.snapshot, jobs=jobs)
    rows = list(csv.reader(run("queue", "--csv", "-o", "jobid,name,service").out.splitlines()))
    assert rows == [["jobid", "name", "service"], ["12", "x", "0.0"], ["11", 'a,"b"\\n', "90000.0"]]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (("-u", "ann,carol"), [11]), (("-A", "biology"), [12]), (("-p", "long"), [12]), (("-q", "nosuch"), []),
        (("-t", "PD"), [12, 11]), (("-t", "R"), [13]), (("-t", "all"), [12, 11, 13]), (("--me",), [11]),
        (("--me", "-A", "biology"), []),
    ],
)  # fmt: skip
def test_filters__are_those_of_squeue(run, fakes, monkeypatch, words, jobs):
    """Each takes a list, and all given must hold; the states of running jobs add these to the queue."""
    monkeypatch.setattr(listing, "_own_name", lambda: "ann")
    assert [row["job_id"] for row in json.loads(run("queue", "--json", *words).out)["jobs"]] == jobs


def test_json__names_its_schema_and_version(run, fakes):
    """So that a program can tell what it reads (docs/json.md)."""
    assert json.loads(run("queue", "--json").out)["schema"] == "slurmsched/queue/1"
    assert json.loads(run("plan", "--json").out)["schema"] == "slurmsched/plan/1"


def test_plan__filters_changes(run, fakes):
    """Of these users only; steps and counts are of the whole plan."""
    assert [row["job_id"] for row in json.loads(run("plan", "--json", "-u", "bob").out)["changes"]] in ([12], [])
    assert "bob" not in run("plan", "--csv", "-u", "ann").out


@pytest.mark.parametrize("name", ["queue", "plan", "operations", "history", "advise"])
def test_listing__on_80_columns_cuts_names_and_never_a_reason(capsys, monkeypatch, name):
    """Every column of every list is as wide as it may be; what is text keeps all its words."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = importlib.import_module(f"slurmsched.cli.{name}").LISTING
    texts = {one.key for one in shown.columns if one.title in (*TEXTS, "what", "outcome", "write instead")}
    words = "every word of this text is there whatever stands beside it"
    row = {one.key: 123_456.0 if one.number or one.key.endswith("_s") else "a_name" * 4 for one in shown.columns}
    shown.show(Output(color=False), [SimpleNamespace(**row | dict.fromkeys(texts, words))], Choice())
    lines = capsys.readouterr().out.splitlines()
    assert texts
    assert max(map(len, lines)) <= 80
    assert [word for word in words.split() if not any(word in line for line in lines)] == []
