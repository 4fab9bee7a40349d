"""The page of `slurmsched compare` in a real browser (make test-browser)."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slurmsched.model.trace import RecordedTrace
from slurmsched.sim.traces.trace_io import sample_trace, save_trace
from tests.browser.axe import findings
from tests.browser.chromium import DARK, Rendered, rendered

pytestmark = pytest.mark.browser

POLICIES = ("fifo", "srtf", "discretized-las:thresholds_gpu_s=[3600]")


class Shown(NamedTuple):
    """What `slurmsched compare --json` printed, and its page in the browser. path: of the page."""

    made: dict[str, Any]
    page: Rendered
    path: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """120 jobs of Philly, of nine users, under three policies."""
    folder = tmp_path_factory.mktemp("compare")
    trace, page = sample_trace().first(120), folder / "page.html"
    save_trace(folder / "trace.csv", RecordedTrace(trace.with_columns(user=[f"user{job % 9}" for job in trace.job_id])))
    words = [word for policy in POLICIES for word in ("--policy", policy)]
    command = [sys.executable, "-m", "slurmsched.cli.main", "compare", "trace.csv", "--cluster", "2x8", *words,
               "--workers", "1", "--page", str(page), "--json"]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300, cwd=folder)
    return Shown(json.loads(done.stdout), rendered(page, folder / "profile"), page)


def test_page__tells_the_console_nothing(shown: Shown) -> None:
    """No error, no warning."""
    assert shown.page.console == ()


def test_tables__equal_the_json(shown: Shown) -> None:
    """Every number of the two tables, to the last digit, policies in order."""
    times, sizes, *_ = _tables(shown.page.html)
    by_size = [{name: spread and spread["mean"] for name, spread in run["wait_by_gpus_s"].items()}
               for run in shown.made["runs"]]  # fmt: skip
    fair = [run["fairness"] for run in shown.made["runs"]]
    names = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s", "makespan_s", "preemptions",
             "lost_gpu_h", "gpu_utilisation")  # fmt: skip
    assert times == [(run["policy"], [run[name] for name in names]) for run in shown.made["runs"]]
    assert sizes == [
        (run["policy"], [*waits.values(), each["jain_slowdown"], each["mean_rho"], each["max_rho"], run["jobs"],
                         run["wall_s"]]) for run, waits, each in zip(shown.made["runs"], by_size, fair, strict=True)
    ]  # fmt: skip


def test_tables__name_who_gains_and_loses(shown: Shown) -> None:
    """As the JSON does, most gained first, for every policy but the first."""
    names = ("jobs", "gpu_hours", "wait_before_s", "wait_after_s", "change_s")
    expected = [
        [(change["tenant"], [change[name] for name in names]) for change in (*run["gain"], *reversed(run["lose"]))]
        for run in shown.made["runs"][1:]
    ]
    assert _tables(shown.page.html)[2:] == expected
    assert min(len(rows) for rows in expected) > 0


def test_plots__draw_a_line_for_each_policy(shown: Shown) -> None:
    """JCT, wait, GPUs in use, jobs waiting, fairness: each of several points, each named in the legend."""
    for number in (0, 1, 3, 4, 5):
        plot = _plot(shown.page, number)
        lines = re.findall(r'<g class="lines"><path class="js-line" d="([^"]*)"', plot)
        assert [line.count("L") + line.count("H") + line.count("V") > 5 for line in lines] == [True] * len(POLICIES)
        assert (
            tuple(html.unescape(name) for name in re.findall(r'class="legendtext"[^>]*>(.*?)</text>', plot)) == POLICIES
        )


def test_gantts__draw_an_image_for_each_policy(shown: Shown) -> None:
    """The image is there, with a legend of the sizes, and says how many runs it shows."""
    for number, run in enumerate(shown.made["runs"], 6):
        plot = _plot(shown.page, number)
        assert len(re.findall(r"<image [^>]*href=\"data:image/png", plot)) == 1
        assert "1 GPU" in re.findall(r'class="legendtext"[^>]*>(.*?)</text>', plot)
        assert f"{run['jobs'] + run['preemptions']:,} runs on 16 GPUs." in shown.page.html


def test_gantts__name_the_job_under_the_pointer(shown: Shown, tmp_path: Path) -> None:
    """A GPU, a time and a job of the trace, in the line below the chart."""
    told = """
    const chart = document.getElementById("plot-6"), box = chart.getBoundingClientRect();
    const {l, t, h} = chart._fullLayout._size;
    chart.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + l + 3, clientY: box.top + t + h - 3}));
    document.title = chart.closest("figure").querySelector("output").textContent;
    """
    page = _with_script(shown, tmp_path, f'addEventListener("load", () => {{ {told} }})')
    (line,) = re.findall(r"<title>(.*?)</title>", page.html)
    assert re.fullmatch(r"GPU 0, 0\.\d\d (h|days): job \d+", line)


def test_plots__follow_the_theme_and_print_light(shown: Shown, tmp_path: Path) -> None:
    """The line of fifo is light on a dark screen, dark on paper, and light again after printing."""
    told = """
    const lines = [], look = () => lines.push(document.querySelector("#plot-0 .js-line").style.stroke);
    look();
    for (const name of ["beforeprint", "afterprint"]) { dispatchEvent(new Event(name)); look(); }
    document.title = lines.join(" ");
    """
    page = _with_script(shown, tmp_path, f'addEventListener("load", () => {{ {told} }})', 1280, DARK)
    (colours,) = re.findall(r"<title>(.*?)</title>", page.html)
    light, dark = "rgb(26, 26, 26)", "rgb(232, 232, 232)"
    assert colours == f"{dark} {light} {dark}"


def test_conclusion__names_the_best_and_the_command(shown: Shown) -> None:
    """As the JSON has it; the best figures are marked, for all readers."""
    told = shown.made["traces"][0]["conclusion"]
    listed = re.search(r'<ul class="conclusion".*?</ul>', shown.page.html, re.DOTALL)
    assert listed is not None
    assert [html.unescape(text) for text in re.findall(r"<li>(.*?)</li>", listed[0])] == told
    assert html.unescape(re.findall(r"<pre[^>]*><code>(.*?)</code>", shown.page.html)[0]) == shown.made["command"]
    best = re.findall(r'class="best">([^<]*)<span class="sr"> best</span>', shown.page.html)
    assert f"{min(run['avg_wait_s'] for run in shown.made['runs']) / 3600:,.2f}" in best


def test_heads__sort_their_table(shown: Shown, tmp_path: Path) -> None:
    """A click sorts rows by what the numbers are, a second one the other way round; assistive programs are told."""
    for clicks, direction in ((1, "ascending"), (2, "descending")):
        found = _with_script(shown, tmp_path, "heads[1].click();" * clicks)
        rows = _tables(found.html)[0]
        by_jct = sorted(shown.made["runs"], key=lambda run: run["avg_jct_s"], reverse=clicks == 2)
        assert [name for name, _ in rows] == [run["policy"] for run in by_jct]
        assert re.findall(r'aria-sort="(.*?)"', found.html) == [direction]


def test_page__is_accessible(shown: Shown, tmp_path: Path) -> None:
    """axe finds nothing serious."""
    assert findings(shown.path, tmp_path) == []


@pytest.mark.parametrize("width", [1280, 500])
def test_page__fits_its_window(shown: Shown, tmp_path: Path, width: int) -> None:
    """Only tables scroll sideways, each in its own box: on a desk, and about as narrow as a phone."""
    told = "document.title = document.documentElement.scrollWidth - innerWidth"
    page = _with_script(shown, tmp_path, f'addEventListener("load", () => {{ {told} }})', width)
    (surplus,) = re.findall(r"<title>(-?\d+)</title>", page.html)
    assert int(surplus) <= 0


def _with_script(shown: Shown, folder: Path, script: str, width: int = 1280, *flags: str) -> Rendered:
    """The page with a script of ours at its end. `heads`: the buttons of all tables."""
    copy = folder / "copy.html"
    heads = 'const heads = document.querySelectorAll("thead button");'
    copy.write_text(f"{shown.path.read_text(encoding='utf-8')}<script>{heads}{script}</script>", encoding="utf-8")
    return rendered(copy, folder / "profile", width, 0, *flags)


def _tables(page: str) -> list[list[tuple[str, list[float | None]]]]:
    """Of each table its rows: name, and the values the cells are sorted by."""
    values = re.compile(r'<td data-value="(.*?)"')
    return [
        [(html.unescape(name), [float(value) if value else None for value in values.findall(row)])
         for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
         for name in re.findall(r'<th scope="row">(.*?)</th>', row)]
        for body in re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    ]  # fmt: skip


def _plot(page: Rendered, number: int) -> str:
    """The document from one plot to the next."""
    parts = re.split(r'<div id="plot-\d+"', page.html)
    return parts[number + 1]
