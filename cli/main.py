"""`slurmsched`: finds the command, loads only that, and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

import click

from slurmsched import __version__
from slurmsched.cli.framework import CommandGroup, complain
from slurmsched.errors import ConfigError, MissingPackageError, SlurmschedError, UnreadableError
from slurmsched.passwords import without_passwords

# Heads of the help, and the commands under each: modules of slurmsched.cli that hold one click command named `command`.
HEADS = {
    "Observe": (
        "status",
        "queue",
        "explain",
        "history",
        "top",
        "web",
        "gpus",
        "mig",
        "fit",
        "advise",
        "usage",
        "job",
        "operations",
        "report",
        "power",
    ),
    "Set up": ("init", "doctor", "config", "policy", "hints", "topology", "db", "completion"),
    "Decide and write": ("plan", "tick", "daemon", "undo"),
    "Replay": ("demo", "replay", "compare", "sweep", "reproduce", "trace", "snapshot"),
}
COMMANDS = tuple(name for names in HEADS.values() for name in names)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
READER_LEFT = 141  # exit code, as of a program that SIGPIPE ends


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are asked for."""

    heads = HEADS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"slurmsched.cli.{cmd_name}").command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            if error.source or not error.key:
                raise
            raise ConfigError(error.message, key=error.key, source=self._source(ctx, error.key)) from error

    def _source(self, ctx: click.Context, key: str) -> str:
        """Where a value comes from: the configuration, if it was read and has such a key, else the command's words."""
        from slurmsched.cli.framework import READ

        found = ctx.meta.get(READ)
        known = found is not None and key.partition(".")[0] in type(found.config).model_fields
        return found.source(key) if found is not None and known else "command line"


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    metavar="FILE",
    help="Configuration file. Default: $SLURMSCHED_CONFIG, else /etc/slurmsched/slurmsched.toml.",
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
@click.version_option(__version__, message="slurmsched %(version)s")
def cli(config: str | None, debug: bool) -> None:
    """Published GPU scheduling policies for the Slurm you have.

    Reads the queue, ranks the jobs and writes the order as nice or site factor. Nothing is written
    unless the configuration says mode = "apply" or a command is given --apply.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code (docs/exit-codes.md). argv: None = of this process."""
    if argv is None:
        _send_foreign_output_to_stderr()
    arguments, stdout = list(sys.argv[1:] if argv is None else argv), sys.stdout
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
        return READER_LEFT
    except SystemExit:
        if sys.stdout is not stdout:  # click puts another in its place where the reader left, and ends with 1
            return READER_LEFT
        raise
    except OSError as error:
        if error.errno not in DISK_FULL:
            return _failed(error, debug="--debug" in arguments)
        complain(f"{error.filename or 'the output'}: cannot be written: {error.strerror}")
        sys.stdout = None  # type: ignore[assignment]  # Python must not try again at exit
        return 2
    except Exception as error:
        return _failed(error, debug="--debug" in arguments)
    return answer if isinstance(answer, int) else 0


def _send_foreign_output_to_stderr() -> None:
    """From now on standard output has only what Python writes to sys.stdout: it may be JSON.

    What a C library prints goes to standard error. HiGHS prints a line that no option turns off, "output_flag" and
    "log_to_console" included (jump-dev/HiGHS.jl issue 312; seen with scipy 1.17.1).
    """
    if sys.stdout is None:  # closed, as by >&-: what is printed goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # until the end
    if not isinstance(sys.stdout, TextIOWrapper) or sys.stdout is not sys.__stdout__ or sys.stderr is None:
        return  # one of them is closed, or Python writes elsewhere already
    ours = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    ours.reconfigure(line_buffering=sys.stdout.line_buffering, write_through=sys.stdout.write_through)
    sys.stdout = sys.__stdout__ = ours  # type: ignore[misc]  # shutil asks the second for the width of the terminal
    os.dup2(2, 1)


def _missing(module: str) -> MissingPackageError | None:
    """The error for a module that cannot be found, if an extra of slurmsched has its package."""
    from slurmsched.extras import EXTRA_OF

    package = module.partition(".")[0]
    return MissingPackageError(package, EXTRA_OF[package]) if package in EXTRA_OF else None


def _failed(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        sys.stderr.write(without_passwords(traceback.format_exc()))
    if isinstance(error, UnreadableError):  # commands turn those of files and options into InputError
        complain(f"{error}; to report it, add the output of `slurmsched doctor --json --all`")
        return error.exit_code
    if isinstance(error, SlurmschedError):
        complain(str(error))
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and (missing := _missing(error.name or "")):
        complain(str(missing))
        return missing.exit_code
    hint = "" if debug else "; for the traceback run it again with --debug before the command"
    complain(f"unexpected {type(error).__name__}: {error}{hint}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
