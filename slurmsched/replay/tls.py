"""TLS sockets that outlive the break of another connection: Python reports it to whoever reads or writes next.

From OpenSSL 3.4 on, a write to a peer that has gone leaves its error (EPIPE) in the thread's error queue, and CPython
(seen on 3.14.8 with OpenSSL 3.6.5) raises it without emptying the queue. The next read of any other connection of this
thread that only has to wait finds it there and fails with it. Dask keeps all its connections in one thread.
Source: ours; that the queue must be empty before each call is in OpenSSL's SSL_get_error(3).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Socket(ssl.SSLSocket):
    """A socket whose failed read or write is tried once more with the error queue empty: a break of its own shows
    again, another's does not. A send that failed so has taken nothing."""

    def read(self, *args: Any, **words: Any) -> Any:
        return _own(super().read, *args, **words)

    def send(self, *args: Any, **words: Any) -> Any:
        return _own(super().send, *args, **words)


def _own(call: Callable[..., Any], *args: Any, **words: Any) -> Any:
    try:
        return call(*args, **words)
    except (ssl.SSLError, TimeoutError):  # also that it must wait: nothing was left in the queue
        raise
    except OSError:
        empty_error_queue()
    return call(*args, **words)


def empty_error_queue() -> None:
    """Forget what is in this thread's queue: OpenSSL does so when a handshake begins. 2 ms."""
    begun = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="none")
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()


@contextmanager
def sockets() -> Iterator[None]:
    """For the body, the TLS sockets that this process makes are such."""
    before = ssl.SSLContext.sslsocket_class
    ssl.SSLContext.sslsocket_class = Socket
    try:
        yield
    finally:
        ssl.SSLContext.sslsocket_class = before


def dask_setup(_: Any) -> None:
    """What Dask calls in a worker, and in the process that watches it, where its configuration names this module under
    `preload`."""
    ssl.SSLContext.sslsocket_class = Socket
