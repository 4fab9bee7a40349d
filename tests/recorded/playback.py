"""Records what a Slurm answers to the readers, and plays it back without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmsched.slurm.commands import Commands, RunningCommand
from slurmsched.slurm.squeue import unit_of

HERE = Path(__file__).parent
MARK = "\x1erecorded\x1e"  # in place of cli_reader.fresh_mark()
UNIT = unit_of(MARK)  # recordings of before have \x1f alone


def recorded_versions() -> list[str]:
    """Slurm versions of which there are recordings."""
    return sorted(path.parent.name for path in HERE.glob("*/config.txt"))


def file_of(program: str, arguments: tuple[str, ...], stdin: str = "") -> str:
    """The name under which an answer lies."""
    words = " ".join(arguments)
    if program == "squeue":
        if "ArrayJobID" in words:
            return "expanded.txt"
        return "unfolded.txt" if "--array" in words else "squeue.txt"
    if program != "scontrol" or "assoc_mgr" in words:
        return f"{program if program != 'scontrol' else 'users'}.txt"
    if stdin:
        return "details.txt"
    return {"node": "nodes.txt", "partition": "partitions.txt", "config": "config.txt", "job": "details.txt"}[
        arguments[-1]
    ]


class Recorder(Commands):
    """Commands that keep every answer as a file of `folder`."""

    folder: Path = HERE

    def start(self, program: str, *arguments: str, stdin: str = "") -> RunningCommand:
        (self.folder / file_of(program, arguments, stdin)).write_text(
            Commands().run(program, *arguments, stdin=stdin), encoding="utf-8"
        )
        return super().start(program, *arguments, stdin=stdin)


@dataclass
class Answer:
    """A command that has ended, as Started shows it."""

    out: str
    status: int = 0
    err: str = ""
    program: str = "scontrol"

    def finish(self) -> tuple[int, str, str]:
        return self.status, self.out, self.err

    def text(self) -> str:
        return self.out

    def abandon(self) -> None:
        """Nothing runs."""


def jobs_of(script: str) -> list[int]:
    """The jobs that a script for scontrol asks for."""
    return [int(line.rpartition(" ")[2]) for line in script.splitlines() if line.startswith("show job ")]


class Scontrol:
    """scontrol of a cluster whose jobs have these records: prints all, or those it is asked for one by one.

    asked: "all", or the jobs asked for by id.
    """

    def __init__(self, records: Mapping[int, str], others: Mapping[str, str] | None = None) -> None:
        self.records, self.others = dict(records), dict(others or {})
        self.asked: list[str | list[int]] = []
        self.calls: list[tuple[str, ...]] = []

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        self.calls.append((program, *arguments))
        if arguments[-1] in self.others:
            return self.others[arguments[-1]]
        if program in self.others:
            return self.others[program]
        self.asked.append("all")
        return "".join(f"{record}\n" for record in self.records.values())

    def start(self, program: str, *arguments: str, stdin: str = "") -> Answer:
        self.calls.append((program, *arguments))
        self.asked.append(jobs_of(stdin))
        out = []
        for line in stdin.splitlines():
            verb, _, name = line.rpartition(" ")
            told = name if verb == "show hostnames" else self.records.get(int(name), "")
            out.append(f"scontrol: {line}\n{told}\n")
        return Answer("".join(out), status=1)  # as that of a job which is gone


@dataclass
class Playback:
    """Commands that answer from files. instead: other answers by file name. asked: what was run, in order."""

    folder: Path
    instead: Mapping[str, str] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    timeout_s: float = 5.0

    def start(self, program: str, *arguments: str, stdin: str = "") -> Answer:
        self.asked.append((program, *arguments, stdin))
        if arguments[-1:] == ("reservation",):
            return Answer("No reservations in the system\n")  # there was none
        if arguments[-1:] == ("topology",):
            return Answer("")  # topology/flat has none
        if arguments[-2:-1] == ("job",):
            return Answer(self._job(arguments[-1]))
        name = file_of(program, arguments, stdin)
        path = self.folder / name
        if name not in self.instead and not path.exists():
            return Answer("", 1, f"{name} was not recorded")
        text = self.instead[name] if name in self.instead else path.read_bytes().decode()
        return Answer(text.replace("\x1f", UNIT) if program == "squeue" and UNIT not in text else text)

    def _job(self, job_id: str) -> str:
        """Its record alone, of those that were all asked for at once."""
        found = re.search(rf"^JobId={job_id} .*?(?=^JobId=|\Z)", (self.folder / "details.txt").read_text(), re.M | re.S)
        return found[0] if found else ""

    def begin(self, program: str, *arguments: str) -> None:
        """`run` answers when it is asked."""

    def close(self) -> None:
        """Nothing runs."""

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        return self.start(program, *arguments, stdin=stdin).out
