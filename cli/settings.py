"""What every command needs of the command line: the configuration it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from slurmsched.config import Config, Settings


def settings() -> Settings:
    """The configuration named by --config (or found, see config_path), with the source of each value."""
    from slurmsched.config import config_path, load_settings

    return load_settings(config_path(click.get_current_context().find_root().params["config"]))


def config() -> Config:
    """The configuration alone."""
    return settings().config
