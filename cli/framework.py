"""The parts of every command: its configuration, its options, and how it prints.

Everything that is printed is escaped by slurmsched.plain_text: names, comments and messages are written by users.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from slurmsched.errors import ConfigError, InputError
from slurmsched.passwords import without_passwords
from slurmsched.plain_text import escape_terminal, escape_terminal_json, escape_terminal_lines, replace_surrogates

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from slurmsched.config import Config
    from slurmsched.config_file import LoadedConfig


FILE = click.Path(dir_okay=False, path_type=Path)  # an option or argument that names a file
ANSWER_NO = 10  # exit code of a negative answer: it would wait, it differs, a check failed
READ = "slurmsched.settings"  # in the context of click, once they were read


def read_config_sources() -> LoadedConfig:
    """The configuration named by --config (or found, see config_path), with the source of each value."""
    from slurmsched.config_file import config_path, load_settings

    context = click.get_current_context()
    found = load_settings(config_path(context.find_root().params["config"]))
    context.meta[READ] = found
    return found


def examined() -> tuple[LoadedConfig, list[ConfigError]]:
    """As read_settings, with every fault in place of an error. Raises ConfigError for a file that cannot be read."""
    from slurmsched.config_file import config_path, examine_settings

    return examine_settings(config_path(click.get_current_context().find_root().params["config"]))


def read_config(*, plugins: bool = True) -> Config:
    """The configuration alone. plugins: also see that its plug-ins can be made, before anything is asked of Slurm."""
    tree = read_config_sources().config
    if plugins:
        from slurmsched.registry import configured

        configured(tree)
    return tree


def collect_no_garbage() -> None:
    """For a command that ends soon: looking for garbage while importing and at exit is a tenth of its time."""
    gc.disable()
    atexit.register(gc.freeze)


# Groups of commands

WHOLE = 10_000  # characters of a sentence: none is cut


class CommandGroup(click.Group):
    """A group whose help cuts no sentence. heads: of its parts, with the commands of each; {} = one part."""

    heads: Mapping[str, Sequence[str]] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, and a name that is not known is answered with the nearest one that is."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from slurmsched.registry import nearest

            near = nearest(args[0], self.list_commands(ctx))
            help_of = f"`{ctx.command_path} --help` lists them"
            raise click.UsageError(f"there is no command {args[0]!r}{near}; {help_of}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for head, names in (self.heads or {"Commands": self.list_commands(ctx)}).items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(head):
                formatter.write_dl([(name, one.get_short_help_str(WHOLE)) for name, one in found if one])


# Output: tables or JSON

STYLES = {"ok": "green", "warn": "yellow", "warning": "yellow", "fail": "red", "failed": "red"}
FACT = 10  # columns of the name of a fact
SCHEMA_VERSION = 1  # of --json; counts up when a key goes or changes its meaning, not when one is added
CUT = ("user", "partition", "account", "name")  # cells of these columns are cut where a terminal is too narrow
TEXTS = ("reason", "why", "note", "change")  # these are wrapped and never cut
BELOW = 4  # columns before a text that stands below its row
MANY = 1_000  # rows; rich takes a millisecond for each
LEAST_TEXT, LEAST_CUT = 24, 6  # columns that the former keep at the cost of the latter, and what those keep


class JobId(click.ParamType):
    """The number of one record of Slurm's. Python takes 12_3, which is a task of an array, for the number 123."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if re.fullmatch(r"[0-9]{1,18}", value) and int(value):
            return int(value)
        asked = "; `squeue -h -o %A -j JOB` or `sacct -X -o JobIDRaw -j JOB` prints it" if value[:1].isdigit() else ""
        raise click.BadParameter(f"{value!r} is not a job id; one number is needed{asked}", ctx, param)


