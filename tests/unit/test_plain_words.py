"""Docstrings are read by people who do not know the code: their sentences are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = 25
# A sentence ends at a full stop, a colon, a semicolon, an empty line, an item of a list, or before a field.
END = re.compile(r"(?<=[.!?])\s+|[:;]\s+|\n\s*\n|\n\s*- |\n\s*(?=\w+\*?(?:, \w+\*?)*: )")
# Not sentences.
EXEMPT = {
    "plugin/job/slurmsched_job.py": "an example of a program",
    "slurmsched/resources/feature_constraints.py": "a grammar",
}
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _files() -> list[Path]:
    """Every module of the product once."""
    links = (ROOT / "slurmsched" / "cli", ROOT / "slurmsched" / "db")
    found = [path for folder in ("cli", "db", "plugin", "slurmsched") for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if not any(path.is_relative_to(link) for link in links)]


def _long_sentences(text: str, *, of_module: bool = True) -> Iterator[str]:
    """Sentences of the docstrings of a module's text that have more than MOST_WORDS words."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, WITH_DOCSTRING) and (of_module or not isinstance(node, ast.Module)):
            for sentence in END.split(ast.get_docstring(node) or ""):
                words = sentence.split()
                if len(words) > MOST_WORDS:
                    yield f"{len(words)} words: {' '.join(words)}"


WORDS = " ".join(["word"] * 20)


@pytest.mark.parametrize(
    ("docstring", "long"),
    [
        (f"{WORDS}. {WORDS}.", 0),
        (f"{WORDS}: {WORDS}; {WORDS}.", 0),
        (f"{WORDS}\n\n- {WORDS}\n- {WORDS}", 0),
        (f"{WORDS}\nfirst, second: {WORDS}\nthird: {WORDS}", 0),
        (f"{WORDS}, {WORDS}.", 1),
        (f"{WORDS}\n{WORDS}. {WORDS}, and {WORDS}.", 2),
    ],
)
def test_long_sentences__are_found(docstring: str, long: int):
    """Lists and fields count by item."""
    found = list(_long_sentences(f'def one():\n    """{docstring}"""\n'))
    assert len(found) == long


def test_docstrings__have_no_sentence_over_25_words():
    """Longer ones become two sentences, or a list. Grammars and examples in a module's docstring are exempt."""
    files = _files()
    assert len(files) > 200
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    found = {f"{name}: {each}" for name, text in texts.items()
             for each in _long_sentences(text, of_module=name not in EXEMPT)}  # fmt: skip
    assert found == set()
    assert texts.keys() >= EXEMPT.keys()
