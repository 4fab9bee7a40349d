"""The daemon's pages in a real browser, served as the daemon does (make test-browser)."""

from __future__ import annotations

import html
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from slurmsched.web.pages import Pages
from slurmsched.web.server import Server, Site, allowed_hosts
from tests.browser.axe import findings
from tests.browser.chromium import rendered
from tests.unit.web.made_up import EVIL, frame

pytestmark = pytest.mark.browser

PATHS = ("/", "/gpus", "/job?id=33")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pages = Pages()
    pages.show(frame())
    server = Server("127.0.0.1:0", Site(pages.answer, allowed_hosts("127.0.0.1:0")))
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
    assert [row[:9] for row in cells] == [
        [str(job["rank"]), str(job["job_id"]), users[job["job_id"]], job["partition"], str(job["gpus"]),
         f"{job['attained_gpu_s'] / 3600:.1f}", str(job["queue"]), str(job["lever_now"]), str(job["lever_wanted"])]
        for job in jobs
    ]  # fmt: skip
    assert EVIL in {job["user"] for job in jobs}


@pytest.mark.parametrize("path", PATHS)
def test_page__is_accessible(address: str, tmp_path: Path, path: str) -> None:
    """axe finds nothing serious in it, with its style in place."""
    text = fetched(address + path).replace(
        '<link rel="stylesheet" href="/style.css">', f"<style>{fetched(address + '/style.css')}</style>"
    )
    assert "<style>" in text
    page = tmp_path / "page.html"
    page.write_text(text, encoding="utf-8")
    assert findings(page, tmp_path) == []
