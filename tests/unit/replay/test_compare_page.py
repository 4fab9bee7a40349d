"""The page of a comparison."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from slurmsched.replay.compare import Case, Comparison, play
from slurmsched.replay.compare_page import MOST_GANTTS, compare_page
from slurmsched.replay.compare_table import measures, rows, times_text
from slurmsched.replay.plots import styles
from slurmsched.replay.request import Request
from slurmsched.replay.trace_files import Recorded
from slurmsched.replay.units import DAYS, HOURS, SECONDS, of_jobs, of_span
from tests.unit.replay.test_compare import SIX, played, six


def text_of(*comparisons: Comparison) -> str:
    """The page without its scripts."""
    return re.sub(r"<script\b.*?</script>", "", compare_page(comparisons, 7, complete=True), flags=re.DOTALL)


def test_page__asks_the_network_for_nothing() -> None:
    """No tag loads anything; plotly is inside, once."""
    whole = compare_page([six("fifo", "srtf")], 7, complete=True)
    assert re.findall(r"<(?:link|img|iframe|object)\b|@import|url\(", text_of(six("fifo", "srtf"))) == []
    assert (re.findall(r"<script[^>]*\bsrc=", whole), whole.count("plotly.js v")) == ([], 1)


def test_page__shows_every_figure_of_the_table() -> None:
    """A row a policy, a cell a measure; and six plots and a Gantt chart for each."""
    page = text_of(six("fifo", "srtf"))
    cells = re.findall(r"<td data-value=\"[^\"]*\">([^<]*?)(?: <small>(.*?)</small>)?</td>", page)
    found = {f"{text} ({ratio})" if ratio else text for text, ratio in cells}
    assert [cell for _, *line in rows(six("fifo", "srtf").runs) for cell in line if cell not in found] == []
    assert len(rows(six("fifo").runs)) == len(measures(six("fifo").runs))
    assert page.count('class="plotly-graph-div"') == 6 + 2


def test_page__shows_slowdown_where_there_is_physics() -> None:
    """A row of the table and a column of the page; none without physics."""
    request = Request(cluster="1x4", placement="linked", physics="spread")
    slowed = Comparison("six.csv", Recorded(SIX), [play(SIX, Case(0, request), lambda ended: None)])
    assert ("slowdown mean", "1.000") in rows(slowed.runs)
    assert (">slowdown mean<" in text_of(slowed), ">slowdown mean<" in text_of(six("fifo"))) == (True, False)


def test_page__is_told_to_who_cannot_see_it() -> None:
    """Every plot has a text with the figures, every table a caption, headings one level at a time."""
    page = text_of(six("fifo", "srtf"))
    assert 'aria-label="Median JCT [s]: fifo 11.50, srtf 8.00"' in page
    assert page.count('role="img"') == page.count('class="plotly-graph-div"')
    assert page.count("<caption>") == page.count("<table")
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert (levels[0], max(b - a for a, b in itertools.pairwise(levels))) == (1, 1)


def test_page__names_what_was_compared() -> None:
    """Version, seed, digest and configuration, users that gain and lose, warnings of the trace."""
    each = replace(six("fifo", "srtf"), recorded=Recorded(SIX, "csv", warnings=("six.csv: 2 rows <cannot> be read",)))
    page = text_of(each)
    assert "Users under srtf against fifo: 2 gain, 1 lose" in page
    assert f"digest <code>{each.described()['trace_digest']}</code>" in page
    for text in ("2 rows &lt;cannot&gt; be read", "<dd>7</dd>", "&#34;policy&#34;:&#34;srtf&#34;"):
        assert text in page


def test_page__of_jobs_without_users() -> None:
    """Fairness is that of jobs, and nobody gains or loses."""
    bare = SIX.with_columns(user=[""] * 6)
    page = text_of(Comparison("six.csv", Recorded(bare), [played(name, trace=bare) for name in ("fifo", "srtf")]))
    assert ("Share of jobs whose slowdown" in page, " gain, " in page) == (True, False)


def test_page__of_replays_cut_short_before_any_job_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page all the same, which says so; unknown figures are a dash."""
    from tests.unit.replay.test_compare import stopped_after

    monkeypatch.setattr("slurmsched.replay.run._now_and_then", lambda tell: lambda cluster: tell(cluster.ended))
    cut = Comparison("six.csv", Recorded(SIX), [played(name, stopped_after(0)) for name in ("fifo", "srtf")])
    page = compare_page([cut], 0, complete=False)
    assert ("The comparison was interrupted" in page, '<td data-value="">-</td>' in page) == (True, True)


def test_page__draws_no_more_gantt_charts_than_it_has_room_for() -> None:
    """Nine settings, eight charts."""
    names = ["fifo", *(f"discretized-las:thresholds_gpu_s=[{n}]" for n in range(1, MOST_GANTTS + 1))]
    assert text_of(six(*names)).count('class="plotly-graph-div"') == 6 + MOST_GANTTS


def test_styles__tell_36_lines_apart() -> None:
    """No two alike, and the first six have a colour each."""
    assert (len(set(styles(36))), len({colour for colour, _ in styles(6)})) == (36, 6)


def test_units__follow_the_size_of_times() -> None:
    """Hours from one hour on; an axis in the largest unit of which it holds three."""
    assert [of_jobs(s) for s in (3_599.0, 3_600.0)] == [SECONDS, HOURS]
    assert [of_span(s) for s in (10_000.0, 10_800.0, 259_199.0, 259_200.0)] == [SECONDS, HOURS, HOURS, DAYS]
    assert (HOURS.text(5_400.0), HOURS.text(None), HOURS.text(float("nan"))) == ("1.50", "-", "-")


@pytest.mark.parametrize(("ratio", "text"), [(1.4, "1.40x"), (0.5, "0.50x"), (0.00398, "0.004x"), (113.0, "113.00x")])
def test_times_text__keeps_two_digits(ratio: float, text: str) -> None:
    """Small ratios too."""
    assert text == times_text(ratio)
