"""Names of modules and classes: one name, one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from slurmsched.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "db", "slurmsched")
RIDDLES = ("left", "told", "lots", "stock", "wants", "acts", "cards")
COMMAND_FILES = {ROOT / "cli" / f"{name}.py" for name in COMMANDS}  # called as the user types them


def _files() -> list[Path]:
    """Every module of the product once; migrations are called by Alembic."""
    links = (ROOT / "slurmsched" / "cli", ROOT / "slurmsched" / "db")
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return [
        path
        for path in found
        if not any(path.is_relative_to(link) for link in links) and "migrations" not in path.parts
    ]


FILES = _files()


def _places(named: list[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that occur more than once, with the files."""
    places = defaultdict(list)
    for name, path in named:
        places[name].append(str(path.relative_to(ROOT)))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_modules__have_names_of_their_own():
    """So that `planner` or `journal` means one file. Commands are called as the user types them."""
    assert len(FILES) > 200
    assert _places([(path.stem, path) for path in FILES if path.stem != "__init__" and path not in COMMAND_FILES]) == {}


def test_classes__have_names_of_their_own():
    """Public ones, in the whole tree."""
    classes = [(node.name, path) for path in FILES for node in ast.parse(path.read_text(encoding="utf-8")).body
               if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]  # fmt: skip
    assert len(classes) > 200
    assert _places(classes) == {}


@pytest.mark.parametrize("word", RIDDLES)
def test_modules__are_named_in_words_of_the_field(word):
    """Words that mean several things here, or nothing outside."""
    stems = [path.stem for path in FILES if path not in COMMAND_FILES]
    assert [stem for stem in stems if re.search(rf"(^|_){word}(_|$)", stem)] == []


IN_JSON = {"QueuePosition.told"}  # keys of what the web pages answer


def _variables(path: Path) -> list[str]:
    """Names that are assigned in this module, and those of its parameters; fields as Class.field."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    fields = {part.target: f"{node.name}.{part.target.id}" for node in classes for part in node.body
              if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)}  # fmt: skip
    stored = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return [fields.get(node, node.id) for node in stored] + [node.arg for node in nodes if isinstance(node, ast.arg)]


def test_variables__are_named_in_words_of_the_field():
    """Locals, parameters and fields."""
    found = {f"{path.stem}: {name}" for path in FILES for name in set(_variables(path)) - IN_JSON
             if name.rpartition(".")[2] in RIDDLES}  # fmt: skip
    assert found == set()


def test_tests__say_their_rule():
    """Each test is named after a unit and its behaviour, and its docstring has the rule."""
    tests = [(path, node) for path in sorted((ROOT / "tests").rglob("test_*.py"))
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")]  # fmt: skip
    assert len(tests) > 2_000
    assert [f"{path.relative_to(ROOT)}: {node.name}" for path, node in tests
            if "__" not in node.name or not ast.get_docstring(node)] == []  # fmt: skip
