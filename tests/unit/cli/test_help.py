"""The help of every command follows the rules of plain English."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from slurmsched.cli.main import cli

LONGEST = 70  # characters of the first line


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, command
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


COMMANDS = dict(_commands(cli, click.Context(cli, info_name="slurmsched")))


@pytest.mark.parametrize("path", COMMANDS)
def test_help__begins_with_one_short_sentence(path):
    """An imperative line of at most 70 characters; details follow in a paragraph of their own."""
    first = (COMMANDS[path].help or "").partition("\n\n")[0].strip()
    assert (len(first) <= LONGEST, first[-1:], first[:1].isupper()) == (True, ".", True), first
    assert first.split()[0] not in ("Tell", "How", "Which", "All", "The")


@pytest.mark.parametrize("path", COMMANDS)
def test_help__describes_every_option(path):
    """In a sentence that begins with a capital, a name or a value, and ends with a full stop."""
    options = [one for one in COMMANDS[path].params if isinstance(one, click.Option) and not one.hidden]
    assert [one.opts for one in options if not (one.help or "").rstrip().endswith((".", "..."))] == []


@pytest.mark.parametrize("word", ["goes with", "goes not", "told", "tells", "wired", "hold it against"])
def test_help__has_no_riddles(word):
    """Words of Slurm's manual in place of our own."""
    texts = {path: [command.help, *(getattr(one, "help", "") for one in command.params)]
             for path, command in COMMANDS.items()}  # fmt: skip
    assert [path for path, each in texts.items() if any(word in (text or "") for text in each)] == []


# Options that mean one thing in words that differ, or what Slurm's own command of that kind calls so.
ALIKE = {
    "--apply", "--gpu-type", "--gres-conf", "--key-file", "--kind", "--limit", "--links", "--page", "--partition",
    "--policy", "--since", "--strict", "--until", "--user", "--workers", "--nodelist", "-p", "-w",
}  # fmt: skip
BY_SLURM = {"-t"}  # a state for squeue, a time for sbatch
TWICE = {"--history", "--job"}  # days of accounting in init, a file for gittins in a replay; a filter, a mark in a plot


def test_options__mean_one_thing():
    """Whoever knows an option of one command knows it of all; a new clash is named here, or gets another name."""
    meanings: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for one in command.params:
            for name in one.opts if isinstance(one, click.Option) else ():
                if one.help != "As in replay.":
                    meanings.setdefault(name, set()).add(one.help or "")
    assert {name for name, texts in meanings.items() if len(texts) > 1} - ALIKE - BY_SLURM == TWICE
