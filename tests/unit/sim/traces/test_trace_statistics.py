"""The tables of a trace, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from slurmsched.errors import InputError
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.sim.traces.trace_page import section_rows, trace_page
from slurmsched.sim.traces.trace_statistics import (
    FIGURE_SOURCES,
    PUBLISHED_FIGURES,
    TraceSection,
    beside_published,
    describe_trace,
    trace_figures,
)

MONDAY_8H = 4 * 86_400.0 + 8 * 3_600.0  # 1970-01-05


def four() -> RecordedTrace:
    """A 1-GPU task run twice (30 and 90 s), 4 GPUs for an hour that failed, half a GPU for 2 h that was cancelled."""
    trace = Trace.of(
        [1, 2, 3, 4], [1, 1, 4, 1], [0, 3600, 3600, 90_000], [30, 90, 3600, 7200],
        start_s=[0, 3610, 3700, 90_000], user=["ann", "ann", "bob", "eve"], name=["t", "t", "u", "v"],
        state=["COMPLETED", "COMPLETED", "TIMEOUT", "CANCELLED"], gpu_share=[1, 1, 1, 0.5], requeues=[0, 0, 2, 0],
    )  # fmt: skip
    return RecordedTrace(trace, "test", MONDAY_8H)


def table(name: str, recorded: RecordedTrace | None = None, gpus: int = 0) -> TraceSection:
    return next(section for section in describe_trace(recorded or four(), gpus) if section.name == name)


def test_figures__of_four_jobs() -> None:
    """30 + 90 + 4 x 3600 + half of 7200 GPU seconds; shares of jobs and of GPU time."""
    found = trace_figures(four())
    assert found["gpu_hours"] == pytest.approx(18_120 / 3600)
    assert {name: found[name] for name in ("jobs", "users", "mean_gpus", "single_gpu_pct", "partial_gpu_pct")} == {
        "jobs": 4, "users": 3, "mean_gpus": 1.75, "single_gpu_pct": 75, "partial_gpu_pct": 25,
    }  # fmt: skip
    assert (found["failed_pct"], round(found["failed_gpu_pct"], 3)) == (25, round(100 * 14_400 / 18_120, 3))
    assert (found["mean_wait_s"], found["median_wait_s"], found["requeued_pct"]) == (27.5, 5, 25)


def test_figures__that_the_trace_cannot_tell_are_nan() -> None:
    """Without states, users and starts there are no such figures."""
    found = trace_figures(RecordedTrace(Trace.of([1], [2], [0], [10])))
    unknown = {name for name, value in found.items() if math.isnan(value)}
    assert {"users", "mean_wait_s", "completed_pct", "failed_gpu_pct", "recurrent_pct"} <= unknown


def test_describe__of_jobs_of_0_s() -> None:
    """They have waits and no run times, and hold no GPU for any time; a trace of nothing else has tables too."""
    columns = {"user": ["ann"] * 3, "name": ["t"] * 3}
    recorded = RecordedTrace(
        Trace.of([1, 2, 3], [4, 4, 4], [0, 0, 5], [0, 10, 0], start_s=[0, 5, 15], **columns), "test"
    )
    assert [row[1] for row in table("use", recorded).rows] == [pytest.approx(40 / 15), 4.0, 4.0, 4.0]
    assert table("waits", recorded).rows[2] == ("p50", 0.0, 5.0, pytest.approx((100 / 3 + 100) / 2))
    instant = RecordedTrace(Trace.of([1, 2], [4, 4], [0, 5], [0, 0], start_s=[0, 5], user=["ann"] * 2), "test")
    assert [row[1] for row in table("use", instant).rows] == [0.0] * 4
    assert table("recurrence", instant).rows[0][3] == 0.0


def test_describe__leaves_out_what_the_trace_does_not_tell() -> None:
    """No waits, outcomes, users or hours without their columns."""
    bare = describe_trace(RecordedTrace(Trace.of([1, 2], [1, 8], [0, 5], [10, 20])))
    assert [section.name for section in bare] == ["overview", "sizes", "lengths"]
    assert [section.name for section in describe_trace(four())] == [
        "overview", "sizes", "lengths", "waits", "use", "outcomes", "retries", "users", "recurrence", "hours",
        "weekdays",
    ]  # fmt: skip


def test_sizes__give_jobs_gpu_time_and_waits() -> None:
    """Three jobs of 1 GPU hold 3720 of 18,120 GPU seconds; the one of 4 GPUs waits 100 s."""
    rows = {row[0]: row for row in table("sizes").rows}
    assert rows["1"][1:3] == (3, 75)
    assert round(rows["1"][3], 3) == round(100 * 3_720 / 18_120, 3)
    assert (rows["2-4"][1], rows["2-4"][7]) == (1, 100)
    assert rows[">8"][1] == 0
    assert math.isnan(rows[">8"][4])


def test_use__weighs_by_time() -> None:
    """Held: 1 GPU 30 s, 1 GPU 90 s, 4 GPUs 3600 s, half a GPU 7200 s, of 97,200 s; at most 4 of 8 GPUs (5 never)."""
    rows = {row[0]: row[1:] for row in table("use", gpus=8).rows}
    assert rows["mean"][0] == pytest.approx(18_120 / 97_200)
    assert rows["most"] == (4, 50)


def test_outcomes__are_by_number() -> None:
    """The most frequent state first."""
    assert [(row[0], row[1]) for row in table("outcomes").rows] == [("COMPLETED", 2), ("CANCELLED", 1), ("TIMEOUT", 1)]


def test_users__share_of_the_busiest() -> None:
    """ann has half of the jobs; the busiest by GPU time is bob."""
    first = table("users").rows[0]
    assert (first[1], first[2]) == (1, 50)
    assert first[3] == pytest.approx(100 * 14_400 / 18_120)


def test_recurrence__finds_the_task_that_comes_back() -> None:
    """One task of two jobs; its run times 30 and 90 s: deviation 30 over mean 60."""
    assert table("recurrence").rows[0] == (">= 2 times", 1, 50, 0.5)


def test_hours__are_the_sites() -> None:
    """First submission at 8 h, the next two at 9 h, the last at 9 h of the next day; an offset of 2 h moves them."""
    days = 90_000 / 86_400
    assert [(row[0], row[1]) for row in table("hours").rows if row[1]] == [(8, 1 / days), (9, 3 / days)]
    moved = RecordedTrace(four().trace, "test", MONDAY_8H, 7_200.0)
    assert [row[0] for row in table("hours", moved).rows if row[1]] == [10, 11]
    assert [(row[0], row[1]) for row in table("weekdays").rows if row[1]] == [("Monday", 3), ("Tuesday", 1)]


def test_beside__says_what_is_reproduced() -> None:
    """Equal to the printed digit, different, or unknown."""
    name = "helios-venus"
    ours = {each.figure: each.value for each in PUBLISHED_FIGURES[name]} | {"mean_gpus": 6.7363, "jobs": 99.0}
    verdicts = {
        row[0]: row[4] for row in beside_published(name, {k: v for k, v in ours.items() if k != "mean_wait_s"}).rows
    }
    assert (verdicts["median_duration_s"], verdicts["mean_gpus"]) == ("reproduced", "reproduced")
    assert (verdicts["jobs"], verdicts["mean_wait_s"]) == (
        "not reproduced: differs", "not reproduced: not in the trace",
    )  # fmt: skip


def test_beside__names_what_is_known() -> None:
    """Every set of figures names its source; an unknown name lists the sets."""
    assert set(FIGURE_SOURCES) == set(PUBLISHED_FIGURES)
    with pytest.raises(InputError, match="there are helios-venus"):
        beside_published("nowhere", {})


def test_page__has_every_table_and_six_plots() -> None:
    """Plotly is inside; names of the trace are escaped."""
    text = trace_page("<b>.csv", four(), describe_trace(four()))
    assert (text.count('class="plot"'), text.count("plotly.js (basic")) == (6, 1)
    assert ("&lt;b&gt;.csv" in text, "<b>.csv" in text) == (True, False)
    assert [section.title for section in describe_trace(four()) if f"<h2>{section.title}</h2>" not in text] == []


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "-"), (3.0, "3"), (1234.6, "1,235"), (0.12345, "0.1235"), ("p50", "p50")]
)
def test_shown__gives_four_digits(value: object, text: str) -> None:
    """Whole numbers whole, thousands apart, a dash where nothing is known."""
    assert section_rows(value) == text
