from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmsched.cli import main as main_module
from slurmsched.cli.main import COMMANDS, HEADS, main
from slurmsched.errors import SlurmUnreachableError, UnreadableError

HEAVY = {"numpy", "numba", "sqlalchemy", "pydantic", "structlog", "rich", "alembic", "pyslurm", "plotly"}


def test_help__lists_every_command(capsys):
    """The first screen names all commands."""
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in told] == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tick", "--help"], ["completion", "bash"]])
def test_help__imports_nothing_heavy(arguments):
    """Help and completion answer before any library is loaded."""
    code = (
        f"import sys; from slurmsched.cli.main import main; main({arguments!r}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stderr.split()) == set()


@pytest.mark.parametrize("arguments", [["nosuch"], ["plan", "--nosuch"], ["plan", "--limit", "x"], ["completion"]])
def test_usage__is_exit_code_2(arguments, capsys):
    """A mistake on the command line is told on stderr and ends with 2."""
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Error: " in said.err


def _raising(monkeypatch, error):
    def command(**_):
        raise error

    import click

    monkeypatch.setattr(main_module.LazyGroup, "get_command", lambda *_: click.command("x")(command))


@pytest.mark.parametrize("arguments", [["policy", "show", "las"], ["policy", "list", "--json"], ["--help"]])
def test_reader_that_left__ends_as_in_a_shell(arguments):
    """As in `slurmsched ... | head`: 141, and not a word: a command may have had more to do than to print."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "slurmsched.cli.main", *arguments]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [(">/dev/full", 2, "slurmsched: the output: cannot be written: No space left on device\n"), (">&-", 0, "")],
)
def test_output__that_cannot_be_written(redirection, code, told):
    """A full disk is one line and an exit code; where the output is closed the command does its work."""
    command = f"{sys.executable} -m slurmsched.cli.main policy show las {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, told)


PRINTS = """
import ctypes, os, sys, click
from slurmsched.cli import main

@click.command("x")
def prints():
    os.write(1, b"now ")
    ctypes.CDLL(None).puts(b"late")  # C keeps it until the process ends
    click.echo('{"answer": 1}')

main.LazyGroup.get_command = lambda *_: prints
sys.argv = ["slurmsched", "x"]
sys.exit(main.main())
"""


def test_main__what_a_library_prints_goes_to_stderr():
    """Standard output has the command's JSON alone, whatever a library in C prints and when."""
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"answer": 1}\n', "now late\n")


def test_error__is_one_line_and_its_exit_code(monkeypatch, capsys):
    """An error of ours: one line on stderr, no traceback, the code of its kind."""
    _raising(monkeypatch, SlurmUnreachableError("slurmctld is away"))
    assert main(["x"]) == 3
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "slurmsched: slurmctld is away\n")


def test_unreadable_answer__says_how_to_report_it(monkeypatch, capsys):
    """Slurm printed something new: no setting helps, and we need to see what it was."""
    _raising(monkeypatch, UnreadableError("not a time", text="soon"))
    assert main(["x"]) == 3
    said = capsys.readouterr().err
    assert said == "slurmsched: not a time: 'soon'; to report it, add the output of `slurmsched doctor --json --all`\n"


def test_unexpected_error__is_exit_code_1_and_names_debug(monkeypatch, capsys):
    """A bug ends with 1, in one line that tells how to get the traceback."""
    _raising(monkeypatch, KeyError("x"))
    assert main(["x"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "unexpected KeyError" in said
    assert "--debug" in said


def test_debug__shows_the_traceback(monkeypatch, capsys):
    """With --debug the traceback comes first."""
    _raising(monkeypatch, KeyError("x"))
    assert main(["--debug", "x"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_interrupt__is_exit_code_130(monkeypatch):
    """Ctrl-C ends as shells expect."""
    _raising(monkeypatch, KeyboardInterrupt())
    assert main(["x"]) == 130


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion__is_code_of_the_shell(shell, capsys):
    """The code registers a completer for `slurmsched`."""
    assert main(["completion", shell]) == 0
    told = capsys.readouterr().out
    assert f"_SLURMSCHED_COMPLETE={shell}_complete" in told


def typed(shell: str, *words: str) -> str:
    """What the code of a shell is told when these words stand on its line."""
    at = words[-1] if shell == "fish" else str(len(words) - 1)
    asked = {"_SLURMSCHED_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": at}
    command = [Path(sys.executable).with_name("slurmsched")]
    return subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion__completes_commands_and_options(shell):
    """As the code of each shell asks for it."""
    assert "explain" in typed(shell, "slurmsched", "expl")
    assert "--why-not" in typed(shell, "slurmsched", "explain", "--wh")


def test_completion__works_in_bash():
    """The code is taken by a real bash, and fills in what is meant."""
    program = Path(sys.executable).with_name("slurmsched")
    line = f"source <({program} completion bash); COMP_WORDS=({program} expl); COMP_CWORD=1"
    line += f'; _slurmsched_completion {program} expl {program}; echo "${{COMPREPLY[@]}}"'
    assert subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout == "explain\n"


@pytest.mark.parametrize("words", [(), ("power",), ("topology",), ("trace",)])
def test_help__cuts_no_sentence(run, words) -> None:
    """At 80 columns, where heads have several commands under them."""
    told = run(*words, "--help").out
    assert [line for line in told.splitlines()[1:] if line.endswith("...") or len(line) > 80] == []
    assert [head for head in HEADS if f"\n{head}:\n" in told] == list(HEADS) * (not words)
