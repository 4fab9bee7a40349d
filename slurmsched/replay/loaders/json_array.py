"""The objects of a large JSON array, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from slurmsched.replay.loaders.source import Source

CHUNK = 1 << 18  # characters read at once
LARGEST = 1 << 24  # characters of one element: more means that the file is broken


def json_records(source: Source) -> Iterator[tuple[int, Any]]:
    """Line and value of each element of the file's array. Raises InputError where it is no JSON array."""
    decoder, line, at, text = json.JSONDecoder(), 1, 0, ""
    with source.text() as file:
        while True:
            at, rest = _next(text, at), len(text)
            if at < rest and text[at] == "]":
                return
            try:
                value, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                more = file.read(CHUNK)
                if not more or rest - at > LARGEST:
                    where = line + text.count("\n", 0, at)
                    raise source.fail(f"is no JSON array of jobs: {error}", line=where) from None
                line, text, at = line + text.count("\n", 0, at), text[at:] + more, 0
                continue
            yield line + text.count("\n", 0, at), value
            line, text, at = line + text.count("\n", 0, end), text[end:], 0


def _next(text: str, at: int) -> int:
    """Place of the next element: blanks, commas and the array's own bracket passed over."""
    while at < len(text) and text[at] in " \t\r\n,[":
        at += 1
    return at
