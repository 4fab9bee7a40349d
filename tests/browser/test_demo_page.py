"""The demo's page in a real browser (make test-browser)."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.browser.axe import findings
from tests.browser.chromium import Rendered, rendered

pytestmark = pytest.mark.browser


class Shown(NamedTuple):
    """What `slurmsched demo --json` printed, and its page in the browser. path: of the page."""

    made: dict[str, Any]
    page: Rendered
    path: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    path = folder / "page.html"
    command = [sys.executable, "-m", "slurmsched.cli.main", "demo", "--first", "100", "--page", str(path), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return Shown(json.loads(done.stdout), rendered(path, folder / "profile"), path)


def test_page__tells_the_console_nothing(shown: Shown) -> None:
    """No error, no warning."""
    assert shown.page.console == ()


def test_page__is_accessible(shown: Shown, tmp_path: Path) -> None:
    """axe finds nothing serious."""
    assert findings(shown.path, tmp_path) == []


def test_page__reports_errors_of_its_scripts(tmp_path: Path) -> None:
    """The rule above is not empty: a script that fails is seen."""
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><title>x</title><script>nosuch()</script>", encoding="utf-8")
    console = rendered(page, tmp_path / "profile").console
    assert [("nosuch is not defined" in line) for line in console] == [True]


def test_table__equals_the_json(shown: Shown) -> None:
    """Every row but none more, times in hours, contenders in order."""
    head, *rows = [
        [html.unescape(cell) for cell in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", shown.page.html, re.DOTALL)
    ]
    assert head[1:] == [run["title"] for run in shown.made["runs"]]
    expected = [_figures(run) for run in shown.made["runs"]]
    assert {name: cells for name, *cells in rows} == {name: [run[name] for run in expected] for name in expected[0]}
    assert len(rows) == len(expected[0])


def test_lead__tells_jobs_and_cluster(shown: Shown) -> None:
    """The sentence above the table is about the same replay."""
    lead = " ".join(re.findall(r'<p class="lead">(.*?)</p>', shown.page.html, re.DOTALL)[0].split())
    nodes = shown.made["nodes"]
    assert lead.startswith(f"{shown.made['jobs']} jobs (")
    assert f"on {len(nodes)} nodes with {sum(nodes)} GPUs" in lead
    assert f"every {shown.made['interval_s']:g} s" in lead


def test_plots__draw_a_line_for_each_contender(shown: Shown) -> None:
    """JCT, GPUs in use, jobs waiting: as many lines as runs, each of several points, each named in the legend."""
    titles = [run["title"] for run in shown.made["runs"]]
    for number in (0, 2, 3):
        plot = _plot(shown.page, number)
        lines = re.findall(r'<g class="lines"><path class="js-line" d="([^"]*)"', plot)
        assert [line.count("L") + line.count("H") > 5 for line in lines] == [True] * len(titles)
        assert [html.unescape(name) for name in re.findall(r'class="legendtext"[^>]*>(.*?)</text>', plot)] == titles


def test_bars__are_as_high_as_the_json_says(shown: Shown) -> None:
    """Mean queueing delay by size: heights in pixels are proportional to the delays."""
    delays = [
        spread["mean"]
        for run in shown.made["runs"]
        for spread in run["queueing_delay_by_gpus_s"].values()
        if spread is not None
    ]
    bars = re.findall(r'<g class="point"><path d="([^"]*)"', _plot(shown.page, 1))
    heights = [_height(bar) for bar in bars]
    assert max(heights) > 50
    assert heights == pytest.approx([delay * max(heights) / max(delays) for delay in delays], abs=0.5)


def _figures(run: dict[str, Any]) -> dict[str, str]:
    """Row names and cells of one run, from its JSON."""
    figures = {f"JCT {name} [h]": _hours(run["jct_s"], name) for name in ("mean", "p50", "p95", "p99")}
    for size, spread in run["queueing_delay_by_gpus_s"].items():
        gpus = "1 GPU" if size == "1" else f"{size} GPUs"
        figures |= {f"queueing delay {name}, {gpus} [h]": _hours(spread, name) for name in ("mean", "p95")}
    return figures | {
        "makespan [h]": f"{run['makespan_s'] / 3600:.1f}",
        "preemptions": str(run["preemptions"]),
        "GPU utilisation [%]": f"{100 * run['gpu_utilisation']:.1f}",
    }


def _hours(spread: dict[str, float] | None, name: str) -> str:
    return "-" if spread is None else f"{spread[name] / 3600:.2f}"


def _plot(page: Rendered, number: int) -> str:
    """The document from one plot to the next."""
    parts = re.split(r'<div id="plot-\d"', page.html)
    return parts[number + 1]


def _height(path: str) -> float:
    """Of a bar drawn as M left,bottom V top H right V bottom Z; a bar of no height may be drawn as a point."""
    found = re.fullmatch(r"M[\d.]+,([\d.]+)V([\d.]+)H[\d.]+V[\d.]+Z", path)
    return abs(float(found[1]) - float(found[2])) if found else 0.0
