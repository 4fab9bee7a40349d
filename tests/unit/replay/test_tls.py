"""A connection is not broken by another's break in the same thread."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from slurmsched.replay import tls

Pair = tuple[ssl.SSLSocket, ssl.SSLSocket]


def context(side: int) -> ssl.SSLContext:
    """For a connection without certificates, which only TLS 1.2 has."""
    made = ssl.SSLContext(side)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return made


@contextlib.contextmanager
def connected() -> Iterator[Pair]:
    """Both ends of a TLS connection that do not wait."""
    ours, theirs = socket.socketpair()
    found: list[ssl.SSLSocket] = []
    server = context(ssl.PROTOCOL_TLS_SERVER)
    thread = threading.Thread(target=lambda: found.append(server.wrap_socket(ours, server_side=True)))
    thread.start()
    client = context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(theirs)
    thread.join()
    for end in (found[0], client):
        end.setblocking(False)
    with found[0], client:
        yield found[0], client


def broken() -> OSError:
    """What a write says to a peer that has gone."""
    with connected() as (ours, theirs):
        theirs.close()
        with pytest.raises(OSError) as caught:
            for _ in range(9):
                ours.send(b"x")
    return caught.value


def test_socket__outlives_the_break_of_another() -> None:
    """It waits, reads and writes on after three breaks beside it."""
    with tls.sockets(), connected() as (ours, theirs):
        for turn in range(3):
            broken()
            with pytest.raises(ssl.SSLWantReadError):
                ours.recv(9)
            broken()
            assert theirs.send(bytes([turn])) == 1
            broken()
            assert ours.recv_into(room := bytearray(9)) == 1
            assert room[0] == turn


def test_socket__still_tells_of_its_own_break() -> None:
    """The second try fails as the first did."""
    with tls.sockets():
        assert isinstance(broken(), OSError) and not isinstance(broken(), ssl.SSLWantWriteError)


class Failing:
    """Fails so many times with an error of the system, then returns what it was given."""

    def __init__(self, times: int) -> None:
        self.times, self.calls = times, 0

    def __call__(self, *args: Any, **words: Any) -> Any:
        self.calls += 1
        if self.calls <= self.times:
            raise BrokenPipeError(32, "Broken pipe")
        return args, words


def test_own__tries_once_more() -> None:
    """With the same arguments; a second error is its own."""
    assert tls._own(Failing(1), b"x", flags=0) == ((b"x",), {"flags": 0})
    twice = Failing(2)
    with pytest.raises(BrokenPipeError):
        tls._own(twice)
    assert twice.calls == 2


@pytest.mark.parametrize("error", [ssl.SSLWantReadError, TimeoutError])
def test_own__leaves_errors_of_tls_and_of_time_alone(error: type[OSError]) -> None:
    """That it must wait, or has waited long enough, is no break, and no reason to try again."""
    calls = []

    def waiting() -> None:
        calls.append(1)
        raise error

    with pytest.raises(error):
        tls._own(waiting)
    assert len(calls) == 1


def test_sockets__are_for_the_body_only() -> None:
    """Also when it fails."""
    before = ssl.SSLContext.sslsocket_class
    with pytest.raises(KeyError), tls.sockets():
        assert ssl.SSLContext.sslsocket_class is tls.Socket
        raise KeyError
    assert ssl.SSLContext.sslsocket_class is before


def test_dask_setup__is_for_the_whole_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a worker."""
    monkeypatch.setattr(ssl.SSLContext, "sslsocket_class", ssl.SSLSocket)
    tls.dask_setup(None)
    assert ssl.SSLContext.sslsocket_class is tls.Socket
