"""`slurmsched`: finds the command, loads only that, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from slurmsched import __version__
from slurmsched.cli.output import complain
from slurmsched.errors import ConfigError, SlurmschedError

# name -> module under slurmsched.cli; each holds one click command named `command`
COMMANDS = {
    "plan": "plan", "queue": "queue", "status": "status", "top": "top",
    "tick": "tick", "daemon": "daemon", "undo": "undo",
    "acts": "acts", "report": "report", "explain": "explain", "history": "history",
    "init": "init", "doctor": "doctor", "config": "config", "hints": "hints", "policy": "policy", "db": "db",
    "demo": "demo",
    "replay": "replay", "compare": "compare", "sweep": "sweep", "reproduce": "reproduce", "snapshot": "snapshot",
    "trace": "trace", "topology": "topology", "gpus": "gpus", "fit": "fit", "advise": "advise",
    "power": "power",
    "completion": "completion",
}  # fmt: skip


class Late(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"slurmsched.cli.{COMMANDS[cmd_name]}").command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            if error.source or not error.key:
                raise
            from slurmsched.cli.settings import settings

            raise ConfigError(error.message, key=error.key, source=settings().source(error.key)) from error


@click.command(cls=Late, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--config", metavar="FILE", help="Default: $SLURMSCHED_CONFIG, else /etc/slurmsched/slurmsched.toml.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, message="slurmsched %(version)s")
def cli(config: str | None, debug: bool) -> None:
    """Published GPU scheduling policies for the Slurm you have.

    Reads the queue, ranks the jobs and writes the order as nice or site factor. Nothing is written
    unless the configuration says mode = "apply" or a command is given --apply.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code (docs/exit-codes.md)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        answer: Any = cli.main(arguments, prog_name="slurmsched", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return 130
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]  # the reader left; Python must not flush at exit
        return 0
    except Exception as error:
        return _failed(error, debug="--debug" in arguments)
    return answer if isinstance(answer, int) else 0


def _failed(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    if isinstance(error, SlurmschedError):
        complain(str(error))
        return error.exit_code
    hint = "" if debug else "; run it again with --debug before the command for the traceback"
    complain(f"unexpected {type(error).__name__}: {error}{hint}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
