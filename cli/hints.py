"""`hints check`: how a job's comment is understood."""

from __future__ import annotations

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import CommandGroup, Output


@click.group("hints", cls=CommandGroup)
def command() -> None:
    """Check hints that users give in `sbatch --comment`."""


@framework.examples(("slurmsched hints check 'slurmsched: preempt=yes'", "Whether the comment is understood."))
@framework.with_command(command, "check")
@click.argument("text")
def check_hint(out: Output, text: str) -> int:
    """Explain how slurmsched reads the comment TEXT.

    Exit code 2: part of TEXT is not understood.
    """
    from slurmsched.errors import InputError
    from slurmsched.model.hints import MARK, parse_hints, understood, value_text

    hints = parse_hints(text)
    found = understood(hints)
    if out.as_json:
        out.json({"hints": {key.name: str(value) for key, value in found}, "warnings": hints.warnings})
    else:
        if found:
            out.table(
                ("hint", "value", "meaning"), [(key.name, value_text(key, value), key.meaning) for key, value in found]
            )
        for warning in hints.warnings:
            out.line(f"warning: {warning}", "warning")
        if not found and not hints.warnings:
            out.line(f"no hints: nothing follows {MARK!r}")
    return InputError.exit_code if hints.warnings else 0
