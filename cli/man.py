"""Writes the manual pages from the commands: `python -m slurmsched.cli.man FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurmsched import errors
from slurmsched.cli.main import cli


def pages() -> dict[str, str]:
    """File name -> roff text: slurmsched.1 and one page a command."""
    root = click.Context(cli, info_name="slurmsched", **cli.context_settings)
    found = {"slurmsched.1": _page(root, "".join(_listed(root)))}
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=root)
            found[f"slurmsched-{name}.1"] = _page(context, "".join(_subcommands(context)))
    return found


def exit_codes() -> dict[int, str]:
    """Exit code -> what it means, from the errors that end with it."""
    meanings = {0: "All went well.", 1: "Something unexpected; --debug shows the traceback."}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.SlurmschedError) and "exit_code" in vars(kind):
            summary = (kind.__doc__ or "").partition("\n")[0].split(". ")[0].split(" `")[0].rstrip(".") + "."
            if kind.exit_code in meanings and kind.exit_code != 1:
                meanings[kind.exit_code] += f" {summary}"
            meanings.setdefault(kind.exit_code, summary)
    return meanings | {
        130: "Interrupted from the keyboard.",
        141: "Nobody reads the output any more.",
        143: "Ended by SIGTERM: compare and sweep.",
    }


def _page(context: click.Context, body: str) -> str:
    title = context.command_path.replace(" ", "-")
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [
        f'.TH "{title.upper()}" "1" "" "slurmsched" "slurmsched manual"\n',
        f".SH NAME\n{_roff(title)} \\- {_roff(_first(command))}\n",
        f".SH SYNOPSIS\n.B {_roff(context.command_path)}\n{_roff(usage)}\n",
        f".SH DESCRIPTION\n{_paragraphs(command.help or '')}",
        _options(context),
        body,
        ".SH EXIT STATUS\n" + "".join(f".TP\n.B {code}\n{_roff(text)}\n" for code, text in exit_codes().items()),
        ".SH FILES\n.I /etc/slurmsched/slurmsched.toml\n",
        ".SH SEE ALSO\n.BR slurmsched (1),\n.BR slurm.conf (5),\n.BR squeue (1)\n",
    ]
    return "".join(parts)


def _listed(root: click.Context) -> list[str]:
    lines = [".SH COMMANDS\n"]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        lines.append(f".TP\n.BR slurmsched-{_roff(name)} (1)\n{_roff(_first(command))}\n")
    return lines


def _subcommands(context: click.Context) -> list[str]:
    group, lines = context.command, []
    if isinstance(group, click.Group):
        for name in sorted(group.commands):
            inner = click.Context(group.commands[name], info_name=name, parent=context)
            usage = " ".join(inner.command.collect_usage_pieces(inner))
            lines.append(
                f".SH {_roff(inner.command_path.upper())}\n.B {_roff(inner.command_path)}\n{_roff(usage)}\n.PP\n"
            )
            lines.append(_paragraphs(inner.command.help or "") + _options(inner, heading=".SS Options\n"))
    return lines


def _options(context: click.Context, heading: str = ".SH OPTIONS\n") -> str:
    records = [record for param in context.command.get_params(context) if (record := param.get_help_record(context))]
    return heading + "".join(f".TP\n.B {_roff(names)}\n{_roff(text)}\n" for names, text in records) if records else ""


def _first(command: click.Command | None) -> str:
    return command.get_short_help_str(limit=200).rstrip(".") if command is not None else ""


def _paragraphs(text: str) -> str:
    blocks = [" ".join(block.split()) for block in text.replace("\b", "").split("\n\n")]
    return "".join(f".PP\n{_roff(block)}\n" for block in blocks if block)


def _roff(text: str) -> str:
    """Text with roff's own characters made plain."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(folder: str) -> None:
    """Write every page, and remove those of commands that are gone."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    texts = pages()
    for old in set(target.glob("*.1")) - {target / name for name in texts}:
        old.unlink()
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
