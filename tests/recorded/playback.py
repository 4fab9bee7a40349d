"""Records what a Slurm answers to the readers, and plays it back without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmsched.slurm.commands import Commands, Started

HERE = Path(__file__).parent
MARK = "\x1erecorded\x1e"  # in place of cli_reader.fresh_mark()


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

    def start(self, program: str, *arguments: str, stdin: str = "") -> Started:
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
        if name in self.instead:
            return Answer(self.instead[name])
        path = self.folder / name
        return Answer(path.read_bytes().decode()) if path.exists() else Answer("", 1, f"{name} was not recorded")

    def _job(self, job_id: str) -> str:
        """Its record alone, of those that were all asked for at once."""
        found = re.search(rf"^JobId={job_id} .*?(?=^JobId=|\Z)", (self.folder / "details.txt").read_text(), re.M | re.S)
        return found[0] if found else ""

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        return self.start(program, *arguments, stdin=stdin).out
