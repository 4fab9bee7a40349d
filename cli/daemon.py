"""`daemon`: cycles until told to stop, under systemd or in a terminal."""

from __future__ import annotations

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import read_config


@framework.examples(("slurmsched daemon --dry-run", "Run cycles that write nothing."))
@click.command("daemon")
@click.option("--apply", "apply", is_flag=True, help='Write to Slurm, even if the configuration has mode = "dry-run".')
@click.option("--dry-run", is_flag=True, help="Never write to Slurm; overrides --apply and the configuration.")
def command(apply: bool, dry_run: bool) -> None:
    """Run a cycle every cycle.interval_s seconds.

    SIGHUP reads the configuration again; SIGTERM stops after the current cycle. Logs go to stderr: JSON lines, or
    text on a terminal (log.format). systemd is notified by sd_notify.
    """
    from slurmsched.daemon.lock import exclusive_lock
    from slurmsched.daemon.loop import Loop
    from slurmsched.daemon.service import Notifier

    forced = "dry-run" if dry_run else "apply" if apply else None
    with exclusive_lock(read_config().ledger.lock) as publish:
        loop = Loop(read_config, Notifier(), forced, publish)
        loop.signals.listen()
        loop.run()
