"""`web`: the pages of the queue and the GPUs in a browser, from a shell and without the daemon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import complain, read_config
from slurmsched.cli.top import looked, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmsched.observe.web.frame import Frame
    from slurmsched.observe.web.web_pages import WebPages

HOST, PORT = "127.0.0.1", 9812  # of this host only; the daemon's example is 9811


@framework.examples(
    ("slurmsched web", "Then open http://127.0.0.1:9812/ on this host."),
    ("ssh -L 9812:localhost:9812 login1 slurmsched web", "The same in the browser of your own computer."),
)
@click.command("web")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True,
              help="Port on 127.0.0.1; 0: any free one.")  # fmt: skip
@click.option("--interval", "-d", metavar="DURATION", default="30s", show_default=True, help="Time between updates.")
def command(port: int, interval: str) -> None:
    """Serve the pages of the queue and the GPUs to browsers on this host.

    They show what you may see in Slurm and what a cycle would do. Reads only, needs no daemon. An update costs Slurm as
    much as `slurmsched queue`. Other users of this host can open the pages too. Ctrl-C ends it.
    """
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.logs import configure
    from slurmsched.observe.web.web_pages import WebPages
    from slurmsched.observe.web.web_server import ServedSite, WebServer, allowed_hosts

    interval_s = seconds(interval)
    configure("error")
    tree, pages, listen = read_config(), WebPages(), f"{HOST}:{port}"
    server = WebServer(listen, ServedSite(pages.answer, allowed_hosts(listen)))
    try:
        with open_cycle_parts(tree, apply=False, read_only=True, indices=True) as parts:
            first = looked(tree, parts, asked=tree.web.asked_jobs, mode="dry-run")
            first.gpus()  # the first map may compile kernels, for longer than a browser is kept waiting
            pages.show(first)
            click.echo(f"http://{HOST}:{server.port}/  (Ctrl-C ends it)")
            failed = ""
            while True:
                time.sleep(interval_s)
                failed = refresh(pages, lambda: looked(tree, parts, asked=tree.web.asked_jobs, mode="dry-run"), failed)
    finally:
        server.close()


def refresh(pages: WebPages, look: Callable[[], Frame], failed: str = "") -> str:
    """Show the next look; "". If it fails, the pages say so and keep the one before; the reason.

    failed: why the look before failed, which is not said again on the terminal.
    """
    from slurmsched.errors import SlurmschedError

    try:
        pages.show(look())
    except SlurmschedError as error:
        if str(error) != failed:
            complain(f"{error}; trying again")
        pages.fail(f"The last look failed: {error}. This is what the one before saw.")
        return str(error)
    return ""
