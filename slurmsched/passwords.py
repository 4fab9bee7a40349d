"""The password of the ledger's database: read from its file, and kept out of whatever people read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from slurmsched.errors import LedgerError

HIDDEN = "***"
LONGEST = 4096  # of a password file [bytes]
_SHOWN = re.compile(  # options of a URL that hold no password; the value of any other is not shown
    r"""charset | collation | unix_socket | read_default_(file|group) | (connect_|read_|write_)?timeout | mode | uri
    | host | port | ssl_(ca|capath|cert|key|cipher|check_hostname|verify_cert|verify_identity) | ssl(mode|rootcert|cert)
    | ssl(key|crl|crldir|negotiation) | ssl_m(in|ax)_protocol_version | channel_binding | gssencmode | application_name
    | target_session_attrs | passfile | password_file | client_encoding | keepalives""",
    re.IGNORECASE | re.VERBOSE,
)
_PAIR = re.compile(  # password=secret, sslpassword='a b', "passwd": "x", password%3Dsecret
    r"""((?:password|passwd|passphrase|pwd|secret|token|(?:client|server)_key)(?:["']?\s*(?:=|%3d)|["']\s*:)\s*)"""
    r"""(?:'(?:\\.|[^'\\])*(?:'|\\?\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z)|(?:\\.|[^\s&;,'")]|['"](?=\w))+)""",
    re.IGNORECASE | re.DOTALL,
)
_AFTER_SCHEME = re.compile(r"""(?<=://)[^\s'"<>]+""")
_SERVER = re.compile(r"(?:mysql|mariadb|postgres|postgresql)(?:\+\w+)?://", re.IGNORECASE)


def without_passwords(text: str, known: Iterable[str] = ()) -> str:
    """The text with *** for each password: in URLs of any form, in pairs such as password=..., and those known."""
    for word in sorted(set(known), key=len, reverse=True):
        for form in {word, quote(word, safe=""), quote_plus(word)} if word else ():
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text)
    return _PAIR.sub(rf"\1{HIDDEN}", "\n".join(map(_addresses, text.split("\n"))))


def url_without_password(url: str) -> str:
    """As without_passwords, of a text that is one URL, spaces and quotes included. What is no URL is hidden whole."""
    scheme, mark, rest = url.partition("://")
    if not mark or not re.fullmatch(r"[\w+.-]+", scheme):
        return HIDDEN
    return _PAIR.sub(rf"\1{HIDDEN}", f"{scheme}://{_address(rest)}")


def holds_password(url: str) -> bool:
    """Whether a URL has a password in it, before the host or as an option."""
    hidden = url_without_password(url)
    return hidden == HIDDEN or f":{HIDDEN}@" in hidden or bool(_PAIR.search(unquote(url)))


def _addresses(line: str) -> str:
    """A line without the passwords before a host. One for a server may hold blanks and quotes: up to the last @."""
    before, at, after = line.rpartition("@")
    if not (server := _SERVER.search(before)):
        return _AFTER_SCHEME.sub(lambda found: _address(found[0]), line)
    start, end = server.end(), len(re.split(r"""[\s'"<>]""", after, maxsplit=1)[0])
    head, tail = (_AFTER_SCHEME.sub(lambda found: _address(found[0]), part) for part in (line[:start], after[end:]))
    return head + _address(before[start:] + at + after[:end]) + tail


def _address(rest: str) -> str:
    """What stands behind :// of a URL. A password may hold every character, an @ too: it goes to the last one."""
    before, _, tail = rest.rpartition("@")
    user, *password = re.split(r":|%3[aA]", before, maxsplit=1)
    if not password:
        return _options(rest)
    if "@" in user or "?" in user + password[0]:  # in a password, or an @ in an option: who knows
        return f"{_options(user)}:{HIDDEN}@{HIDDEN}"
    return f"{user}:{HIDDEN}@{_options(tail)}"


def _options(rest: str) -> str:
    path, mark, query = rest.partition("?")
    path = re.sub(r"^([^/:\[]*):(?!\d*(?:/|$))[^/]*", rf"\1:{HIDDEN}", path)  # in the place of the port
    return path + mark + re.sub(r"[^&;]+", lambda found: _option(found[0]), query)


def _option(text: str) -> str:
    name, mark, _ = text.partition("=")
    return text if not mark or _SHOWN.fullmatch(unquote_plus(name)) else f"{name}={HIDDEN}"


def read_password(path: Path) -> str:
    """The one line of ledger.password_file. Raises LedgerError: what is wrong with which file, and what to do."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would keep us waiting
        try:
            _see_guarded(path, os.fstat(descriptor).st_mode)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(LONGEST + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        made = f"run `install -o slurmsched -m 0600 /dev/null {path}` and write the password into it"
        raise _unusable(path, f"is not there; {made}") from None
    except PermissionError:
        advice = "run slurmsched as the user slurmsched, or give the file to the user that runs it"
        raise _unusable(path, f"may not be read by this user; {advice}") from None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}; name a file with the password in it") from None
    try:
        password = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise _unusable(path, "is not UTF-8 text; write the password into it as one line") from None
    if len(content) > LONGEST:
        raise _unusable(path, f"is longer than {LONGEST} bytes; write only the password into it")
    if not password.strip():
        raise _unusable(path, "is empty; write the password into it as one line")
    if any(character in password for character in "\n\r\0"):
        raise _unusable(path, "has more than one line; write only the password into it")
    return password


def _see_guarded(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _unusable(path, "is no ordinary file; name a file with the password in it")
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        whose = "others may read or write it" if mode & stat.S_IRWXO else "its group may write it"
        raise _unusable(path, f"{whose} ({stat.filemode(mode)}); run `chmod g-w,o= {path}`")


def _unusable(path: Path, what: str) -> LedgerError:
    return LedgerError(f"ledger.password_file {path}: {what}")
