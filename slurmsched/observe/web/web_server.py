"""Answers GET and HEAD over HTTP from memory: few connections, short ones, nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from slurmsched.config import is_loopback
from slurmsched.errors import InputError
from slurmsched.logs import get_logger

MOST = 16  # connections at a time; more are closed at once
REQUEST_S = 10.0  # from a connection's begin to its end, whatever the other side does
LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}

log = get_logger()


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. query: after the "?". accept: its header."""

    path: str
    query: str = ""
    accept: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer to one request."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200

    @property
    def etag(self) -> str:
        return f'"{blake2b(self.body, digest_size=12).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class ServedSite:
    """answer: gives the answer to a request, or None where there is nothing of that path; from several threads. hosts:
    names by which it may be called, None = any: a page elsewhere must not read ours by a name that leads to us."""

    answer: Callable[[HttpRequest], HttpResponse | None]
    hosts: frozenset[str] | None = field(default=None)


def host_and_port(listen: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT"; an IPv6 address stands in brackets."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def allowed_hosts(listen: str, more: tuple[str, ...] = ()) -> frozenset[str] | None:
    """Names for Site.hosts: those of loopback and `more`; any where other hosts reach it and no name is given."""
    if not is_loopback(listen):
        return frozenset(name.lower() for name in more) or None
    return LOCAL | {host_and_port(listen)[0].lower()} | {name.lower() for name in more}


class WebServer:
    """Serves a site from threads of its own until closed. Raises InputError where the address cannot be had."""

    def __init__(self, listen: str, site: ServedSite) -> None:
        self.listen, self.site = listen, site
        host, port = host_and_port(listen)
        try:
            self._server = _Bounded((host, port), _handler(site), ":" in host)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on this address: {error}", source=listen) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True, name="http")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Take no more requests, and give the address back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Bounded(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], six: bool) -> None:
        self.address_family = socket.AF_INET6 if six else socket.AF_INET
        self._places = threading.BoundedSemaphore(MOST)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without the look-up of our own name in DNS, which the parent does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(REQUEST_S, _close_both_ways, (request,))
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("http.broken")  # the other side left, or was cut


def _close_both_ways(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is over


# Over 30 lines: http.server makes an object of this class for each request, so the site is bound here.
def _handler(site: ServedSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S
        error_message_format, error_content_type = "%(code)d\n", "text/plain; charset=utf-8"

        def do_GET(self) -> None:
            self._give(self._found())

        do_HEAD = do_GET  # noqa: N815

        def do_POST(self) -> None:
            self._give(HttpResponse(b"this is for reading only\n", status=405))

        do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815

        def _found(self) -> HttpResponse:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname if self.headers.get("Host") else None
            if site.hosts is not None and (name or "").lower() not in site.hosts:
                return HttpResponse(b"not known by this name; see web.hosts\n", status=421)
            parts = urlsplit(self.path)
            try:
                found = site.answer(HttpRequest(parts.path, parts.query, self.headers.get("Accept", "")))
            except Exception as error:
                log.error("http.failed", path=parts.path[:200], error=str(error), kind=type(error).__name__)
                return HttpResponse(b"this could not be made; the daemon's log says why\n", status=500)
            return found or HttpResponse(b"there is nothing here\n", status=404)

        def _give(self, answer: HttpResponse) -> None:
            known = self.headers.get("If-None-Match", "")
            same = answer.status == 200 and answer.etag in (
                part.strip().removeprefix("W/") for part in known.split(",")
            )
            self.send_response(304 if same else answer.status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            if answer.status == 405:
                self.send_header("Allow", "GET, HEAD")
            self.send_header("ETag", answer.etag)
            if not same:
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if not same and self.command != "HEAD":
                self.wfile.write(answer.body)

        def version_string(self) -> str:
            return "slurmsched"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: one line a scrape would drown what matters."""

    return Handler
