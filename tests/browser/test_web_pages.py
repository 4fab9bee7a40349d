"""The daemon's pages in a real browser, served as the daemon does (make test-browser)."""

from __future__ import annotations

import html
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from slurmsched.observe.web.web_pages import WebPages, slurm_duration
from slurmsched.observe.web.web_server import ServedSite, WebServer, allowed_hosts
from tests.browser.axe import findings
from tests.browser.chromium import DARK, rendered
from tests.unit.observe.web.frame_samples import EVIL, frame

pytestmark = pytest.mark.browser

PATHS = ("/", "/running", "/gpus", "/use", "/job?id=33")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pages = WebPages()
    pages.show(frame())
    server = WebServer("127.0.0.1:0", ServedSite(pages.answer, allowed_hosts("127.0.0.1:0")))
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("path", PATHS)
def test_page__renders_without_a_word_on_the_console(address: str, tmp_path: Path, path: str) -> None:
    """No error and nothing that its own security policy forbids; a hostile name is text."""
    page = rendered(address + path, tmp_path / "profile")
    assert page.console == ()
    assert "<h1>" in page.html
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)", "", page.html)


def test_queue__has_the_numbers_of_the_json(address: str, tmp_path: Path) -> None:
    """Every cell of every row."""
    page = rendered(f"{address}/", tmp_path / "profile")
    body = re.search(r"<tbody>(.*?)</tbody>", page.html, re.DOTALL)
    assert body is not None
    rows = [
        re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL)
    ]
    cells = [[html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in rows]
    jobs = orjson.loads(fetched(f"{address}/queue.json"))["jobs"]
    users = {job["job_id"]: job["user"].replace("\u202e", "\\u202e") for job in jobs}
    assert [[*row[:3], *row[4:7], row[8], *row[10:13]] for row in cells] == [
        [str(job["job_id"]), str(job["rank"]), users[job["job_id"]], job["account"], job["partition"],
         str(job["gpus"]), slurm_duration(job["waiting_s"]), job["slurm_reason"],
         f"{job['attained_gpu_s'] / 3600:.1f}", str(job["queue"])]
        for job in jobs
    ]  # fmt: skip
    assert EVIL in {job["user"] for job in jobs}


@pytest.mark.parametrize(("path", "flags"), [("/", ()), ("/gpus", ()), ("/use", (DARK,)), ("/job?id=33", ())])
def test_page__is_accessible(address: str, tmp_path: Path, path: str, flags: tuple[str, ...]) -> None:
    """axe finds nothing serious in it, with its style in place, in light or dark."""
    page = saved(address, path, tmp_path)
    assert findings(page, tmp_path, 1280, *flags) == []


def saved(address: str, path: str, folder: Path) -> Path:
    """The page as a file, with its style inside."""
    style = '<link rel="stylesheet" href="/style.css">'
    text = fetched(address + path).replace(style, f"<style>{fetched(address + '/style.css')}</style>")
    assert "<style>" in text
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    return page


def test_queue__is_sorted_and_searched_in_the_browser(address: str, tmp_path: Path) -> None:
    """By a click on a head, by what the numbers are; rows without the word are hidden, and the page says how many
    are left. On a phone's width only the table scrolls."""
    page, script = saved(address, "/", tmp_path), fetched(f"{address}/page.js")
    told = """
    [...document.querySelectorAll("thead button")].find((head) => head.textContent === "GPUs").click();
    const find = document.getElementById("find");
    find.value = "BOB";
    find.dispatchEvent(new Event("input"));
    document.title = document.documentElement.scrollWidth - innerWidth;
    """
    text = page.read_text(encoding="utf-8").replace('<script src="/page.js" defer></script>', "")
    page.write_text(f"{text}<script>{script}</script><script>{told}</script>", encoding="utf-8")
    done = rendered(page, tmp_path / "profile", 500)
    shown = re.findall(r'<tr>\s*<th scope="row"><a href="/job\?id=(\d+)"', done.html)
    jobs = {job["job_id"]: job for job in orjson.loads(fetched(f"{address}/queue.json"))["jobs"]}
    assert {jobs[int(job)]["user"] for job in shown} == {"bob"}
    assert [jobs[int(job)]["gpus"] for job in shown] == sorted(jobs[int(job)]["gpus"] for job in shown)
    assert ">5 of 15 rows</span>" in done.html
    (surplus,) = re.findall(r"<title>(-?\d+)</title>", done.html)
    assert int(surplus) <= 0
