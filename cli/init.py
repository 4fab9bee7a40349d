"""`init`: a first configuration for this site, in dry-run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output

if TYPE_CHECKING:
    from slurmsched.slurm.finding import Finding
    from slurmsched.slurm.first_look import FirstLook


@output.command("init")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("-p", "--partition", "partitions", multiple=True, metavar="NAME", help="Default: all with GPUs.")
@click.option("--user", default="slurmsched", show_default=True, help="The user slurmsched is to run as.")
@click.option("--stdout", "only_print", is_flag=True, help="Print the configuration, write no file.")
def command(out: Output, file: Path | None, partitions: tuple[str, ...], user: str, only_print: bool) -> int:
    """Look at this site and write a commented configuration to FILE (default: that of --config, else
    /etc/slurmsched/slurmsched.toml), in dry-run. A file that exists is not touched.

    Then doctor is run with it. Exit code 3 if something keeps slurmsched from working, else 0.
    """
    from slurmsched.config import load_config
    from slurmsched.first_config import first_config
    from slurmsched.slurm.first_look import first_look
    from slurmsched.slurm.reader import open_commands

    settings = load_config(None).slurm
    found = first_look(open_commands(settings))
    chosen = _chosen(found, partitions)
    text = first_config(found, chosen, bin_dir=settings.bin_dir, conf=settings.conf)
    if only_print:
        out.line(text.rstrip())
        return 0
    path = _path(file)
    _write(path, text)
    findings = _examined(path)
    if out.as_json:
        out.json({"file": path, "partitions": chosen, "operator": _operator(found, user), "findings": findings})
    else:
        _tell(out, path, _operator(found, user), findings)
    return 3 if any(finding.verdict == "fail" for finding in findings) else 0


def _chosen(found: FirstLook, partitions: tuple[str, ...]) -> tuple[str, ...]:
    """The partitions asked for, or all with GPUs. Raises ConfigError where there are none."""
    from slurmsched.errors import ConfigError

    known = [one.name for one in found.partitions]
    if not known:
        raise ConfigError("no partition here has GPUs (gres/gpu in slurm.conf and gres.conf); nothing to order")
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        raise ConfigError(f"no partition with GPUs is called {', '.join(unknown)}; there are {', '.join(known)}")
    return partitions or tuple(known)


def _path(file: Path | None) -> Path:
    from slurmsched.config import SYSTEM_FILE

    given = click.get_current_context().find_root().params["config"]
    return file or (Path(given) if given else SYSTEM_FILE)


def _write(path: Path, text: str) -> None:
    """A new file, whole or not at all. Raises InputError where there is one already, or none can be made."""
    from slurmsched.errors import InputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError("is there already, and is left as it is; name another file", source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}; --stdout prints it", source=str(path)) from error


def _examined(path: Path) -> tuple[Finding, ...]:
    from slurmsched.config import load_config
    from slurmsched.slurm.doctor import findings

    return findings(load_config(path), path=path)


def _operator(found: FirstLook, user: str) -> str:
    """The line that gives the user its rights; where no slurmdbd knows levels, what to do instead."""
    from slurmsched.slurm.finding import operator_line

    return operator_line(user) if found.slurmdbd else f"no slurmdbd here: run slurmsched as {found.slurm_user}"


def _tell(out: Output, path: Path, operator: str, findings: tuple[Finding, ...]) -> None:
    from slurmsched.cli.doctor import show

    out.line(f"{path} is written; look through it. Rights: {operator}")
    out.line("slurmsched doctor says:")
    show(out, findings, everything=False)
    out.line('Next: slurmsched plan shows what a cycle would write. Nothing is written before mode = "apply".')
