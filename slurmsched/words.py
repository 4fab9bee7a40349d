"""Numbers of things in words for people: one of a thing has no s."""

from __future__ import annotations


def some(number: int, one: str, many: str = "") -> str:
    """ "1 job", "2 jobs", "12,000 jobs". many: the words for all numbers but 1, where they are not one with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def some_of(number: int, whole: int, noun: str, does: str, do: str) -> str:
    """ "1 of 4 jobs has", "3 of 4 jobs have", by number and verb."""
    return f"{number:,} of {some(whole, noun)} {does if number == 1 else do}"