class Output:
    """Prints to stdout. as_json: one JSON value and nothing else. color: allow it where a terminal shows it."""

    def __init__(self, *, as_json: bool = False, color: bool = True) -> None:
        self.as_json = as_json
        self.color = color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()

    def json(self, value: Any, schema: str = "") -> None:
        """The value as indented JSON; dataclasses, numpy values and paths are understood, NaN becomes null.

        schema: name of the schema that the value, a mapping, has (docs/json.md).
        """
        import orjson

        if schema:
            value = {"schema": f"slurmsched/{schema}/{SCHEMA_VERSION}", **value}
        options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
        click.echo(escape_terminal_json(_dumped(value, options)), nl=False)

    def line(self, text: str = "", style: str = "") -> None:
        """One line of text in a colour of STYLES."""
        text = escape_terminal_lines(text)
        click.echo(click.style(text, fg=STYLES[style]) if style and self.color else text)

    def notes(self, notes: Iterable[str], warnings: Iterable[str], *, plain: bool = False) -> None:
        """What to know besides a list, below it; on stderr where the list alone is wanted."""
        for kind, texts in (("note", notes), ("warning", warnings)):
            for text in texts:
                if plain:
                    complain(f"{kind}: {text}")
                else:
                    self.line(f"{kind}: {text}", "warning")

    def fact(self, name: str, text: str, style: str = "") -> None:
        """A name and what it is, in a column of its own, by which a terminal's lines are broken; piped, one line."""
        text = escape_terminal(text)
        if sys.stdout.isatty():
            width, gap = max(shutil.get_terminal_size().columns - FACT - 1, 20), "\n" + " " * (FACT + 1)
            text = gap.join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))
        self.line(f"{name:<{FACT}} {text}", style)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", noheader: bool = False
    ) -> None:
        """Rows under column names; a name that ends in ">" is right-aligned.

        Piped output, and a table of more than MANY rows, is never cut or wrapped: one line for each row.
        On a terminal the columns in CUT are shortened first, then headings are wrapped. The columns in TEXTS are
        wrapped between words and never cut; where they would be narrower than LEAST_TEXT, they are below their row.
        """
        listed_rows = list(rows)
        if not sys.stdout.isatty() or len(listed_rows) > MANY:
            click.echo("\n".join(table_lines(columns, listed_rows, title, noheader=noheader)))
            return
        from rich.console import Console

        console = Console(no_color=not self.color, highlight=False, soft_wrap=False)
        cut = _cut_widths(columns, listed_rows, console.width)
        if below := _texts_below(columns, listed_rows, cut, console.width):
            self._stacked(console, columns, listed_rows, below, title, noheader=noheader)
            return
        table = _table(columns, listed_rows, title, cut)
        if _least(columns, listed_rows) > console.width:
            table = _table([re.sub(" (?!%)", "\n", name) for name in columns], listed_rows, title, cut)
        table.show_header = not noheader
        self._rendered(console, table)

    def _rendered(self, console: Console, table: Table) -> None:
        with console.capture() as capture:
            console.print(table)
        text = capture.get() if self.color else click.unstyle(capture.get())
        click.echo("\n".join(line.rstrip() for line in text.splitlines()) if not self.color else text.rstrip("\n"))

    def _stacked(
        self, console: Console, columns: Sequence[str], rows: Sequence[Sequence[Any]], below: Sequence[int], title: str,
        *, noheader: bool,
    ) -> None:  # fmt: skip
        """A table row by row, each with its texts in lines of their own beneath it. below: places of the texts."""
        beside = [at for at in range(len(columns)) if at not in below]
        names = [columns[at].replace(" ", "\n") for at in beside]
        shown = [[row[at] for at in beside] for row in rows]
        fixed = _squeezed(names, shown, console.width)
        if not noheader:
            self._rendered(console, _table(names, [], title, {}, fixed))
        for row, cells in zip(rows, shown, strict=True):
            table = _table(names, [cells], "", {}, fixed)
            table.show_header = False
            self._rendered(console, table)
            for at in below:
                text, gap = f"{columns[at]}: {_cell(row[at])}", " " * BELOW
                for line in textwrap.wrap(text, console.width - BELOW, break_on_hyphens=False) if row[at] else ():
                    click.echo(gap + line)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str, *, noheader: bool) -> Iterator[str]:
    """The table as lines without colours, each column as wide as its widest cell."""
    texts = [] if noheader else [[name.rstrip(">") for name in columns]]
    texts += [[_cell(value) for value in row] for row in rows]
    cells = zip(columns, zip(*texts, strict=True), strict=bool(texts))
    padded = [_padded(column, right=name.endswith(">")) for name, column in cells]
    yield from [title] if title else []
    yield from ("  ".join(line).rstrip() for line in zip(*padded, strict=True))


