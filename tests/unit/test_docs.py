"""What the pages say is there: every command they show can be typed as shown, every page is in the site's contents."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from pydantic import BaseModel

from slurmsched.cli.main import COMMANDS, cli
from slurmsched.config import Config

ROOT = Path(__file__).parents[2]
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")})
MADE = runpy.run_path(str(ROOT / "packaging" / "site_reference.py"))["generated_pages"]()
_FENCE = re.compile(r"^(?P<mark>```|~~~)[^\n]*\n(?P<body>.*?)^(?P=mark)", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_CALL = re.compile(r"(?:(?P<before>\S+)\s+|^\s*|\S*/|\()slurmsched (?=[a-z-])")
_NO_CALL = frozenset(("user", "-u", "start", "stop", "restart", "enable", "disable", "--now", "status", "#"))
_GRAMMAR = re.compile(r"\[|\.\.\.|\||NAME=|<")  # a synopsis, not a command to type
_END = re.compile(r"\s+(?:>|2>|\||&&|;|#|\\$).*")


def commands(page: Path) -> Iterator[str]:
    """Each command of ours that a page shows, without what a shell would make of the rest of its line."""
    text = page.read_text(encoding="utf-8")
    blocks = [match["body"] for match in _FENCE.finditer(text)]
    blocks += [match[0] for match in _INDENTED.finditer(_FENCE.sub("", text))]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *_SPAN.findall(text)]:
        calls = [match for match in _CALL.finditer(line) if match["before"] not in _NO_CALL]
        if calls:
            shown = _END.sub("", line[calls[-1].end() :])
            if not _GRAMMAR.search(shown):
                yield shown


SHOWN = sorted({(page.relative_to(ROOT).as_posix(), shown) for page in PAGES for shown in commands(page)})


@pytest.mark.parametrize(("page", "shown"), SHOWN, ids=[f"{page}: {shown}" for page, shown in SHOWN])
def test_page__shows_commands_that_exist(page: str, shown: str) -> None:
    """The command, its options and the values of their choices are known to the command line."""
    parsed(cli, shlex.split(shown))


def parsed(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Parse words as the command line would, all the way down; arguments may be left out, as in a sentence."""
    try:
        context = command.make_context(command.name or "slurmsched", list(words), parent)
    except click.MissingParameter:
        return
    except click.BadParameter as error:
        if isinstance(error.param and error.param.type, click.Path | click.File):
            return  # a file of the reader's own
        raise
    if isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        below = command.get_command(context, rest[0])
        assert below is not None, f"no command {rest[0]!r}"
        parsed(below, rest[1:], context)


def test_pages__are_all_in_the_contents_of_the_site() -> None:
    """A page that nobody can find is as good as none."""
    contents = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.parent != ROOT}
    assert pages | set(MADE) == set(_leaves(contents))
    assert pages & set(MADE) == set()


def test_contents__have_few_heads() -> None:
    """A reader finds a page by its purpose: to learn, to do, to look up, to understand."""
    contents = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    heads = [next(iter(each)) for each in contents]
    assert heads == ["Start", "Tutorial", "Tasks", "Reference", "Concepts", "Policies"]


def test_made_pages__have_every_command_and_every_key() -> None:
    """The reference of the site is made from click and from the fields of the configuration."""
    commands, configuration = MADE["reference/commands.md"], MADE["reference/configuration.md"]
    assert [name for name in COMMANDS if f"### slurmsched {name}\n" not in commands] == []
    assert "#### slurmsched trace describe\n" in commands
    for section, field in Config.model_fields.items():
        assert f"## [{section}]\n" in configuration or f"| `{section}` |" in configuration
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and section != "policy":
            part = configuration.partition(f"## [{section}]\n")[2].partition("\n## ")[0]
            assert [key for key in field.annotation.model_fields if f"| `{key}` |" not in part] == []


@pytest.mark.parametrize("page", MADE)
def test_made_pages__have_whole_tables(page: str) -> None:
    """Each row has as many cells as its head: no text of the program is taken for a mark of Markdown."""
    for table in re.findall(r"(?:^\|.*\|\n)+", MADE[page], re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(cells) == 1, table


def _leaves(contents: object) -> Iterator[str]:
    if isinstance(contents, str):
        yield contents
    elif isinstance(contents, dict):
        yield from (leaf for part in contents.values() for leaf in _leaves(part))
    elif isinstance(contents, list):
        yield from (leaf for part in contents for leaf in _leaves(part))
