"""The objects of a large JSON array, one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

from slurmsched.errors import InputError
from slurmsched.replay.loaders.source import Source

CHUNK = 1 << 18  # characters read at once
LARGEST = 1 << 26  # characters of one element: more means that the file is broken
BLANKS = " \t\r\n"


def json_records(source: Source) -> Iterator[tuple[int, Any]]:
    """Line and value of each element of the file's array. Raises InputError where it is no JSON array."""
    with source.text() as file:
        yield from _Text(file, source, "is no JSON array of jobs").elements()


def json_members(source: Source, listed: str, noise: re.Pattern[str]) -> Iterator[tuple[int, str, Any]]:
    """Line, name and value of each member of the file's object; of the list `listed` each element with that name.

    A file that is this list alone is read as well. noise: lines before the object, which are yielded as named "".
    Raises InputError where it is no JSON object, or `listed` is no list.
    """
    with source.text() as file:
        text = _Text(file, source, "is no JSON object with a list of jobs")
        while text.next() and (said := text.line(noise)):
            yield 0, "", said
        if text.next() == "[":
            yield from ((line, listed, value) for line, value in text.elements())
            return
        text.take("{")
        while (mark := text.next(",")) != "}":
            if mark != '"':
                raise text.broken("a name is missing")
            line, name = text.value()
            text.take(":")
            if name != listed:
                line, value = text.value()
                yield line, str(name), value
            elif text.next() == "[":
                yield from ((line, listed, value) for line, value in text.elements())
            else:
                raise text.broken(f"{listed!r} is no list")


class _Text:
    """Text of JSON that is read little by little."""

    def __init__(self, file: IO[str], source: Source, wrong: str) -> None:
        self._file, self._source, self._wrong = file, source, wrong
        self._text, self._at, self._line, self._chunk = "", 0, 1, CHUNK
        self._decoder = json.JSONDecoder()

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Line and value of each element of the array that begins here."""
        self.take("[")
        while self.next(",") != "]":
            yield self.value()
        self.take("]")

    def value(self) -> tuple[int, Any]:
        """The value that begins here, and its line."""
        self.next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > LARGEST or not self._more():
                    raise self.broken(str(error)) from None
                continue
            if end == len(self._text) and isinstance(value, int | float):  # its digits may go on
                end -= self._at
                if self._more():
                    continue
            self._chunk = CHUNK
            line = self._line + self._text.count("\n", 0, self._at)
            self._at = end
            return line, value

    def line(self, pattern: re.Pattern[str]) -> str:
        """The line that begins here if it is of this pattern; it is passed over."""
        rest, end, _ = self._text[self._at :].partition("\n")
        if not pattern.fullmatch(rest.rstrip("\r")):
            return ""
        self._at += len(rest) + len(end)
        return rest

    def next(self, passed: str = "") -> str:
        """The next character but blanks and those passed, "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in BLANKS + passed:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, mark: str) -> None:
        """Pass over a mark. Raises InputError if another character stands there."""
        if self.next() != mark:
            raise self.broken(f"expecting {mark!r}")
        self._at += 1

    def broken(self, why: str) -> InputError:
        """The error that stops reading."""
        line = self._line + self._text.count("\n", 0, self._at)
        return self._source.fail(f"{self._wrong}: {why}", line=line)

    def _more(self) -> bool:
        """Read on; more at once each time that a value is longer than what was read."""
        more = self._file.read(self._chunk)
        self._line += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :] + more, 0
        self._chunk *= 2
        return bool(more)
