"""`completion`: the shell code that completes commands and options."""

from __future__ import annotations

import click

from slurmsched.cli import framework


@framework.examples(
    ("slurmsched completion bash > /etc/bash_completion.d/slurmsched", "Install the completion for bash.")
)
@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion code of SHELL.

    bash: slurmsched completion bash > /etc/bash_completion.d/slurmsched
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"click has no completion for {shell}")
    root = ctx.find_root()
    click.echo(maker(root.command, {}, "slurmsched", "_SLURMSCHED_COMPLETE").source())
