"""Writes the manual pages to FOLDER/man1 and FOLDER/man5: `python -m slurmsched.cli.man_pages FOLDER`.

No page is kept in git: packages and `make man` write them from the commands and the fields of the configuration.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurmsched import errors
from slurmsched.cli.framework import ANSWER_NO
from slurmsched.cli.main import HEADS, cli

CONFIGURATION = """The configuration is one TOML file. Every key may be left out; it then has its default. Unknown
keys are errors. `slurmsched config check` lists all errors. `slurmsched config show` lists the values in force with
their sources.

An environment variable overrides a key of the file: SLURMSCHED_SECTION__KEY, such as SLURMSCHED_CYCLE__INTERVAL_S=30.
Lists and tables are written as JSON in a variable.

Times are in seconds where a key ends in _s."""


def pages() -> dict[str, str]:
    """File name -> roff text: slurmsched.1, one page a command, and slurmsched.toml.5."""
    root = click.Context(cli, info_name="slurmsched", **cli.context_settings)
    found = {"slurmsched.1": _page(root, "".join(_listed(root)))}
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=root)
            found[f"slurmsched-{name}.1"] = _page(context, "".join(_subcommands(context)))
    return found | {"slurmsched.toml.5": _configuration()}


def exit_codes() -> dict[int, str]:
    """Exit code -> what it means, from the errors that end with it."""
    meanings = {0: "Success.", 1: "An unexpected error; --debug prints the traceback."}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.SlurmschedError) and "exit_code" in vars(kind):
            summary = (kind.__doc__ or "").partition("\n")[0].split(". ")[0].split(" `")[0].rstrip(".") + "."
            if kind.exit_code in meanings and kind.exit_code != 1:
                meanings[kind.exit_code] += f" {summary}"
            meanings.setdefault(kind.exit_code, summary)
    return meanings | {
        ANSWER_NO: "A negative answer: fit: the request would wait; topology diff: there are differences; doctor and "
        "init: a check failed; reproduce: a figure that must agree does not.",
        130: "Interrupted from the keyboard.",
        141: "The reader of the output has gone.",
        143: "compare or sweep was ended by SIGTERM.",
    }


def _page(context: click.Context, body: str) -> str:
    title = context.command_path.replace(" ", "-")
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [
        f'.TH "{title.upper()}" "1" "" "slurmsched" "slurmsched manual"\n',
        f".SH NAME\n{_roff(title)} \\- {_roff(_short_help(command))}\n",
        f".SH SYNOPSIS\n.B {_roff(context.command_path)}\n{_roff(usage)}\n",
        f".SH DESCRIPTION\n{_paragraphs(command.help or '')}",
        _options(context),
        body,
        _examples(command),
        ".SH EXIT STATUS\n"
        + "".join(f".TP\n.B {code}\n{_roff(text)}\n" for code, text in sorted(exit_codes().items())),
        ".SH FILES\n.I /etc/slurmsched/slurmsched.toml\n",
        _see_also(title),
    ]
    return "".join(parts)


def _examples(command: click.Command) -> str:
    """Those of a command, or of the commands of a group."""
    commands = command.commands.values() if isinstance(command, click.Group) else [command]
    pairs = [pair for one in commands for pair in getattr(one, "examples", ())]
    lines = "".join(f".TP\n.B {_roff(line)}\n{_roff(meaning)}\n" for line, meaning in pairs)
    return f".SH EXAMPLES\n{lines}" if lines else ""


def _see_also(title: str) -> str:
    """Pages of the commands under the same head, of the configuration, and of Slurm."""
    name = title.removeprefix("slurmsched").lstrip("-")
    beside = next((names for names in HEADS.values() if name in names), ())
    ours = [f"slurmsched-{other}" for other in beside if other != name]
    pages = [*(["slurmsched"] if name else []), *ours, "squeue", "scontrol", "sinfo"]
    refs = [f".BR {_roff(page)} (1)" for page in pages] + [
        f".BR {page} (5)" for page in ("slurmsched.toml", "slurm.conf")
    ]
    return ".SH SEE ALSO\n" + ",\n".join(refs) + "\n"


def _configuration() -> str:
    """slurmsched.toml(5), from the fields of the configuration."""
    from slurmsched.config_text import described, sections, toml_value

    parts = [
        '.TH "SLURMSCHED.TOML" "5" "" "slurmsched" "slurmsched manual"\n',
        ".SH NAME\nslurmsched.toml \\- configuration of slurmsched\n",
        f".SH DESCRIPTION\n{_paragraphs(CONFIGURATION)}",
    ]
    for head, meaning, fields in sections():
        parts.append(f".SH {_roff(head)}\n{_paragraphs(meaning)}")
        for key, field, default in fields:
            shown = f"Default: {toml_value(default)}." if default is not None else "No default."
            parts.append(f".TP\n.B {_roff(key)}\n{_roff(_sentence(described(field)))} {_roff(shown)}\n")
    parts.append(
        '.SH EXAMPLES\n.nf\nmode = "dry\\-run"\n\n[scope]\npartitions = ["gpu"]\n\n[policy]\nname = "las"\n.fi\n'
    )
    parts.append(".SH FILES\n.I /etc/slurmsched/slurmsched.toml\n")
    parts.append(".SH SEE ALSO\n.BR slurmsched (1),\n.BR slurmsched\\-config (1),\n.BR slurm.conf (5)\n")
    return "".join(parts)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _listed(root: click.Context) -> list[str]:
    lines = [".SH COMMANDS\n"]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        lines.append(f".TP\n.BR slurmsched-{_roff(name)} (1)\n{_roff(_short_help(command))}\n")
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


def _short_help(command: click.Command | None) -> str:
    return command.get_short_help_str(limit=200).rstrip(".") if command is not None else ""


def _paragraphs(text: str) -> str:
    blocks = [" ".join(block.split()) for block in text.replace("\b", "").split("\n\n")]
    return "".join(f".PP\n{_roff(block)}\n" for block in blocks if block)


def _roff(text: str) -> str:
    """Text with roff's own characters made plain."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def write_pages(folder: str) -> None:
    """Write every page."""
    for name, text in pages().items():
        page = Path(folder, f"man{name[-1]}", name)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(sys.argv[1])
