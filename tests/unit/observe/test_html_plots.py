"""Plots as plotly.js takes them."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha512

import numpy as np
import orjson
import pytest

from slurmsched.observe.html_page import DAYS, STATIC
from slurmsched.observe.html_plots import PlotFigure, TimeAxis, figure_html, span_averages


def packed(figure: PlotFigure) -> dict:
    """The JSON in the page."""
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', figure_html(figure, 3))
    return orjson.loads(text)


def test_averaged__keeps_the_area_under_the_steps() -> None:
    """A step function 4, 0, 2 over 10 s each: means over 15 s halves are 8/3 and 4/3."""
    mean = span_averages(np.array([0.0, 10.0, 20.0]), np.array([4.0, 0.0, 2.0]), 30.0, points=2)
    assert mean.tolist() == [2.67, 1.33]


def test_times__are_dates_where_the_begin_has_one() -> None:
    """Middles of two spans of a day; else numbers in the unit."""
    dated, bare = TimeAxis(DAYS, 1_770_000_000.0, "UTC+02:00"), TimeAxis(DAYS)
    assert dated.middles(172_800.0, 2) == {"x0": "2026-02-02 14:40:00", "dx": 86_400_000.0}
    assert (dated.settings["type"], dated.settings["title"]["text"]) == ("date", "date (UTC+02:00)")
    assert bare.middles(172_800.0, 2) == {"x0": 0.5, "dx": 1.0}
    assert bare.settings == {"title": {"text": "days"}}


def test_distribution__of_nothing_draws_nothing() -> None:
    """Else the share rises evenly from 0 to 100 %."""
    figure = PlotFigure("jobs [%]")
    figure.distribution("none", np.array([]), ("--series-1", "dot"))
    figure.distribution("some", np.array([1.0, 3.0]), ("--series-2", "dot"))
    (line,) = packed(figure)["data"]
    assert (line["name"], line["x"], line["y0"], line["dy"]) == ("some", [1.0, 2.0, 3.0], 0, 50.0)


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<b>x</b>", "a\u202eb", "half \ud800"])
def test_names__are_texts(name: str) -> None:
    """No markup of a user reaches the page or plotly's own, in legends and on axes."""
    figure = PlotFigure("jobs")
    figure.bars(name, [name], [1.0], "--series-1")
    text = figure_html(figure, 0)
    assert ("<b>" in text, text.count("</script"), "\u202e" in text) == (False, 1, False)
    (bars,) = packed(figure)["data"]
    assert "<" not in bars["name"] + bars["x"][0]


def test_bundle__is_the_published_one() -> None:
    """plotly-basic.min.js of npm's plotly.js-basic-dist-min, unchanged; its licence is beside it."""
    found = b64encode(sha512((STATIC / "plotly-basic.min.js").read_bytes()).digest()).decode()
    assert f"sha512-{found}" in (STATIC / "README.md").read_text(encoding="utf-8")
    assert "MIT" in (STATIC / "plotly-basic.LICENSE").read_text(encoding="utf-8")
