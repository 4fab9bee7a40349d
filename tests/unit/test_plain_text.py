"""Numbers of things in words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from slurmsched.plain_text import pluralize, pluralize_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("number", "words", "told"),
    [(0, ("job",), "0 jobs"), (1, ("job",), "1 job"), (2, ("job",), "2 jobs"), (12_000, ("job",), "12,000 jobs"),
     (1, ("policy", "policies"), "1 policy"), (2, ("policy", "policies"), "2 policies"),
     (1, ("job is", "jobs are"), "1 job is")],
)  # fmt: skip
def test_some__one_has_no_s(number: int, words: tuple[str, ...], told: str) -> None:
    """Noun, and verb where there is one, go by the number."""
    assert pluralize(number, *words) == told


@pytest.mark.parametrize(
    ("number", "whole", "told"),
    [(1, 1, "1 of 1 job tells"), (1, 4, "1 of 4 jobs tells"), (2, 4, "2 of 4 jobs tell"), (0, 1, "0 of 1 job tell")],
)
def test_some_of__noun_by_the_whole_verb_by_the_part(number: int, whole: int, told: str) -> None:
    """The noun belongs to the whole, the verb to the part."""
    assert pluralize_of(number, whole, "job", "tells", "tell") == told


@pytest.mark.parametrize("folder", ["policies", "planning", "estimators", "placements", "sim/traces"])
def test_some__serves_all_notes(folder: str) -> None:
    """No text of deciding code or of a loader puts a number before "jobs" by itself, so that none says "1 jobs"."""
    texts = [(file.name, text) for file in sorted((ROOT / "slurmsched" / folder).glob("*.py"))
             for text in formatted(file)]  # fmt: skip
    assert [told for told in texts if re.search(r"\{\} ([a-z]+ )?jobs\b", told[1])] == []


def formatted(file: Path) -> list[str]:
    """The f-strings of a file, with {} for each value."""
    found = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.JoinedStr)]
    return ["".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values) for node in found]
