"""The page of `slurmsched report` in a real browser (make test-browser)."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slurmsched.observe.report.report_figures import report_figures
from slurmsched.observe.report.report_page import report_page
from tests.browser.axe import findings
from tests.browser.chromium import Rendered, rendered
from tests.unit.observe.report.report_samples import material

pytestmark = pytest.mark.browser


class Shown(NamedTuple):
    """The figures, as --json prints them, and their page in the browser. path: of the page."""

    made: dict[str, Any]
    page: Rendered
    path: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("report")
    of = material()
    made, path = report_figures(of), folder / "report.html"
    path.write_text(report_page(of, made), encoding="utf-8")
    return Shown(made, rendered(path, folder / "profile"), path)


def test_page__tells_the_console_nothing(shown: Shown) -> None:
    """No error, no warning."""
    assert shown.page.console == ()


def test_tables__equal_the_json(shown: Shown) -> None:
    """Waits, periods and tenants to the last digit."""
    sizes, spans, accounts, users, *_ = _tables(shown.page.html)
    keys = ("jobs", "mean_s", "p50_s", "p90_s", "longest_s")
    now = {size: told or {"jobs": 0} for size, told in shown.made["waiting"].items()}
    so_far = {size: [told.get(key) for key in ("jobs", "p50_s", "longest_s")] for size, told in now.items()}
    assert sizes == [
        (size, [*(told[key] for key in keys), *so_far[size]]) for size, told in shown.made["waits"].items()
    ]
    assert spans == [
        (one["name"], [one["jobs"], *one["mean_s"].values(), one["p90_s"], one["utilisation"]])
        for one in shown.made["periods"]
    ]
    names = ("jobs", "gpu_hours", "share", "mean_s", "p90_s", "before_s", "after_s")
    for found, of in ((accounts, "accounts"), (users, "users")):
        assert found == [(row["name"], [row[name] for name in names]) for row in shown.made[of]]


def test_plots__are_drawn(shown: Shown) -> None:
    """A line a size class; bars for periods, tenants and placements; GPUs held."""
    plots = re.split(r'<div id="plot-\d+"', shown.page.html)[1:]
    lines = [len(re.findall(r'class="js-line" d="M[^"]+L[^"]+"', plot)) for plot in plots]
    bars = [len(re.findall(r'<g class="point"><path d="M[^"]+"', plot)) for plot in plots]
    assert (lines[0], lines[3]) == (4, 2)
    assert (bars[1], bars[2], bars[4]) == (8, 4, 10)


def test_page__is_accessible(shown: Shown, tmp_path: Path) -> None:
    """axe finds nothing serious."""
    assert findings(shown.path, tmp_path) == []


@pytest.mark.parametrize("width", [1280, 500])
def test_page__fits_its_window(shown: Shown, tmp_path: Path, width: int) -> None:
    """Only tables scroll sideways."""
    copy = tmp_path / "copy.html"
    told = "document.title = document.documentElement.scrollWidth - innerWidth"
    script = f"<script>addEventListener('load', () => {{ {told} }})</script>"
    copy.write_text(shown.path.read_text(encoding="utf-8") + script, encoding="utf-8")
    (surplus,) = re.findall(r"<title>(-?\d+)</title>", rendered(copy, tmp_path / "profile", width).html)
    assert int(surplus) <= 0


def _tables(page: str) -> list[list[tuple[str, list[Any]]]]:
    """Of each table its rows: name, and the values the cells are sorted by."""
    values = re.compile(r'<td data-value="(.*?)"')
    return [
        [(html.unescape(name), [_value(value) for value in values.findall(row)])
         for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
         for name in re.findall(r'<th scope="row">(.*?)</th>', row)]
        for body in re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    ]  # fmt: skip


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return html.unescape(text) or None
