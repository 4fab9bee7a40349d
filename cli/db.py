"""`db`: the ledger's schema."""

from __future__ import annotations

import click

from slurmsched.cli import output
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config


@click.group("db", cls=Group)
def command() -> None:
    """The ledger's database."""


@output.with_command(command, "upgrade")
def upgrade(out: Output) -> None:
    """Make the ledger, or bring its schema up to this version. Does nothing if it is."""
    from slurmsched.db import engine

    url = config().ledger.address
    revision = engine.upgrade(url)
    if out.as_json:
        out.json({"ledger": engine.shown(url), "schema": revision})
    else:
        out.line(f"{engine.shown(url)}: schema {revision}, up to date", "ok")