def _padded(texts: Sequence[str], *, right: bool) -> list[str]:
    """The texts in the width of the widest, in cells of the terminal: a CJK character takes two."""
    if all(map(str.isascii, texts)):
        width = max(map(len, texts), default=0)
        return [text.rjust(width) if right else text.ljust(width) for text in texts]
    from rich.cells import cell_len

    sizes = list(map(cell_len, texts))
    gaps = [" " * (max(sizes) - size) for size in sizes]
    return [gap + text if right else text + gap for text, gap in zip(texts, gaps, strict=True)]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """The width of each column by its name, in cells of the terminal: a CJK character takes two."""
    from rich.cells import cell_len

    return {
        name: max(len(name.rstrip(">")), *(cell_len(_cell(row[at])) for row in rows), 0)
        for at, name in enumerate(columns)
    }


def _least(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Width of what is not to fold: the first column and the numbers."""
    wide = _widths(columns, rows)
    return sum(wide[name] for name in columns if name == columns[0] or name.endswith(">")) + 2 * (len(columns) - 1)


def _cut_widths(columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> dict[str, int]:
    """Widths of the columns in CUT: the widest give way until those in TEXTS have LEAST_TEXT columns."""
    wide = _widths(columns, rows)
    texts = sum(max(wide[name] - LEAST_TEXT, 0) for name in TEXTS if name in wide)
    over = sum(wide.values()) + 2 * (len(columns) - 1) - width - texts
    cut = {name: wide[name] for name in CUT if name in wide}
    while over > 0 and any(each > LEAST_CUT for each in cut.values()):
        cut[max(cut, key=lambda name: cut[name])] -= 1
        over -= 1
    return cut


def _texts_below(columns: Sequence[str], rows: Sequence[Sequence[Any]], cut: dict[str, int], width: int) -> list[int]:
    """Places of the columns in TEXTS, if they had less than LEAST_TEXT columns beside the others; else none."""
    wide = {**_widths(columns, rows), **cut}
    texts = [name for name in columns if name in TEXTS]
    least = sum(min(wide[name], LEAST_TEXT) if name in texts else wide[name] for name in columns)
    over = least + 2 * (len(columns) - 1) > width and any(wide[name] > LEAST_CUT for name in texts)
    return [at for at, name in enumerate(columns) if name in texts] if over else []


def _squeezed(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> list[int]:
    """Widths of these columns: the widest that is no number gives way until all fit."""
    from rich.cells import cell_len

    heads = [max(map(len, name.rstrip(">").split("\n"))) for name in names]
    found = [max(head, *(cell_len(_cell(row[at])) for row in rows), 0) for at, head in enumerate(heads)]
    loose = [at for at, name in enumerate(names) if not name.endswith(">")]
    while sum(found) + 2 * (len(names) - 1) > width and any(found[at] > LEAST_CUT for at in loose):
        found[max(loose, key=lambda at: found[at])] -= 1
    return found


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str, cut: Mapping[str, int], fixed: Sequence[int] = ()
) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        number = name.endswith(">")
        cuts = name in (CUT if fixed else cut)
        table.add_column(Text(name.rstrip(">")), justify="right" if number else "left", no_wrap=number or cuts,
                         overflow="ellipsis" if cuts else "fold", max_width=cut.get(name),
                         width=fixed[at] if fixed else None)  # fmt: skip
    for row in rows:
        table.add_row(*(Text(_cell(value), style=STYLES.get(str(value), "")) for value in row))
    return table


def command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with --json and --no-color; the function gets them as `out`."""
    return lambda function: click.command(name, **settings)(with_output(function))


def with_command(group: click.Group, name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """As command, within a group."""
    return lambda function: group.command(name, **settings)(with_output(function))


def examples(*pairs: tuple[str, str]) -> Callable[[click.Command], click.Command]:
    """Command lines with what they do, for --help and the manual page."""

    def add(command: click.Command) -> click.Command:
        shown = "\n".join(f"  {line}\n      {meaning}" for line, meaning in pairs)
        command.epilog = f"\b\nExamples:\n{shown}"
        command.examples = pairs  # type: ignore[attr-defined]
        return command

    return add


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --json and --no-color to a command's function, which gets an Output as `out`.

    An error in a value that an option of the command gave names that option.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option("--no-color", is_flag=True, help="Print without colours; so does the variable NO_COLOR.")
    @functools.wraps(function)
    def wrapped(*, as_json: bool, no_color: bool, **values: Any) -> Any:
        try:
            return function(out=Output(as_json=as_json, color=not no_color), **values)
        except ConfigError as error:
            if error.source or not (option := _option_text(f"--{error.key.partition('.')[0]}")):
                raise
            raise ConfigError(error.message, key=error.key, source=option) from error

    return wrapped


def _option_text(option: str) -> str:
    """The option, where the command line has it; else ""."""
    context = click.get_current_context()
    named = (one.name or "" for one in context.command.params if option in one.opts)
    return option if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in named) else ""


def command_line() -> str:
    """The command that runs, with what was given to it, to type it again."""
    context, words = click.get_current_context(), list[str]()
    for one in sorted(context.command.params, key=lambda one: isinstance(one, click.Option)):
        if context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE:
            words += _option_words(one, context.params.get(one.name or ""))
    return shlex.join([*context.command_path.split(), *words])


def _option_words(one: click.Parameter, value: Any) -> list[str]:
    """The words of a command line that give this value."""
    values = value if isinstance(value, list | tuple) else [value]
    if isinstance(one, click.Argument):
        return [str(each) for each in values]
    if isinstance(one, click.Option) and one.is_flag:
        return [max(one.opts, key=len) if value or not one.secondary_opts else one.secondary_opts[0]]
    return [word for each in values for word in (max(one.opts, key=len), str(each))]


def refuse_folder(page: Path | None) -> None:
    """Better now than after the work. Raises InputError, also for a folder in which nothing can be written."""
    if page is None:
        return
    folder = os.path.realpath(page.parent)
    if not os.path.isdir(folder):  # noqa: PTH112 - a folder above that may not be read is no error
        raise InputError("the folder does not exist; create it or name another file", source=str(page))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError("no permission to write in this folder; name another file", source=str(page))
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:  # of a folder such as /proc, or of a full disk
        why = f"no file can be written in this folder ({error.strerror}); name another file"
        raise InputError(why, source=str(page)) from None


def complain(text: str) -> None:
    """One line on stderr, about what went wrong."""
    click.echo(f"slurmsched: {escape_terminal(without_passwords(text))}", err=True)


def time_limit(value_s: float) -> str:
    """A time limit as Slurm writes it: "1-02:00:00", "30:00", "UNLIMITED"."""
    if value_s != value_s or abs(value_s) == float("inf"):
        return "UNLIMITED"
    minutes, second = divmod(round(value_s), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02}"
    return f"{f'{days}-{hour:02}' if days else hour}:{minute:02}:{second:02}"


def duration(value_s: float) -> str:
    """See slurmsched.model.durations, which is loaded here: with it comes numpy, which --help does without."""
    from slurmsched.model import durations

    return durations.duration(value_s)


def clock(time_s: float) -> str:
    """A Unix time as local time: "2026-03-01T14:05:09"; "-" when unknown."""
    if time_s != time_s:
        return "-"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time_s))


def _cell(value: Any) -> str:
    return "" if value is None else escape_terminal(str(value))


def _dumped(value: Any, options: int) -> str:
    import orjson

    try:
        return orjson.dumps(value, option=options, default=_json_default).decode()
    except TypeError:  # half a character, which only names of files can have
        return orjson.dumps(replace_surrogates(value), option=options, default=_json_default).decode()


def _json_default(value: Any) -> Any:
    if isinstance(value, frozenset | set | tuple):
        return sorted(value) if not isinstance(value, tuple) else list(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)
