"""`db`: the ledger's schema."""

from __future__ import annotations

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import CommandGroup, Output, read_config


@click.group("db", cls=CommandGroup)
def command() -> None:
    """Manage the ledger's database."""


@framework.examples(("slurmsched db upgrade", "Create or upgrade the ledger."))
@framework.with_command(command, "upgrade")
def upgrade_ledger(out: Output) -> None:
    """Create the ledger, or upgrade its schema.

    Does nothing if the schema is up to date.
    """
    from slurmsched.db import database

    url = read_config(plugins=False).ledger.address
    revision = database.upgrade_schema(url)
    if out.as_json:
        out.json({"ledger": database.url_for_people(url), "schema": revision})
    else:
        out.line(f"{database.url_for_people(url)}: schema {revision}, up to date", "ok")
