"""Plots as plotly.js takes them."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha512
from itertools import combinations, product

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from slurmsched.observe.html_page import (
    DARK,
    DAYS,
    LIGHT,
    SERIES,
    SIZE_COLOURS,
    STATIC,
    PlotFigure,
    TimeAxis,
    colour_css,
    figure_html,
    policy_styles,
    span_averages,
)


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


# Colours of the pages: readable, and different for every reader.


# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency", 2009,
# severity 1.0, on linear RGB.
VISIONS = {
    "all three cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
# Ottosson's Oklab, 2020: from linear RGB to cones, and from the cones' cube roots to lightness and two hues.
CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
         [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
OKLAB = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099],
         [0.0259040371, 0.7827717662, -0.808675766]]  # fmt: skip
LEAST_DIFFERENCE = 0.14  # in Oklab, where black and white differ by 1


def linear(colour: str) -> NDArray[np.float64]:
    """Red, green and blue of "#rrggbb", in proportion to light."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """As WCAG 2.2 defines it."""
    one, other = (float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05 for colour in (a, b))
    return max(one, other) / min(one, other)


def seen(colour: str, vision: str) -> NDArray[np.float64]:
    """The colour in Oklab, as somebody with this vision sees it."""
    light = np.clip(np.array(VISIONS[vision]) @ linear(colour), 0, 1)
    return np.array(OKLAB) @ np.cbrt(np.array(CONES) @ light)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_texts__have_a_contrast_of_4_5(theme: dict[str, str]) -> None:
    """Ink, soft text, links and warnings on the paper; numbers on the boxes of the map of GPUs."""
    pairs = [(theme[name], theme["--paper"]) for name in ("--ink", "--soft", "--link", "--warn")]
    pairs += [(theme["--held-ink"], theme["--held"]), (theme["--ink"], theme["--closed"]),
              (LIGHT["--ink"], theme["--stranded"])]  # fmt: skip
    assert [pair for pair in pairs if contrast(*pair) < 4.5] == []


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_lines__stand_out_from_the_paper(theme: dict[str, str]) -> None:
    """By 3:1, as WCAG asks of graphics."""
    assert [name for name in SERIES if contrast(theme[name], theme["--paper"]) < 3.0] == []


@pytest.mark.parametrize(("theme", "vision"), [*product((LIGHT, DARK), VISIONS)])
def test_lines__differ_for_colour_blind_readers(theme: dict[str, str], vision: str) -> None:
    """Every two of the seven, in all kinds of colour blindness."""
    colours = [seen(theme[name], vision) for name in SERIES]
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(colours, 2)) > LEAST_DIFFERENCE


def test_css__has_every_name_in_both_themes() -> None:
    """And a page of class "paper" stays light."""
    assert set(LIGHT) == set(DARK)
    assert all(colour_css().count(f"{name}: ") == 2 for name in LIGHT)
    assert "prefers-color-scheme: dark" in colour_css()
    assert ":root:not(.paper)" in colour_css()


def test_policies__keep_their_colour_on_every_page() -> None:
    """Whatever stands beside them, unless a line before has it; two of a name differ."""
    assert policy_styles(["srsf"]) == policy_styles(["fifo", "discretized-las", "srsf"])[2:]
    assert policy_styles(["slurm", "fifo"])[0] == policy_styles(["fifo"])[0]
    assert len(set(policy_styles(["las", "las", "las"]))) == 3


def test_policies__tell_42_lines_apart() -> None:
    """No two alike, and the first seven have a colour each."""
    for names in ([f"policy{n}" for n in range(42)], ["las"] * 42):
        styles = policy_styles(names)
        assert (len(set(styles)), len({colour for colour, _ in styles[:7]})) == (42, 7)


def test_sizes__have_four_colours() -> None:
    """One a class, none that of black lines."""
    assert (len(set(SIZE_COLOURS.values())), SERIES[0] in SIZE_COLOURS.values()) == (4, False)
