"""Functions over 30 lines, and commands over 60, of which half is signature, help and imports: each says why, in a
comment above it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from slurmsched.planning.planner import Planner

ROOT = Path(__file__).parents[2]
MOST_LINES = 30  # from `def` to the last line, without decorators
COMMAND_LINES = 60
MARK = f"# Over {MOST_LINES} lines: "
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _files() -> list[Path]:
    """Every module of the product once."""
    links = (ROOT / "slurmsched" / "cli", ROOT / "slurmsched" / "db")
    found = [path for folder in ("cli", "db", "plugin", "slurmsched") for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if not any(path.is_relative_to(link) for link in links)]


def _unexplained(text: str) -> Iterator[str]:
    """Names of the long functions that lack the comment above their first decorator, or above `def`."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, FUNCTIONS) or node.end_lineno - node.lineno < _most_lines(node):
            continue
        above = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 2
        while above >= 0 and lines[above].lstrip().startswith("#") and MARK not in lines[above]:
            above -= 1
        if above < 0 or not lines[above].lstrip().startswith(MARK):
            yield f"{node.name}: {node.end_lineno - node.lineno + 1} lines"


def _most_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A command is decorated by `framework.command` or `framework.with_command`."""
    made = [each.func.attr for each in node.decorator_list
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]  # fmt: skip
    return COMMAND_LINES if {"command", "with_command"}.intersection(made) else MOST_LINES


def test_long_functions__are_found():
    """A function of more than 30 lines needs a reason above its first decorator."""
    body = "    pass\n" * MOST_LINES
    long, short = f"def long():\n{body}", f"@cache\ndef short():\n{body[9:]}"
    reason = f"{MARK}one line for each column.\n@cache\n"
    assert list(_unexplained(long + short)) == ["long: 31 lines"]
    assert list(_unexplained(reason + long)) == []
    command = f'@framework.command("long")\n{long}'
    assert (list(_unexplained(command)), list(_unexplained(command + body))) == ([], ["long: 61 lines"])


def test_long_functions__say_why_they_are_long():
    """Every one of the product."""
    files = _files()
    assert len(files) > 200
    assert {f"{path.relative_to(ROOT)}: {each}" for path in files
            for each in _unexplained(path.read_text(encoding="utf-8"))} == set()  # fmt: skip


def test_planner__steps_of_a_cycle_fit_on_one_screen():
    """Planner.plan has fewer than 40 lines."""
    lines, _ = inspect.getsourcelines(Planner.plan)
    assert len(lines) < 40
