"""Pages of the documentation site that are made from the program: a hook of mkdocs (`hooks:` in .ci/mkdocs.yml).

The commands come from click, the configuration from its fields, the release notes from CHANGELOG.md. None is kept in
git, so none is ever behind the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched.cli.main import HEADS, cli
from slurmsched.cli.man_pages import exit_codes
from slurmsched.config_text import allowed, sections, toml_value

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
COMMANDS, CONFIGURATION, RELEASES = "reference/commands.md", "reference/configuration.md", "release-notes.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages to those of docs/."""
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def generated_pages() -> dict[str, str]:
    """Path below docs/ -> Markdown."""
    releases = CHANGELOG.read_text(encoding="utf-8").replace("# Changelog", "# Release notes", 1)
    return {
        COMMANDS: "\n".join(_command_lines()),
        CONFIGURATION: "\n".join(_configuration_lines()),
        RELEASES: releases,
    }


def _command_lines() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "Every command with its options and examples, as `slurmsched COMMAND --help` and the manual pages have them."
    root = click.Context(cli, info_name="slurmsched", **cli.context_settings)
    yield from ("", "## Options of every command", "")
    yield from _options(root)
    for head, names in HEADS.items():
        yield from ("", f"## {head}")
        for name in names:
            command = cli.get_command(root, name)
            assert command is not None
            yield from _command(click.Context(command, info_name=name, parent=root))
    yield from ("", "## Exit codes", "", "| code | meaning |", "| --- | --- |")
    yield from (f"| {code} | {_cell(text)} |" for code, text in sorted(exit_codes().items()))
    yield ""


def _command(context: click.Context, level: int = 3) -> Iterator[str]:
    """One command; a group with each of its commands below it."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from ("", f"{'#' * level} {context.command_path}", "", "```", usage, "```", "")
    yield from (f"{' '.join(part.split())}\n" for part in (command.help or "").replace("\b", "").split("\n\n"))
    yield from _options(context)
    if pairs := getattr(command, "examples", ()):
        yield from ("", "```", *(f"{line}    # {meaning}" for line, meaning in pairs), "```")
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _command(click.Context(command.commands[name], info_name=name, parent=context), level + 1)


def _options(context: click.Context) -> Iterator[str]:
    records = [record for param in context.command.get_params(context) if (record := param.get_help_record(context))]
    if records:
        yield from ("| option | meaning |", "| --- | --- |")
        yield from (f"| {_code(names)} | {_cell(text)} |" for names, text in records)


def _configuration_lines() -> Iterator[str]:
    yield "# Configuration"
    yield ""
    yield "Every key of `slurmsched.toml` with its default, meaning and allowed values."
    yield "`slurmsched config defaults` prints the same as a file, slurmsched.toml(5) has it as a manual page."
    yield "The [admin guide](../admin-guide.md#configuration) says where the file is, and how variables override it."
    for head, meaning, entries in sections():
        yield from ("", f"## {head}", "", meaning, "", "| key | default | meaning |", "| --- | --- | --- |")
        for key, field, default in entries:
            text = str(field.description)
            values = f" Values: {allowed(field)}." if allowed(field) else ""
            shown = _code(toml_value(default)) if default is not None else "none"
            yield f"| {_code(key)} | {shown} | {_cell(f'{text}.{values}')} |"
    yield ""


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    """Text in a cell of a table: no mark of Markdown or HTML counts, but those of code."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    parts = plain.split("`")  # every other one is code
    return "`".join(part if number % 2 else part.replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
                    for number, part in enumerate(parts))  # fmt: skip
