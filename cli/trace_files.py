"""What the commands that read or write traces share: their options, reading with warnings, what they print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli.output import Output, complain, refuse_folder
from slurmsched.errors import InputError
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.replay.describe import Section
    from slurmsched.replay.trace_files import Recorded

FILE = click.Path(dir_okay=False, path_type=Path)


def reading(function: Any) -> Any:
    """The options of commands that read a trace."""
    function = click.option("--strict", is_flag=True, help="Stop at the first row that cannot be read.")(function)
    function = click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE",
                            help="A parameter of the kind, such as throughputs=FILE.")(function)  # fmt: skip
    return click.option("--kind", default="", metavar="KIND", help="Default: told by the content.")(function)


def read(source: Path, kind: str, pairs: tuple[str, ...], strict: bool) -> Recorded:
    """The trace of a file, with what was left out as warnings on stderr."""
    from slurmsched.replay.trace_files import load

    recorded = load(source, kind, dict(parameter(pair) for pair in pairs), strict=strict)
    warn(recorded)
    return recorded


def read_whole(source: Path, kind: str, pairs: tuple[str, ...], strict: bool) -> Recorded:
    """As read, for a replay, where a job holds whole GPUs: one that asked for parts of GPUs is warned about."""
    recorded = read(source, kind, pairs, strict)
    parts = int((recorded.trace.gpu_share < 1).sum())
    if parts:
        complain(f"{source}: jobs that asked for a part of a GPU get it whole: {parts:,}")
    return recorded


def parameter(pair: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE; a whole number becomes one. Raises InputError."""
    from slurmsched.errors import InputError

    name, equals, value = pair.partition("=")
    if not equals:
        raise InputError(f"--set {pair!r} is not NAME=VALUE")
    return name.replace("-", "_"), int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else value


def warn(recorded: Recorded) -> None:
    """Each warning as a line on stderr."""
    for warning in recorded.warnings:
        complain(warning)


def apart(source: Path, target: Path) -> None:
    """Raises InputError where the trace would be written over itself, or in a folder in which nothing can be."""
    refuse_folder(target)
    if target.exists() and source.exists() and target.samefile(source):
        raise InputError("is the trace that is read; name another TARGET", source=str(target))


def written(out: Output, target: Path, recorded: Recorded) -> None:
    """Say what was written."""
    from slurmsched.replay.traces import trace_digest

    trace = recorded.trace
    told = {"file": str(target.resolve()), "kind": recorded.kind, "jobs": len(trace),
            "trace_digest": trace_digest(trace), "gpu_hours": float(trace.gpu_s.sum()) / 3600,
            "warnings": recorded.warnings}  # fmt: skip
    if out.as_json:
        out.json(told)
    else:
        out.line(f"{told['file']}: {some(len(trace), 'job')}, {told['gpu_hours']:,.0f} GPU hours", "ok")


def show(out: Output, section: Section) -> None:
    """One table, numbers to the right."""
    from slurmsched.replay.trace_page import shown

    names = [section.columns[0], *(f"{name}>" for name in section.columns[1:])]
    out.line(f"{section.title}. {section.note}" if section.note else section.title)
    out.table(names, [[shown(cell) for cell in row] for row in section.rows])
    out.line()
