"""`config`: check, show and print the configuration."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output
from slurmsched.cli.settings import settings
from slurmsched.passwords import url_without_password, without_passwords

if TYPE_CHECKING:
    from slurmsched.config import Config


@click.group("config", cls=Group)
def command() -> None:
    """Check, show or print the configuration."""


@output.with_command(command, "check")
def check(out: Output) -> None:
    """Check file, variables and policy parameters. Exit code 2 if something is wrong."""
    found = settings()
    warnings = judged(found.config)
    where = str(found.path or "built-in defaults")
    if out.as_json:
        out.json({"source": where, "ok": True, "warnings": warnings})
        return
    for warning in warnings:
        out.line(f"warning: {warning}", "warning")
    out.line(f"{where}: ok", "ok")


@output.with_command(command, "show")
def show(out: Output) -> None:
    """Show the value in force of every key, and where it comes from."""
    from slurmsched.config_text import flat, toml_value

    found = settings()
    rows = [(key, _masked(key, value), found.source(key)) for key, value in flat(found.config)]
    if out.as_json:
        out.json([{"key": key, "value": value, "source": source} for key, value, source in rows])
    else:
        out.table(("key", "value", "from"), [(key, toml_value(value), source) for key, value, source in rows])


@output.with_command(command, "defaults")
def defaults(out: Output) -> None:
    """Print a commented configuration file with every default."""
    from slurmsched.config import Config
    from slurmsched.config_text import default_toml

    if out.as_json:
        out.json(Config().model_dump(mode="json"))
    else:
        click.echo(default_toml(), nl=False)


def _masked(key: str, value: Any) -> Any:
    """The value without a database's password."""
    if key == "ledger.url":
        return url_without_password(value)
    return without_passwords(value) if isinstance(value, str) else value


def judged(config: Config) -> list[str]:
    """What is allowed but will surprise. Raises ConfigError for a policy or estimator that cannot be made."""
    from slurmsched.planning.planner import Planner

    Planner.from_config(config)
    _check_ledger(config.ledger.address)
    warnings = []
    if config.slurm.bin_dir and not shutil.which("squeue", path=config.slurm.bin_dir):
        warnings.append(f"slurm.bin_dir: no squeue in {config.slurm.bin_dir}")
    if not config.scope.partitions:
        warnings.append('scope.partitions is empty: no job is managed; name partitions, or ["*"] for all')
    if config.mode == "dry-run":
        warnings.append('mode is "dry-run": nothing is written to Slurm; mode = "apply" turns writing on')
    return warnings


def _check_ledger(url: str) -> None:
    """See that the URL can be used, its driver included; nothing is opened. Raises ConfigError."""
    from slurmsched.db.engine import open_engine
    from slurmsched.errors import ConfigError, LedgerError

    try:
        open_engine(url, read_only=True).dispose()
    except LedgerError as error:
        key = "ledger.password_file" if str(error).startswith("ledger.password_file") else "ledger.url"
        raise ConfigError(str(error).removeprefix(key).lstrip(": "), key=key) from error
