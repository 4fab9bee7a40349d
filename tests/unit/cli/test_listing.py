"""Lists: columns, order, filters and CSV, with squeue's letters and names. Tables of operations."""

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
from slurmsched.model import AskSize, Operation, Purpose, Requeue, SetAdminComment, SetGpuRequest, SetNodeList, Victim
from slurmsched.observe.queue_rows import operation_records, step_records


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


def test_filters__refuse_a_state_that_is_none(run, fakes):
    """An empty list would look like an answer."""
    assert "there is no state 'X'; states are PD (PENDING), R (RUNNING)" in run("queue", "-t", "pd,x").err


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


# Steps of operations, node lists and requests as commands show them.


KEY = (7, 1.0, "why", "pin-7")


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (SetNodeList(*KEY, "n2"), "pin n2"),
        (SetNodeList(*KEY, ""), "unpin"),
        (SetGpuRequest(*KEY, "gpu:i0:2", "gpu:2", "gpu:2"), "ask gpu:i0:2"),
        (Requeue(*KEY), "requeue"),
        (SetAdminComment(*KEY, "slurmsched: node list n2"), "set AdminComment slurmsched: node list n2"),
        (SetAdminComment(*KEY, ""), "clear AdminComment"),
        (AskSize(*KEY, 8), "want 8 GPUs"),
        (AskSize(*KEY), "want no other size"),
    ],
)
def test_print_steps__says_what_is_done(step, word):
    """In a word or two, with the node or the request."""
    rows = []

    class Out:
        def table(self, head, body):
            rows.extend(body)

    listing.print_steps(Out(), [step])
    assert rows == [("pin-7", word, 7, "why")]


def test_step_records__have_what_slurm_is_told():
    """As JSON: the request by Type."""
    (row,) = step_records([SetGpuRequest(*KEY, "gpu:i0:2", "gpu:2", "gpu:2")])
    assert row == {"job_id": 7, "step": "retype", "operation": "pin-7", "reason": "why", "gpus": "gpu:i0:2"}
    (row,) = step_records([AskSize(*KEY, 8)])
    assert row == {"job_id": 7, "step": "want", "operation": "pin-7", "reason": "why", "gpus": 8}


def test_print_operations__tells_what_each_victim_loses_and_by_what_that_is_known():
    """In words and as JSON; one on record from before that was known has its loss alone."""
    victims = (Victim(8, 0.0, 0, 4, lost_gpu_s=480.0, cost_by="its hint"), Victim(9, 0.0, 0, 0, lost_gpu_s=0.0))
    operation = Operation("7-1", Purpose.PREEMPT, 7, 0.0, "bob", "n1", 60.0, 1_000.0, victims)
    lines = []

    class Out:
        def line(self, text, style=""):
            lines.append(text)

    listing.print_operations(Out(), [operation], 1_000.0)
    assert lines[1:] == [
        "  victim 8 loses about 120 s of work on 4 GPUs, a restart by its hint",
        "  victim 9 loses about 0 s of work on 0 GPUs",
    ]
    told = [(each["lost_gpu_s"], each["cost_by"]) for each in operation_records([operation])[0]["victims"]]
    assert told == [(480.0, "its hint"), (0.0, None)]
