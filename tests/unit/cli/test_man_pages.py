from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from slurmsched.cli import man_pages
from slurmsched.cli.main import COMMANDS, cli
from slurmsched.config import Config
from slurmsched.config_text import flat

DOCS = Path(__file__).parents[3] / "docs"
PAGES = man_pages.pages()


def test_pages__one_a_command():
    """slurmsched(1), slurmsched-COMMAND(1), and slurmsched.toml(5)."""
    assert set(PAGES) == {"slurmsched.1", "slurmsched.toml.5", *(f"slurmsched-{name}.1" for name in COMMANDS)}


def test_pages__are_written_by_section(tmp_path):
    """As man looks for them."""
    man_pages.write_pages(str(tmp_path))
    assert {path.parent.name for path in tmp_path.rglob("*.5")} == {"man5"}
    assert {path.name for path in (tmp_path / "man1").iterdir()} == {name for name in PAGES if name.endswith(".1")}


@pytest.mark.parametrize("name", COMMANDS)
def test_pages__have_examples_and_see_also(name):
    """An example that shows the command, and the pages of its neighbours."""
    page = PAGES[f"slurmsched-{name}.1"]
    assert f"slurmsched {name}" in page.partition(".SH EXAMPLES")[2]
    assert ".BR slurmsched.toml (5)" in page.partition(".SH SEE ALSO")[2]


def test_configuration__has_every_key():
    """slurmsched.toml(5) is made from the fields of the configuration."""
    page = PAGES["slurmsched.toml.5"].replace("\\-", "-")
    assert [key for key, _ in flat(Config()) if f".B {key.rpartition('.')[2]}\n" not in page and "." in key
            and not key.startswith(("policy.", "placement.parameters"))] == []  # fmt: skip


def _examples() -> list[str]:
    found = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        commands = command.commands.values() if isinstance(command, click.Group) else [command]
        found += [line for one in commands for line, _ in getattr(one, "examples", ())]
    return found


@pytest.mark.parametrize("line", _examples())
def test_examples__are_command_lines_that_exist(line):
    """The options and arguments of each example are those of the command."""
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0])
    words = words[words.index("slurmsched") + 1 :]
    with cli.make_context("slurmsched", words, resilient_parsing=False) as context:
        command, rest = cli, [*context._protected_args, *context.args]
        while isinstance(command, click.Group):
            _, command, rest = command.resolve_command(context, rest)
            if isinstance(command, click.Group):
                context = command.make_context(None, rest, parent=context)
                rest = [*context._protected_args, *context.args]
        command.make_context(command.name, rest, parent=context)


def test_exit_codes__are_those_of_the_document():
    """docs/exit-codes.md lists the codes of errors.py and no other."""
    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    listed = [int(line.split("|")[1]) for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert sorted(listed) == sorted(man_pages.exit_codes())


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_pages__are_good_roff():
    """groff has nothing to complain about."""
    for name, text in PAGES.items():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True, check=False
        )
        assert (name, done.stderr) == (name, "")
