"""Sends actions to Slurm, one after another, and tells what became of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import isfinite
from typing import Protocol

from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.model.plan import (
    Action,
    Delay,
    Join,
    Move,
    Outcome,
    PinNodes,
    Requeue,
    Reserve,
    Retype,
    SetNice,
    SetSiteFactor,
    Signal,
    Unreserve,
)
from slurmsched.planning.levers import LIMIT
from slurmsched.slurm.commands import Commands, failure
from slurmsched.slurm.scontrol import session

FIELDS = {SetNice.kind: "Nice", SetSiteFactor.kind: "SiteFactor"}
# Others may still run there, and its end holds nobody; where nobody is left to delete it, Slurm does so when no job has
# named it for half an hour.
FLAGS = "IGNORE_JOBS,NO_HOLD_JOBS_AFTER,PURGE_COMP=00:30:00"
_WORD = re.compile(r"[\w.,@+\[\]-]{1,60000}")  # what goes into a command: no blank, no quote, no control character
_REQUEST = re.compile(r"gpu(?::[\w.@+-]{1,200})?:\d{1,3}(?:,gpu:[\w.@+-]{1,200}:\d{1,3}){0,63}")
_OF_JOB = re.compile(r"^(?P<text>.*) for job \S+$")
_OF_TASK = re.compile(r"^(?P<task>\d+(?:_\S+)?): (?P<text>.*)$")
_NO_RIGHTS = re.compile(r"permission denied|ESLURM_ACCESS_DENIED|Invalid user id", re.IGNORECASE)
_ENDED = ("already finished", "already completing or completed")  # what tasks of an array that are over answer


class Writer(Protocol):
    """Whatever can carry out actions."""

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        """One outcome an action, each taken from `actions` only when the one before was answered.

        Ends early after an "unknown" outcome, since Slurm does not answer then. Raises SlurmUnreachableError
        when Slurm cannot be spoken to at all; then nothing was sent.
        """
        ...


class CommandWriter:
    """Writes through one scontrol process: works with every version, with zero, and tells each job's error."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        with session(self._commands) as scontrol:
            for action in actions:
                outcome = self._signalled(action) if isinstance(action, Signal) else _sent(scontrol.tell, action)
                if isinstance(action, Retype) and outcome.status == "refused":
                    outcome = _with_own(scontrol.tell, outcome, action)
                yield outcome
                if outcome.status == "unknown":
                    return

    def _signalled(self, action: Signal) -> Outcome:
        """scontrol has no signals. --batch: the script's own shell, where a trap waits for it."""
        try:
            self._commands.run("scancel", "--batch", "-s", _word(action.signal), str(action.job_id))
        except ValueError as error:
            return Outcome(action, "refused", str(error))
        except SlurmUnreachableError as error:
            return Outcome(action, "unknown", str(error))
        except SlurmError as error:
            return Outcome(action, "refused", str(error))
        return Outcome(action, "written")


def command(action: Action) -> str:
    """The words scontrol takes for an action.

    Raises ValueError for one it has none for, a value out of range, or a text that is more than one word.
    """
    match action:
        case SetNice() | SetSiteFactor():
            if abs(action.new) > LIMIT:
                raise ValueError(f"{action.kind} {action.new} is beyond {LIMIT}, the most that Slurm takes")
            return f"update JobId={action.job_id} {FIELDS[action.kind]}={action.new}"
        case Requeue():
            return f"requeue incomplete {action.job_id}"  # incomplete: a job that has just ended is not run again
        case Join():
            return f"update JobId={action.job_id} ReservationName={_word(action.name) if action.name else ''}"
        case PinNodes():
            return f"update JobId={action.job_id} NodeList={_word(action.nodes) if action.nodes else ''}"
        case Retype():  # Gres=: TresPerNode by the name that every version knows
            return f"update JobId={action.job_id} Gres={_word(action.gpus, _REQUEST)}"
        case Delay():
            return f"update JobId={action.job_id} StartTime={_time(action.start_s)}"
        case Reserve():
            words = f"ReservationName={_word(action.name)} Nodes={_word(action.nodes)} Users={_word(action.user)}"
            return f"create {words} StartTime={_time(action.start_s)} EndTime={_time(action.end_s)} Flags={FLAGS}"
        case Move():
            words = f"update ReservationName={_word(action.name)} EndTime={_time(action.end_s)}"
            begins = f" Nodes={_word(action.nodes)} StartTime={_time(action.start_s)}" if action.nodes else ""
            return words + begins
        case Unreserve():
            return f"delete ReservationName={_word(action.name)}"
    raise ValueError(f"{action.kind} is not written by scontrol")


def _word(text: str, form: re.Pattern[str] = _WORD) -> str:
    """The text, if it is one harmless word. Names come from users and from Slurm: they are data."""
    if not form.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a word that may go into a command")
    return text


def _time(at_s: float) -> str:
    """A time as Slurm reads it whatever its time zone: seconds since 1970."""
    if not isfinite(at_s):
        raise ValueError("the time is not known")
    return f"uts{round(at_s)}"


def answered(action: Action, said: str) -> Outcome:
    """The outcome that scontrol's words mean; no words mean that it is written.

    An update of an array's record reaches its started tasks too, and Slurm tells of those that failed.
    Tasks that are over cannot take a value, which is no refusal of the record.
    """
    lines = said.splitlines()
    if not lines:
        return Outcome(action, "written")
    if isinstance(failure("scontrol", 1, said), SlurmUnreachableError):
        return Outcome(action, "unknown", "; ".join(lines))
    if all((task := _OF_TASK.match(line)) and task["text"].endswith(_ENDED) for line in lines):
        return Outcome(action, "written", "; ".join(lines))
    texts = [found["text"] if (found := _OF_JOB.match(line)) else line for line in lines]
    return Outcome(action, "refused", "; ".join(texts))


def lacks_rights(outcome: Outcome) -> bool:
    """Whether Slurm refused the write for want of rights, by its words. Those of one job may be meant, too."""
    return outcome.status == "refused" and _NO_RIGHTS.search(outcome.message) is not None


def _with_own(tell: Callable[[str], str], outcome: Outcome, action: Retype) -> Outcome:
    """The outcome of a refused request, after the job's own is written again.

    A pending job of which Slurm refuses a request keeps none in force, though scontrol shows the one before: it would
    start without GPUs (seen on 26.05.5).
    """
    again = _sent(tell, replace(action, gpus=action.base))
    if again.status == "written":
        return replace(outcome, message=f"{outcome.message}; it has its own request again")
    if again.status == "unknown":
        return replace(outcome, status="unknown", message=f"{outcome.message}; its own request: {again.message}")
    return replace(outcome, message=f"{outcome.message}; its own request was refused too: {again.message}")


def _sent(tell: Callable[[str], str], action: Action) -> Outcome:
    try:
        words = command(action)
    except ValueError as error:
        return Outcome(action, "refused", str(error))
    try:
        return answered(action, tell(words))
    except SlurmUnreachableError as error:
        return Outcome(action, "unknown", str(error))
