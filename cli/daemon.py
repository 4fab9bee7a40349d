"""`daemon`: cycles until told to stop, under systemd or in a terminal."""

from __future__ import annotations

import click

from slurmsched.cli.settings import config


@click.command("daemon")
@click.option("--apply", "apply", is_flag=True, help='Write to Slurm even if the configuration says mode = "dry-run".')
@click.option("--dry-run", is_flag=True, help="Write nothing to Slurm, whatever else says so.")
def command(apply: bool, dry_run: bool) -> None:
    """Run a cycle every cycle.interval_s. SIGHUP reads the configuration anew, SIGTERM ends after the cycle.

    Logs go to stderr: JSON lines, or text on a terminal (log.format). systemd is told by sd_notify.
    """
    from slurmsched.daemon.lock import exclusive
    from slurmsched.daemon.loop import Loop
    from slurmsched.daemon.notify import Notifier

    forced = "dry-run" if dry_run else "apply" if apply else None
    with exclusive(config().ledger.lock) as publish:
        loop = Loop(config, Notifier(), forced, publish)
        loop.signals.listen()
        loop.run()
