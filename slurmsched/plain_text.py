"""Text for people: plurals, and text of users and Slurm that is safe to print on a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def pluralize(number: int, one: str, many: str = "") -> str:
    """ "1 job", "2 jobs", "12,000 jobs". many: the words for all numbers but 1, where they are not one with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def pluralize_of(number: int, whole: int, noun: str, does: str, do: str) -> str:
    """ "1 of 4 jobs has", "3 of 4 jobs have", by number and verb."""
    return f"{number:,} of {pluralize(whole, noun)} {does if number == 1 else do}"


# Safe text for terminals.

# C0 and C1 controls (ANSI escapes begin with one), what turns the reading direction or ends a line (UAX #9, UAX #14),
# invisible tags, and halves of a character, which cannot be printed at all.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_terminal(text: str) -> str:
    """The text on one line, with an escape for every character that does something else than being seen."""
    return _STEERING.sub(_escape, text)


def escape_terminal_lines(text: str) -> str:
    """As harmless, of a text that has lines of its own."""
    return "\n".join(map(escape_terminal, text.split("\n")))


def escape_terminal_json(text: str) -> str:
    """JSON with the same meaning, in which those characters are JSON's own escapes; its lines stay lines."""
    return "\n".join(_STEERING.sub(_json_escape, line) for line in text.split("\n"))


def replace_surrogates(value: Any) -> Any:
    """The value, its mappings and lists, with a question mark for every half of a character, which JSON cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return [replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2]):04x}" for i in range(0, len(units), 2))
