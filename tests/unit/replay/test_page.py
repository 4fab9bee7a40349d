"""The page of the demo."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from slurmsched.errors import InputError
from slurmsched.replay.demo import Demo, Run, contenders, table
from slurmsched.replay.page import page, write_page
from slurmsched.replay.plots import averaged
from slurmsched.replay.traces import sample_trace


@pytest.fixture(scope="module")
def small() -> tuple[Demo, list[Run]]:
    demo = Demo(sample_trace().first(12))
    return demo, [demo.run(contender) for contender in contenders()]


def test_averaged__keeps_the_area_under_the_steps() -> None:
    """A step function 4, 0, 2 over 10 s each: means over 15 s halves are 8/3 and 4/3."""
    at, mean = averaged(np.array([0.0, 10.0, 20.0]), np.array([4.0, 0.0, 2.0]), 30.0, points=2)
    assert mean.tolist() == [2.67, 1.33]
    assert at.tolist() == [0.0, 0.0]


def test_page__asks_the_network_for_nothing(small: tuple[Demo, list[Run]]) -> None:
    """No tag of ours loads anything; plotly is inside, once; a few MB at most."""
    text = page(*small)
    ours = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"<(?:link|img|iframe|script|object)\b|src=|@import|url\(", ours) == []
    assert re.findall(r"<script[^>]*\bsrc=", text) == []
    assert (text.count("plotly.js v"), len(text) < 6_000_000) == (1, True)


def test_page__shows_the_table_and_four_plots(small: tuple[Demo, list[Run]]) -> None:
    """Every cell of the table, every contender, the licence of the trace."""
    text = page(*small)
    columns, rows = table(small[1])
    cells = re.findall(r"<td>(.*?)</td>", text)
    assert cells == [cell.replace(">", "&gt;") for row in rows for cell in row]
    assert [name for name in columns[1:] if name not in text] == []
    assert (text.count('class="plotly-graph-div"'), "CC BY 4.0" in text) == (4, True)


def test_page__says_which_runs_are_equal(small: tuple[Demo, list[Run]]) -> None:
    """Nice alone cannot order jobs that never ran, so LAS equals Slurm there and the page says so."""
    _, runs = small
    assert runs[0].outcomes.digest == runs[1].outcomes.digest
    assert "are equal, job by job" in page(*small)


def test_write_page__leaves_nothing_behind_on_error(small: tuple[Demo, list[Run]], tmp_path: Path) -> None:
    """A folder in the way is an error that names the file."""
    (tmp_path / "page.html").mkdir()
    with pytest.raises(InputError, match=r"page\.html: cannot be written"):
        write_page(tmp_path / "page.html", *small)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
