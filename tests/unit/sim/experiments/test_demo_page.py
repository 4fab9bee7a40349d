"""The page of the demo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.sim.experiments.demo_runs import Demo, DemoRun, demo_html, demo_policies, demo_table, write_demo_page
from slurmsched.sim.traces.trace_io import sample_trace


@pytest.fixture(scope="module")
def small() -> tuple[Demo, list[DemoRun]]:
    demo = Demo(sample_trace().first(12))
    return demo, [demo.run(contender) for contender in demo_policies()]


def test_page__asks_the_network_for_nothing(small: tuple[Demo, list[DemoRun]]) -> None:
    """No tag of ours loads anything; plotly is inside, once; under 2 MB."""
    text = demo_html(*small)
    ours = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL).replace('<link rel="icon" href="data:,">', "")
    assert re.findall(r"<(?:link|img|iframe|script|object)\b|src=|@import|url\(", ours) == []
    assert re.findall(r"<script[^>]*\bsrc=", text) == []
    assert (text.count("plotly.js (basic"), len(text) < 2_000_000) == (1, True)


def test_page__shows_the_table_and_four_plots(small: tuple[Demo, list[DemoRun]]) -> None:
    """Every cell of the table, every contender, the licence of the trace."""
    text = demo_html(*small)
    columns, rows = demo_table(small[1])
    cells = re.findall(r"<t(?:d|h scope=\"row\")>(.*?)</t[dh]>", text)
    assert cells == [cell.replace(">", "&gt;") for row in rows for cell in row]
    assert [name for name in columns[1:] if name not in text] == []
    assert (text.count('class="plot"'), "CC BY 4.0" in text) == (4, True)


def test_page__says_which_runs_are_equal(small: tuple[Demo, list[DemoRun]]) -> None:
    """Nice alone cannot order jobs that never ran, so LAS equals Slurm there and the page says so."""
    _, runs = small
    assert runs[0].outcomes.digest == runs[1].outcomes.digest
    assert "are equal, job by job" in demo_html(*small)


def test_write_page__leaves_nothing_behind_on_error(small: tuple[Demo, list[DemoRun]], tmp_path: Path) -> None:
    """A folder in the way is an error that names the file."""
    (tmp_path / "page.html").mkdir()
    with pytest.raises(InputError, match=r"page\.html: cannot be written"):
        write_demo_page(tmp_path / "page.html", *small)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
