"""Groups of commands whose help tells what each does in a whole sentence, under heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

WHOLE = 10_000  # characters of a sentence: none is cut


class Group(click.Group):
    """A group whose help cuts no sentence. heads: of its parts, with the commands of each; {} = one part."""

    heads: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for head, names in (self.heads or {"Commands": self.list_commands(ctx)}).items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(head):
                formatter.write_dl([(name, one.get_short_help_str(WHOLE)) for name, one in found if one])
