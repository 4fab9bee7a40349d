"""What every command needs of the command line: the configuration it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from slurmsched.config import Config, Settings


READ = "slurmsched.settings"  # in the context of click, once they were read


def settings() -> Settings:
    """The configuration named by --config (or found, see config_path), with the source of each value."""
    from slurmsched.config import config_path, load_settings

    context = click.get_current_context()
    found = load_settings(config_path(context.find_root().params["config"]))
    context.meta[READ] = found
    return found


def config() -> Config:
    """The configuration alone."""
    return settings().config
