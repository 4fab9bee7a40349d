"""`report`, from a ledger that cycles have written."""

from __future__ import annotations

import json
import time

import pytest

from slurmsched.config_file import load_config
from slurmsched.db.ledger_store import open_store
from slurmsched.errors import SlurmUnreachableError
from slurmsched.model import Plan, Receipt
from slurmsched.testing import snapshot

HOUR_S = 3_600.0


@pytest.fixture
def recorded(site, monkeypatch):
    """Two jobs: one waited an hour, ran two on 4 GPUs; the other still runs. Accounting cannot be asked."""
    config, now_s = load_config(site), time.time()
    store = open_store(config)
    monkeypatch.setenv("PATH", "/nonexistent")
    waits = [{"job_id": job, "submit_s": now_s - 5 * HOUR_S, "gpus": 4} for job in (1, 2)]
    runs = [one | {"state": "RUNNING", "start_s": now_s - 4 * HOUR_S} for one in waits]
    ended = [
        runs[0] | {"state": "COMPLETED", "end_s": now_s - 2 * HOUR_S, "run_s": 2 * HOUR_S},
        runs[1] | {"run_s": 3 * HOUR_S},
    ]
    for rows, at_s, dry_run in ((waits, 5, True), (runs, 4, False), (ended, 1, False)):
        look = store.recall(snapshot(rows, now_s=now_s - at_s * HOUR_S))
        store.append(look, Plan(), Receipt(dry_run=dry_run))
    store.close()
    return now_s


def test_report__is_made_of_the_ledger_where_accounting_is_away(run, fakes, recorded):
    """Waits, GPU time within the span, since when it writes; what is missing is said."""
    made = json.loads(run("report", "--since", "8h", "--json").out)
    assert (made["source"], made["started"], made["waits"]["2-4"]["mean_s"]) == ("ledger", 2, pytest.approx(HOUR_S))
    assert made["gpu_hours"] == pytest.approx(4 * 2 + 4 * 4, abs=0.1)
    assert made["switched_s"] == pytest.approx(recorded - 4 * HOUR_S)
    assert made["cycles"]["cycles"] == 3
    assert any(text.startswith("accounting: ") for text in made["unread"])


def test_report__prints_tables_and_writes_a_page(run, fakes, recorded, tmp_path):
    """The page's place is told last."""
    done = run("report", "--since", "8h", "--no-sacct", "--page", str(tmp_path / "r.html"))
    lines = done.out.splitlines()
    assert lines[0].startswith("2 jobs started; 24 GPU hours held")
    assert lines[1] == (
        "Assumed: no model: jobs as recorded by slurmsched's ledger; preemption: work lost as the ledger has it; "
        "waits from the first submission, time limits play no part; jobs that started in the span count"
    )
    assert lines[-1] == f"Page: {tmp_path / 'r.html'}"
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_report__says_what_is_wrong_with_its_options(run, fakes, tmp_path):
    """A span that is none, a folder that is not there; before anything is asked."""
    assert run("report", "--since", "soon").code == 2
    done = run("report", "--page", str(tmp_path / "nosuch" / "r.html"))
    assert (done.code, "the folder does not exist" in done.err) == (2, True)


def test_report__without_a_ledger_says_so(run, fakes, tmp_path):
    """It is no error: the page says what it does not know, and the text at its head."""
    made = json.loads(run("report", "--no-sacct", "--json").out)
    assert any("ledger" in text for text in made["unread"])
    lines = run("report", "--no-sacct").out.splitlines()
    assert lines[2].startswith("not known: ")


def test_report__of_nothing_at_all_is_an_error(run, fakes, monkeypatch):
    """Neither Slurm nor a ledger: no tables of zeros, but what Slurm's absence ends with; with a ledger it reports."""

    def away():
        raise SlurmUnreachableError("no squeue in PATH")

    monkeypatch.setattr(fakes[0], "read", away)
    done = run("report")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("slurmsched: no squeue in PATH; the ledger: ")


def test_report__of_the_ledger_alone(run, fakes, recorded, monkeypatch):
    """Slurm is away: the ledger's jobs, and what is not known."""

    def away():
        raise SlurmUnreachableError("no squeue in PATH")

    monkeypatch.setattr(fakes[0], "read", away)
    made = json.loads(run("report", "--since", "8h", "--json").out)
    assert (made["started"], made["unread"]) == (2, ["the cluster now: no squeue in PATH"])
