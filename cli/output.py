"""How commands print: tables by rich, or JSON; and the options every command has.

Whatever is printed goes through slurmsched.terminal: names, comments and messages are data of users.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from slurmsched.errors import ConfigError, InputError
from slurmsched.passwords import without_passwords
from slurmsched.terminal import harmless, harmless_json, harmless_lines, paired

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {"ok": "green", "warn": "yellow", "warning": "yellow", "fail": "red", "failed": "red"}
FACT = 10  # columns of the name of a fact
CUT = ("user", "partition", "reason", "why")


class JobId(click.ParamType):
    """The number of one record of Slurm's. Python takes 12_3, which is a task of an array, for the number 123."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if re.fullmatch(r"[0-9]{1,18}", value) and int(value):
            return int(value)
        asked = "; `squeue -h -o %A -j JOB` and `sacct -X -o JobIDRaw -j JOB` tell it" if value[:1].isdigit() else ""
        raise click.BadParameter(f"{value!r} is no job id: one number is needed{asked}", ctx, param)


class Output:
    """Prints to stdout. as_json: one JSON value and nothing else. color: allow it where a terminal shows it."""

    def __init__(self, *, as_json: bool = False, color: bool = True) -> None:
        self.as_json = as_json
        self.color = color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()

    def json(self, value: Any) -> None:
        """The value as indented JSON; dataclasses, numpy values and paths are understood, NaN becomes null."""
        import orjson

        options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
        click.echo(harmless_json(_dumped(value, options)), nl=False)

    def line(self, text: str = "", style: str = "") -> None:
        """One line of text in a colour of STYLES."""
        text = harmless_lines(text)
        click.echo(click.style(text, fg=STYLES[style]) if style and self.color else text)

    def fact(self, name: str, text: str, style: str = "") -> None:
        """A name and what it is, in a column of its own, by which a terminal's lines are broken; piped, one line."""
        text = harmless(text)
        if sys.stdout.isatty():
            left, gap = max(shutil.get_terminal_size().columns - FACT - 1, 20), "\n" + " " * (FACT + 1)
            text = gap.join(textwrap.wrap(text, left, break_long_words=False, break_on_hyphens=False))
        self.line(f"{name:<{FACT}} {text}", style)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
        """Rows under column names; a name that ends in ">" is right-aligned. Piped output is never cut or wrapped.

        On a terminal a row keeps to one line at the cost of the columns in CUT, then of heads, which break at their
        spaces; others fold.
        """
        from rich.console import Console

        told = list(rows)
        width = None if sys.stdout.isatty() else 10_000
        console = Console(no_color=not self.color, highlight=False, width=width, soft_wrap=False)
        table = _table(columns, told, title)
        if _least(columns, told) > console.width:
            table = _table([re.sub(" (?!%)", "\n", name) for name in columns], told, title)
        with console.capture() as capture:
            console.print(table)
        text = capture.get() if self.color else click.unstyle(capture.get())
        click.echo("\n".join(line.rstrip() for line in text.splitlines()) if not self.color else text.rstrip("\n"))


def _least(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Width of what is not to fold: the first column and the numbers."""
    widths = [
        max(len(name.rstrip(">")), *(len(_cell(row[at])) for row in rows), 0)
        for at, name in enumerate(columns)
        if at == 0 or name.endswith(">")
    ]
    return sum(widths) + 2 * (len(columns) - 1)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str) -> Table:
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        number = name.endswith(">")
        table.add_column(Text(name.rstrip(">")), justify="right" if number else "left", no_wrap=number,
                         overflow="fold", max_width=16 if terminal and name == "user" else None)  # fmt: skip
    for row in rows:
        cells = [Text(_cell(value), style=STYLES.get(str(value), ""), overflow="fold") for value in row]
        for cell in (cell for name, cell in zip(columns, cells, strict=True) if name in CUT):
            cell.no_wrap, cell.overflow = True, "ellipsis"
        table.add_row(*cells)
    return table


def command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with --json and --no-color; the function gets them as `out`."""
    return lambda function: click.command(name, **settings)(with_output(function))


def with_command(group: click.Group, name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """As command, within a group."""
    return lambda function: group.command(name, **settings)(with_output(function))


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --json and --no-color to a command's function, which gets an Output as `out`.

    An error in a value that an option of the command gave names that option.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option("--no-color", is_flag=True, help="No colours; the variable NO_COLOR does the same.")
    @functools.wraps(function)
    def wrapped(*, as_json: bool, no_color: bool, **values: Any) -> Any:
        try:
            return function(out=Output(as_json=as_json, color=not no_color), **values)
        except ConfigError as error:
            if error.source or not (option := _given(f"--{error.key.partition('.')[0]}")):
                raise
            raise ConfigError(error.message, key=error.key, source=option) from error

    return wrapped


def _given(option: str) -> str:
    """The option, where the command line has it; else ""."""
    context = click.get_current_context()
    named = (one.name or "" for one in context.command.params if option in one.opts)
    return option if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in named) else ""


def refuse_folder(page: Path | None) -> None:
    """Better now than after the work. Raises InputError, also for a folder in which nothing can be written."""
    if page is None:
        return
    folder = os.path.realpath(page.parent)
    if not os.path.isdir(folder):  # noqa: PTH112 - a folder above that may not be read is no error
        raise InputError("has no such folder; make it first or name another file", source=str(page))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError("nothing can be written in that folder; name another file", source=str(page))


def complain(text: str) -> None:
    """One line on stderr, about what went wrong."""
    click.echo(f"slurmsched: {harmless(without_passwords(text))}", err=True)


def seconds(value: float) -> str:
    """A duration for people, in its two largest units: "3d 4h", "1h 5m", "42s"; "-" when unknown."""
    if value != value or abs(value) == float("inf"):
        return "-"
    left, parts = round(abs(value)), list[str]()
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return ("-" if round(value) < 0 else "") + " ".join(parts[:2])


def clock(time_s: float) -> str:
    """A Unix time as local time: "2026-03-01T14:05:09"."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time_s))


def gpu_hours(gpu_s: float) -> str:
    """Attained service for people: "12.3 GPU h"."""
    return f"{gpu_s / 3600:.1f}"


def _cell(value: Any) -> str:
    return "" if value is None else harmless(str(value))


def _dumped(value: Any, options: int) -> str:
    import orjson

    try:
        return orjson.dumps(value, option=options, default=_plain).decode()
    except TypeError:  # half a character, which only names of files can have
        return orjson.dumps(paired(value), option=options, default=_plain).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset | set | tuple):
        return sorted(value) if not isinstance(value, tuple) else list(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)
