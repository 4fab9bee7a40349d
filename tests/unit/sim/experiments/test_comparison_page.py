"""The page of a comparison."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from slurmsched.model.trace import RecordedTrace
from slurmsched.observe.html_page import DAYS, HOURS, SECONDS, unit_for_jobs, unit_for_span
from slurmsched.sim.experiments.comparison import (
    ComparisonCase,
    PolicyComparison,
    all_measures,
    comparison_rows,
    play_case,
    ratio_text,
)
from slurmsched.sim.experiments.comparison_page import MOST_GANTTS, comparison_html
from slurmsched.sim.experiments.replay_request import ReplayRequest
from tests.unit.sim.experiments.test_comparison import SIX, played, six


def text_of(*comparisons: PolicyComparison) -> str:
    """The page without its scripts."""
    return re.sub(r"<script\b.*?</script>", "", comparison_html(comparisons, 7, complete=True), flags=re.DOTALL)


def test_page__asks_the_network_for_nothing() -> None:
    """No tag loads anything; plotly's small bundle is inside, once, and the page stays under 2 MB."""
    whole = comparison_html([six("fifo", "srtf")], 7, complete=True)
    ours = text_of(six("fifo", "srtf")).replace('<link rel="icon" href="data:,">', "")
    assert re.findall(r"<(?:link|img|iframe|object)\b|@import|url\(", ours) == []
    assert (re.findall(r"<script[^>]*\bsrc=", whole), whole.count("plotly.js (basic")) == ([], 1)
    assert len(whole) < 2_000_000


def test_page__shows_every_figure_of_the_table() -> None:
    """A row a policy, a cell a measure; and six plots and a Gantt chart for each."""
    both = six("fifo", "srtf")
    page = text_of(both)
    cells = re.findall(
        r'<td data-value="[^"]*"(?: class="(best)")?>([^<]*?)(?:<span class="sr"> best</span>)?'
        r"(?: <small>(.*?)</small>)?</td>", page
    )  # fmt: skip
    found = {"* " * bool(best) + (f"{text} ({ratio})" if ratio else text) for best, text, ratio in cells}
    assert [cell for _, *line in comparison_rows(both.runs) for cell in line if cell not in found] == []
    assert len(comparison_rows(both.runs[:1])) == len(all_measures(both.runs[:1]))
    assert page.count('class="plot"') == 6 + 2


def test_page__marks_no_best_use_of_gpus_with_elastic_jobs() -> None:
    """Work lost and utilisation count the size that a job asks for. The plot of GPUs in use is told by utilisation."""
    rigid, elastic = ([dict(run) for run in six("fifo", "srtf").runs] for _ in range(2))
    for runs in (rigid, elastic):
        for at, run in enumerate(runs):
            run |= {"lost_gpu_h": float(at), "gpu_utilisation": 0.5 + at / 10}
    for run in elastic:
        run["resizes"] = 1
    marked = [sum("*" in cell for name, *cells in comparison_rows(runs) if name in ("work lost [GPU h]",
              "GPU utilisation [%]") for cell in cells) for runs in (rigid, elastic)]  # fmt: skip
    assert marked == [2, 0]
    used = [f"{run['policy']} {100 * run['gpu_utilisation']:.1f}" for run in six("fifo", "srtf").runs]
    assert "GPU utilisation in per cent: " + ", ".join(used) in text_of(six("fifo", "srtf"))


def test_page__shows_slowdown_where_there_is_physics() -> None:
    """A row of the table and a column of the page; none without physics."""
    request = ReplayRequest(cluster="1x4", placement="linked", physics="spread")
    slowed = PolicyComparison(
        "six.csv", RecordedTrace(SIX), [play_case(SIX, ComparisonCase(0, request), lambda ended: None)]
    )
    assert ("slowdown mean", "1.000") in comparison_rows(slowed.runs)
    assert (">slowdown mean<" in text_of(slowed), ">slowdown mean<" in text_of(six("fifo"))) == (True, False)


def test_page__is_told_to_who_cannot_see_it() -> None:
    """Every plot has a text with the figures, every table a caption, headings one level at a time."""
    page = text_of(six("fifo", "srtf"))
    assert 'aria-label="Median JCT [s]: fifo 11.50, srtf 8.00"' in page
    assert page.count('role="img"') == page.count('class="plot"')
    assert page.count("<caption>") == page.count("<table")
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert (levels[0], max(b - a for a, b in itertools.pairwise(levels))) == (1, 1)


def test_page__names_what_was_compared() -> None:
    """Version, seed, digest and configuration, users that gain and lose, warnings of the trace."""
    each = replace(
        six("fifo", "srtf"), recorded=RecordedTrace(SIX, "csv", warnings=("six.csv: 2 rows <cannot> be read",))
    )
    page = text_of(each)
    assert "Users under srtf against fifo: 2 gain, 1 lose" in page
    assert f"digest <code>{each.described()['trace_digest']}</code>" in page
    assert "slurmsched compare six.csv" in comparison_html([each], 7, "slurmsched compare six.csv", complete=True)
    for text in ("2 rows &lt;cannot&gt; be read", "<dd>7</dd>", "&#34;policy&#34;:&#34;srtf&#34;"):
        assert text in page


def test_page__of_jobs_without_users() -> None:
    """Fairness is that of jobs, and nobody gains or loses."""
    bare = SIX.with_columns(user=[""] * 6)
    page = text_of(
        PolicyComparison("six.csv", RecordedTrace(bare), [played(name, trace=bare) for name in ("fifo", "srtf")])
    )
    assert ("Share of jobs whose slowdown" in page, " gain, " in page) == (True, False)


def test_page__of_replays_cut_short_before_any_job_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page all the same, which says so; unknown figures are a dash."""
    from tests.unit.sim.experiments.test_comparison import stopped_after

    monkeypatch.setattr(
        "slurmsched.sim.experiments.replay_session._every_so_often", lambda tell: lambda cluster: tell(cluster.ended)
    )
    cut = PolicyComparison("six.csv", RecordedTrace(SIX), [played(name, stopped_after(0)) for name in ("fifo", "srtf")])
    page = comparison_html([cut], 0, complete=False)
    assert ("The comparison was interrupted" in page, '<td data-value="">-</td>' in page) == (True, True)


def test_page__draws_no_more_gantt_charts_than_it_has_room_for() -> None:
    """Nine settings, eight charts."""
    names = ["fifo", *(f"discretized-las:thresholds_gpu_s=[{n}]" for n in range(1, MOST_GANTTS + 1))]
    assert text_of(six(*names)).count('class="plot"') == 6 + MOST_GANTTS


def test_units__follow_the_size_of_times() -> None:
    """Hours from one hour on; an axis in the largest unit of which it holds three."""
    assert [unit_for_jobs(s) for s in (3_599.0, 3_600.0)] == [SECONDS, HOURS]
    assert [unit_for_span(s) for s in (10_000.0, 10_800.0, 259_199.0, 259_200.0)] == [SECONDS, HOURS, HOURS, DAYS]
    assert (HOURS.text(5_400.0), HOURS.text(None), HOURS.text(float("nan"))) == ("1.50", "-", "-")


@pytest.mark.parametrize(("ratio", "text"), [(1.4, "1.40x"), (0.5, "0.50x"), (0.00398, "0.004x"), (113.0, "113.00x")])
def test_times_text__keeps_two_digits(ratio: float, text: str) -> None:
    """Small ratios too."""
    assert text == ratio_text(ratio)
