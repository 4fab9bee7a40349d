"""The pages from a shell."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from slurmsched.cli import web
from slurmsched.errors import SlurmError
from slurmsched.observe.web.web_pages import WebPages
from slurmsched.observe.web.web_server import HttpRequest
from tests.unit.observe.web.frame_samples import frame


def test_web__serves_looks_of_the_cluster_on_this_host(run, fakes, monkeypatch):
    """The first look is there before the address is printed; every one is a dry-run; Ctrl-C ends it."""
    shown, seen = list[str](), list[bytes]()

    def once(seconds: float) -> None:
        with urllib.request.urlopen(f"{shown[0].split()[0]}queue.json", timeout=10) as answer:
            seen.append(answer.read())
        raise KeyboardInterrupt

    monkeypatch.setattr(web.time, "sleep", once)
    monkeypatch.setattr(web.click, "echo", lambda text, **_: shown.append(text))
    assert run("web", "--port", "0").code == 130
    assert shown[0].startswith("http://127.0.0.1:")
    assert b'"mode":"dry-run"' in seen[0]


def test_web__names_a_port_that_is_in_use(run, fakes):
    """Exit code 2, before Slurm is asked."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run("web", "--port", str(port))
    assert (done.code, f"127.0.0.1:{port}: cannot listen on this address: " in done.err) == (2, True)


@pytest.mark.parametrize(
    "words", [("--port", "70000"), ("--port", "http"), ("--interval", "soon"), ("--listen", "x:1")]
)
def test_web__refuses_what_it_cannot_serve(run, words):
    """Exit code 2; there is no way to another address than that of this host."""
    assert run("web", *words).code == 2


def test_refresh__keeps_the_last_look_when_slurm_is_away(capsys):
    """The pages say so, and the terminal once."""

    def away():
        raise SlurmError("slurmctld does not answer")

    pages = WebPages()
    pages.show(frame())
    failed = web.refresh(pages, away)
    assert "slurmctld does not answer; trying again" in capsys.readouterr().err
    assert (web.refresh(pages, away, failed), capsys.readouterr().err) == (failed, "")
    body = pages.answer(HttpRequest("/")).body.decode()
    assert "The last look failed: slurmctld does not answer" in body
    assert "15 pending jobs" in body
    assert web.refresh(pages, frame, failed) == ""
    assert "The last look failed" not in pages.answer(HttpRequest("/")).body.decode()
