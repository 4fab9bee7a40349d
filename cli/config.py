"""`config`: check, show and print the configuration."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import CommandGroup, Output, complain, examined, read_config_sources
from slurmsched.errors import ConfigError, LedgerError
from slurmsched.passwords import url_without_password, without_passwords

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.config_file import LoadedConfig


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Check, show or print the configuration."""


@framework.examples(("slurmsched --config new.toml config check", "Check a file before it is put in place."))
@framework.with_command(command, "check")
def check_config(out: Output) -> int:
    """Check the configuration and the parameters of its plug-ins.

    Lists all faults of the file and the variables. Exit code 2 if there is one.
    """
    found, faults = examined()
    faults += plugin_faults(found)
    warnings = warned(found.config)
    where = str(found.path or "built-in defaults")
    if out.as_json:
        rows = [{"source": each.source, "key": each.key, "message": each.message} for each in faults]
        out.json({"source": where, "ok": not faults, "faults": rows, "warnings": warnings}, schema="check")
        return ConfigError.exit_code if faults else 0
    for each in faults:
        complain(str(each))
    for warning in warnings:
        out.line(f"warning: {warning}", "warning")
    if not faults:
        out.line(f"{where}: ok", "ok")
    return ConfigError.exit_code if faults else 0


@framework.examples(("slurmsched config show", "All values and their sources."))
@framework.with_command(command, "show")
def show_config(out: Output) -> None:
    """Show the value and the source of every key."""
    from slurmsched.config_text import flat, toml_value

    found = read_config_sources()
    rows = [(key, _masked(key, value), found.source(key)) for key, value in flat(found.config)]
    if out.as_json:
        values = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        out.json({"values": values}, schema="config")
    else:
        out.table(("key", "value", "from"), [(key, toml_value(value), source) for key, value, source in rows])


@framework.examples(("slurmsched config defaults > slurmsched.toml", "A file to start from."))
@framework.with_command(command, "defaults")
def defaults(out: Output) -> None:
    """Print a commented configuration file with all defaults."""
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


def plugin_faults(found: LoadedConfig) -> list[ConfigError]:
    """What is wrong with the policy, the estimator, the placement and the ledger's URL; with the source of each."""
    from slurmsched import registry

    faults = [*registry.plugin_faults(found.config), *_ledger_faults(found.config.ledger.address)]
    return [ConfigError(each.message, key=each.key, source=each.source or found.source(each.key)) for each in faults]


def warned(config: Config) -> list[str]:
    """Settings that are allowed and may surprise."""
    warnings = []
    if config.slurm.bin_dir and not shutil.which("squeue", path=config.slurm.bin_dir):
        warnings.append(f"slurm.bin_dir: no squeue in {config.slurm.bin_dir}")
    if not config.scope.partitions:
        warnings.append('scope.partitions is empty: no job is managed; name partitions, or ["*"] for all')
    if config.mode == "dry-run":
        warnings.append('mode is "dry-run": nothing is written to Slurm; mode = "apply" turns writing on')
    return warnings


def _ledger_faults(url: str) -> list[ConfigError]:
    """A URL that cannot be used, or whose driver is missing. Nothing is opened."""
    from slurmsched.db.database import open_engine

    try:
        open_engine(url, read_only=True).dispose()
    except LedgerError as error:
        key = "ledger.password_file" if str(error).startswith("ledger.password_file") else "ledger.url"
        return [ConfigError(str(error).removeprefix(key).lstrip(": "), key=key)]
    return []
