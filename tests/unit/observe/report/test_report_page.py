from __future__ import annotations

import re

import numpy as np

from slurmsched.observe.report.report_figures import report_figures
from slurmsched.observe.report.report_input import ReportInput, reported_jobs
from slurmsched.observe.report.report_page import report_page, text_sheets
from tests.unit.observe.report.report_samples import material


def page(of: ReportInput) -> str:
    """Without the scripts."""
    return re.sub(r"<script>.*?</script>", "", report_page(of, report_figures(of)), flags=re.DOTALL)


def test_page__has_every_section():
    """With what was asked for: waits, tenants, use, operations, placement."""
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", page(material()))
    assert titles == ["How long jobs waited", "Tenants and fairness", "Use of the GPUs",
    "Preemptions and gang reservations",
                      "How well GPUs were linked", "How to read this"]  # fmt: skip


def test_page__escapes_names_of_users():
    """They are data."""
    made = page(material())
    assert "&lt;b&gt;eve&lt;/b&gt;" in made
    assert "<b>eve" not in made
    assert "<i>mallory" not in made


def test_page__asks_the_network_for_nothing():
    """No source and no link to elsewhere."""
    assert re.findall(r"(?:src|href)=\"?(?:https?:)?//", page(material())) == []


def test_page__leaves_out_what_there_is_nothing_of():
    """No operations, no placements, no names: no such sections; what is not known is said."""
    rows = reported_jobs([{"job_id": 1, "gpus": 1, "submit_s": 0.0, "start_s": 5.0, "held_s": 5.0, "end_s": 9.0}])
    made = page(ReportInput(0.0, 100.0, rows, unread=("accounting: away",), policy="fifo"))
    assert re.findall(r'<h2 id="[^"]*">(.*?)</h2>', made) == ["How long jobs waited", "Use of the GPUs"]
    assert "Not known: accounting: away" in made


def test_page__of_nothing_is_a_page():
    """No job at all."""
    assert "jobs started" in page(ReportInput(0.0, 100.0, reported_jobs(()), switched_s=np.nan))


def test_text__has_the_tables_of_waits_periods_and_tenants():
    """As many rows as there are."""
    sheets = text_sheets(report_figures(material()))
    assert [(one.caption, len(one.rows)) for one in sheets] == [
        ("Wait by GPUs held", 5), ("Mean wait by GPUs held, and use of the GPUs, over time", 2),
        ("Accounts", 2), ("Users", 3),
    ]  # fmt: skip
