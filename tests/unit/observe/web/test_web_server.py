from __future__ import annotations

import http.client
import socket
import threading
import time

import pytest

from slurmsched.errors import InputError
from slurmsched.observe.web import web_server as module
from slurmsched.observe.web.web_server import HttpRequest, HttpResponse, ServedSite, WebServer, allowed_hosts


def _answer(asked: HttpRequest) -> HttpResponse | None:
    if asked.path == "/broken":
        raise ZeroDivisionError("secret")
    return HttpResponse(f"{asked.path}?{asked.query}".encode()) if asked.path.startswith("/known") else None


@pytest.fixture
def served():
    server = WebServer("127.0.0.1:0", ServedSite(_answer, allowed_hosts("127.0.0.1:0")))
    yield server
    server.close()


def ask(server: WebServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        link.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        got = link.getresponse()
        return got.status, dict(got.getheaders()), got.read()
    finally:
        link.close()


def test_get__gives_the_body_with_headers_that_guard_it(served):
    """A page that may load nothing from elsewhere, be in no frame, and whose type is not guessed."""
    status, headers, body = ask(served, "/known?a=1")
    assert (status, body) == (200, b"/known?a=1")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
    assert headers["Server"] == "slurmsched"


def test_get__is_not_sent_again_where_it_is_known(served):
    """If-None-Match with the tag, weak or among others: 304 and no body; another body has another tag."""
    tag = ask(served, "/known")[1]["ETag"]
    assert ask(served, "/known", If_None_Match=f'"x", W/{tag}')[::2] == (304, b"")
    assert ask(served, "/known2", If_None_Match=tag)[0] == 200


def test_head__has_no_body(served):
    """But its length."""
    status, headers, body = ask(served, "/known", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "7", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_others__are_refused(served, method):
    """Nothing is written here."""
    status, headers, _ = ask(served, "/known", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_unknown__and_broken_paths_say_no_more_than_needed(served):
    """404; and 500 without the error's words, which are in the log."""
    assert ask(served, "/nosuch")[0] == 404
    status, _, body = ask(served, "/broken")
    assert (status, b"secret" in body) == (500, False)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost:9", 200), ("127.0.0.1", 200), ("[::1]:9811", 200), ("evil.example", 421),
     ("127.0.0.1.evil.example", 421)],
)  # fmt: skip
def test_host__another_name_that_leads_here_is_refused(served, host, expected):
    """A page of elsewhere whose name was made to mean this address reads nothing (DNS rebinding)."""
    assert ask(served, "/known", Host=host)[0] == expected


def test_hosts__by_address():
    """Loopback by its names and those given; elsewhere by those given, or any."""
    assert "proxy.site" in (allowed_hosts("127.0.0.1:1", ("Proxy.site",)) or ())
    assert allowed_hosts("0.0.0.0:1") is None
    assert allowed_hosts("0.0.0.0:1", ("a",)) == {"a"}


def test_server__refuses_an_address_that_is_taken(served):
    """With the address and why."""
    with pytest.raises(InputError, match=f"127.0.0.1:{served.port}: cannot listen on this address"):
        WebServer(f"127.0.0.1:{served.port}", ServedSite(_answer))


def test_server__gives_its_address_back(served):
    """At once, for the next."""
    port = served.port
    served.close()
    again = WebServer(f"127.0.0.1:{port}", ServedSite(_answer))
    assert ask(again, "/known")[0] == 200
    again.close()
    served.close = lambda: None  # type: ignore[method-assign]  # closed already


def test_slow_client__is_cut_and_holds_nobody_up(monkeypatch):
    """One that sends a byte now and then is cut after REQUEST_S, however patient it is; others are answered."""
    monkeypatch.setattr(module, "REQUEST_S", 4.0)
    server = WebServer("127.0.0.1:0", ServedSite(_answer))
    begun_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(b"GET /known HTTP/1.0\r\nX: ")
        assert ask(server, "/known")[0] == 200
        cut = _dripped(slow)
    server.close()
    assert cut
    assert time.monotonic() - begun_s < 25


def test_crowd__beyond_the_bound_is_turned_away(monkeypatch):
    """More connections than MOST are closed at once; the bound is free again afterwards."""
    server = WebServer("127.0.0.1:0", ServedSite(_answer))
    crowd = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(module.MOST)]
    for one in crowd:
        one.sendall(b"GET")
    _until(lambda: not _answers(server))
    for one in crowd:
        one.close()
    _until(lambda: _answers(server))
    server.close()
    assert threading.active_count() < 60


def _answers(server: WebServer) -> bool:
    try:
        return ask(server, "/known")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _until(true) -> None:
    end_s = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def _dripped(link: socket.socket) -> bool:
    """Whether the other side closed while we sent a byte every 0.1 s."""
    for _ in range(200):
        try:
            link.sendall(b"a")
            link.settimeout(0.1)
            if link.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False
