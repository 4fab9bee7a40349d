"""The pictures of the pages in docs: python -m tests.browser.page_pictures docs (make pictures)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from slurmsched.logs import configure
from slurmsched.model.trace import RecordedTrace
from slurmsched.observe.report.report_figures import report_figures
from slurmsched.observe.report.report_page import report_page
from slurmsched.observe.web.web_pages import WebPages
from slurmsched.observe.web.web_server import ServedSite, WebServer, allowed_hosts
from slurmsched.sim.experiments.comparison import ComparisonCase, PolicyComparison, play_case
from slurmsched.sim.experiments.comparison_page import comparison_html
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.traces.trace_io import sample_trace
from tests.browser.chromium import DARK, pictured
from tests.browser.picture_site import NOW_S, picture_frame
from tests.unit.observe.report.report_samples import material

POLICIES = ("fifo", "easy", "srtf", "discretized-las")
MOST_BYTES = 150_000  # of a picture


def write_web_pictures(folder: Path, profile: Path) -> None:
    """The queue, and the use of a day."""
    pages = WebPages()
    for look in range(144, -1, -1):
        pages.show(picture_frame(NOW_S - 600 * look))
    server = WebServer("127.0.0.1:0", ServedSite(pages.answer, allowed_hosts("127.0.0.1:0")))
    try:
        address = f"http://127.0.0.1:{server.port}"
        pictured(f"{address}/", folder / "web.webp", profile, 1500, 760)
        pictured(f"{address}/gpus", folder / "web-gpus.webp", profile, 1000, 900)
        pictured(f"{address}/use", folder / "web-use.webp", profile, 1200, 900, DARK)
    finally:
        server.close()


def write_report_picture(folder: Path, profile: Path) -> None:
    """The head of a report of ten days."""
    of, page = material(), profile / "report.html"
    page.write_text(report_page(of, report_figures(of)), encoding="utf-8")
    pictured(page, folder / "report.webp", profile, 1280, 860)


def write_compare_picture(folder: Path, profile: Path) -> None:
    """The head of a comparison of four policies on the trace that comes with slurmsched, as if it had users."""
    trace = sample_trace()
    trace = trace.with_columns(user=[f"user{job % 9}" for job in trace.job_id])
    made = [play_case(trace, ComparisonCase(0, ReplayRequest(policy=name, cluster="4x8")), lambda ended: None)
            for name in POLICIES]  # fmt: skip
    compared = PolicyComparison("history.parquet", RecordedTrace(trace, "parquet", NOW_S), made)
    words = " ".join(f"--policy {name}" for name in POLICIES)
    page, command = (
        profile / "compare.html",
        f"slurmsched compare history.parquet --cluster 4x8 {words} --page compare.html",
    )
    page.write_text(comparison_html([compared], 0, command, complete=True), encoding="utf-8")
    pictured(page, folder / "compare.webp", profile, 1280, 1440)


if __name__ == "__main__":
    configure("warning")
    docs = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        for write in (write_web_pictures, write_report_picture, write_compare_picture):
            write(docs, Path(scratch))
    for name in ("web", "web-gpus", "web-use", "report", "compare"):
        size = (docs / f"{name}.webp").stat().st_size
        print(f"docs/{name}.webp: {size:,} bytes{', which is too much' if size > MOST_BYTES else ''}")
