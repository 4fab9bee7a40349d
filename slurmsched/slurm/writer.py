"""Writes to Slurm: how fast and when not at all, the command of each action, and what its answer means."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import floor, isfinite
from typing import Protocol

from slurmsched import config
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError
from slurmsched.model.gpu_selection import nodes_of_size, request_of_size
from slurmsched.model.plan import (
    Action,
    AllowStart,
    AskSize,
    DeleteReservation,
    JoinReservation,
    MoveReservation,
    Outcome,
    Requeue,
    Reserve,
    SetAdminComment,
    SetCpus,
    SetField,
    SetGpuRequest,
    SetMemory,
    SetNice,
    SetShards,
    SetSiteFactor,
    SetSize,
    ShrinkJob,
    Signal,
)
from slurmsched.slurm.commands import Commands, command_error, scontrol_session

SLOW_S = 1.0  # Slurm's client answers the rate limiter by waiting one second, without a word, and asking again
MOST_SLOW = 5  # slow answers in one apply before the rest is left to the next cycle
RECOVER_S = 60.0  # after each such time without a slow answer the pace doubles, up to the configured one


class SlurmctldLoad(Protocol):
    """What sdiag tells: server threads in use, messages that wait for slurmdbd."""

    @property
    def threads(self) -> int: ...
    @property
    def dbd_queue(self) -> int: ...


class WritePacer:
    """A token bucket of one second's writes, and a guard that looks at slurmctld's load and at slow answers.

    read_load: asks slurmctld.
    clock: monotonic seconds.
    sleep: waits that many seconds.
    """

    def __init__(
        self,
        limits: config.PaceConfig,
        read_load: Callable[[], SlurmctldLoad],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits, self._read_load = limits, read_load
        self._clock, self._sleep = clock, sleep
        self._rate_per_s = limits.writes_per_s
        self._tokens = max(limits.writes_per_s, 1.0)
        self._filled_s = self._sent_s = self._changed_s = clock()
        self._slow = 0

    @property
    def rate_per_s(self) -> float:
        """Writes a second at present: the configured pace, or less after slow answers."""
        return self._rate_per_s

    def busy(self) -> str:
        """Why nothing should be written now; "" if all is well. Raises what read_load raises."""
        load = self._read_load()
        if load.threads > self._limits.busy_threads:
            return _too_busy("server threads", load.threads, "busy_threads", self._limits.busy_threads)
        if load.dbd_queue > self._limits.busy_dbd_queue:
            return _too_busy("messages to slurmdbd", load.dbd_queue, "busy_dbd_queue", self._limits.busy_dbd_queue)
        return ""

    def begin(self) -> None:
        """A new apply begins: slow answers are counted anew, the pace stays."""
        self._slow = 0

    @property
    def throttled(self) -> str:
        """Why the rest should be left to the next cycle; "" while answers come at a good pace."""
        if self._slow < MOST_SLOW:
            return ""
        return (
            f"{self._slow} answers took {SLOW_S:g} s or more: Slurm's rate limiter (rl_enable) or a busy slurmctld; "
            "raise rl_bucket_size and rl_refill_rate, or lower pace.writes_per_cycle"
        )

    def wait(self) -> None:
        """Return when one more write is due."""
        self._fill()
        if self._tokens < 1:
            self._sleep((1 - self._tokens) / self._rate_per_s)
            self._fill()
        self._tokens -= 1
        self._sent_s = self._clock()

    def answered(self) -> None:
        """The write was answered. A slow answer halves the pace, not below one a second."""
        now_s = self._clock()
        if now_s - self._sent_s >= SLOW_S:
            self._slow += 1
            self._rate_per_s = max(self._rate_per_s / 2, min(1.0, self._limits.writes_per_s))
            self._tokens = 0.0
            self._filled_s = self._changed_s = now_s

    def _fill(self) -> None:
        now_s = self._clock()
        while now_s - self._changed_s >= RECOVER_S and self._rate_per_s < self._limits.writes_per_s:
            self._rate_per_s = min(self._rate_per_s * 2, self._limits.writes_per_s)
            self._changed_s += RECOVER_S
        earned = (now_s - self._filled_s) * self._rate_per_s
        self._tokens = min(self._tokens + earned, max(self._rate_per_s, 1.0))
        self._filled_s = now_s


def _too_busy(what: str, found: int, key: str, limit: int) -> str:
    return f"slurmctld is busy: {found} {what}, more than {limit} (pace.{key})"


# Sends actions to Slurm.

FIELDS = {SetNice.kind: "Nice", SetSiteFactor.kind: "SiteFactor"}
# Others may still run there, and its end holds nobody; where nobody is left to delete it, Slurm does so when no job has
# named it for half an hour.
FLAGS = "IGNORE_JOBS,NO_HOLD_JOBS_AFTER,PURGE_COMP=00:30:00"
_WORD = re.compile(r"[\w.,@+\[\]-]{1,60000}")  # what goes into a command: no blank, no quote, no control character
_COMMENT = re.compile(r"[\w .,:;@+\[\]-]{1,1000}", re.ASCII)
_REQUEST = re.compile(r"gpu(?::[\w.@+-]{1,200})?:\d{1,3}(?:,gpu:[\w.@+-]{1,200}:\d{1,3}){0,63}")
_SHARDS = re.compile(r"(?:shard|mps):\d{1,6}")
_OF_JOB = re.compile(r"^(?P<text>.*) for job \S+$")
_OF_TASK = re.compile(r"^(?P<task>\d+(?:_\S+)?): (?P<text>.*)$")
_NO_RIGHTS = re.compile(r"permission denied|ESLURM_ACCESS_DENIED|Invalid user id", re.IGNORECASE)
_ENDED = ("already finished", "already completing or completed")  # what tasks of an array that are over answer


class Writer(Protocol):
    """Whatever can carry out actions."""

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        """One outcome an action, each taken from `actions` only when the one before was answered.

        Ends early after an "unknown" outcome, since Slurm does not answer then. Raises SlurmUnreachableError when Slurm
        cannot be spoken to at all; then nothing was sent.
        """
        ...


class CommandWriter:
    """Writes through one scontrol process: works with every version, with zero, and tells each job's error.

    ask: lets a job know of the size that is wanted of it; Slurm is not told. Raises InputError.
    """

    def __init__(self, commands: Commands, ask: Callable[[AskSize], None] = lambda action: None) -> None:
        self._commands, self._ask = commands, ask

    def send(self, actions: Iterable[Action]) -> Iterator[Outcome]:
        """One outcome for each action, in order; the next action is sent when the outcome is taken."""
        with scontrol_session(self._commands) as scontrol:
            for action in actions:
                outcome = self._alone(action) if isinstance(action, _ALONE) else _sent(scontrol.tell, action)
                if isinstance(action, SetGpuRequest | SetCpus | SetMemory) and outcome.status == "refused":
                    outcome = _with_own(scontrol.tell, outcome, action)
                yield outcome
                if outcome.status == "unknown":
                    return

    def _alone(self, action: Signal | SetAdminComment | AskSize) -> Outcome:
        """What the one scontrol cannot take: it has no signals, and keeps the quotes of a text with blanks; and what
        Slurm is not told."""
        try:
            if isinstance(action, AskSize):
                self._ask(action)
            else:
                self._commands.run(*argv_of(action))
        except (ValueError, InputError) as error:
            return Outcome(action, "refused", str(error))
        except SlurmUnreachableError as error:
            return Outcome(action, "unknown", str(error))
        except SlurmError as error:
            return Outcome(action, "refused", str(error))
        return Outcome(action, "written")


_ALONE = (Signal, SetAdminComment, AskSize)


def argv_of(action: Signal | SetAdminComment) -> tuple[str, ...]:
    """A command of its own. Raises ValueError for a text that may not go into one."""
    job = str(action.job_id)
    if isinstance(action, Signal):  # --batch: the script's own shell, where a trap waits for it
        return "scancel", "--batch", "-s", _word(action.signal), job
    text = f"AdminComment={_word(action.new, _COMMENT) if action.new else ''}"
    if action.accounting:
        return "sacctmgr", "-iQ", "modify", "job", "where", f"jobid={job}", "set", text
    return "scontrol", "update", f"JobId={job}", text


# Over 30 lines: one case for each kind of action.
def command(action: Action) -> str:
    """The words scontrol takes for an action.

    Raises ValueError for one it has none for, or a text that is more than one word.
    """
    match action:
        case SetNice() | SetSiteFactor():
            return f"update JobId={action.job_id} {FIELDS[action.kind]}={action.new}"
        case Requeue():
            return f"requeue incomplete {action.job_id}"  # incomplete: a job that has just ended is not run again
        case JoinReservation():
            return f"update JobId={action.job_id} ReservationName={_word(action.name) if action.name else ''}"
        case ShrinkJob():
            return f"update JobId={action.job_id} NumNodes={action.nodes}"
        case SetSize():
            return f"update JobId={action.job_id} {_size_words(action)}"
        case SetGpuRequest():
            form = _SHARDS if isinstance(action, SetShards) and not action.restores else _REQUEST
            return f"update JobId={action.job_id} {action.option}={_word(action.new, form)}"
        case SetField():
            return f"update JobId={action.job_id} {_values(action)}"
        case AllowStart():
            return f"update JobId={action.job_id} StartTime={_time(action.start_s)}"
        case Reserve():
            words = f"ReservationName={_word(action.name)} Nodes={_word(action.nodes)} Users={_word(action.user)}"
            return f"create {words} StartTime={_time(action.start_s)} EndTime={_time(action.end_s)} Flags={FLAGS}"
        case MoveReservation():
            words = f"update ReservationName={_word(action.name)} EndTime={_time(action.end_s)}"
            begins = f" Nodes={_word(action.nodes)} StartTime={_time(action.start_s)}" if action.nodes else ""
            return words + begins
        case DeleteReservation():
            return f"delete ReservationName={_word(action.name)}"
    raise ValueError(f"{action.kind} is not written by scontrol")


def _word(text: str, form: re.Pattern[str] = _WORD) -> str:
    """The text, if it is one harmless word. Names come from users and from Slurm: they are data."""
    if not form.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a word that may go into a command")
    return text


def _values(action: SetField) -> str:
    """The options of a field, each with its value."""
    return " ".join(f"{name}={_field_text(action.new)}" for name in action.options)


def _size_words(action: SetSize) -> str:
    """The options of a size in the way in which the job asks for its GPUs. Where the number of its nodes or tasks
    changes, the others are written too: Slurm leaves some as they were (docs/writing.md)."""
    request = _word(request_of_size(action.new), _REQUEST)
    if not action.scales:
        return f"TresPerJob=gres/{request}" if action.by == "job" else f"{action.option}={request}"
    nodes = f"NumNodes={nodes_of_size(action.new)} " if action.by == "node" else ""
    return f"{nodes}NumTasks={action.scaled(action.tasks)} NumCPUs={action.scaled(action.cpus)}"


def _field_text(value: object) -> str:
    """A value of a field as scontrol takes it; a number with a fraction part is a time."""
    if isinstance(value, float):
        return _time(value)
    return _word(str(value)) if value != "" else ""


def _time(at_s: float) -> str:
    """A time as Slurm reads it whatever its time zone: whole seconds since 1970. A time of now is not rounded up: it
    would lie ahead of a cycle that comes within the second."""
    if not isfinite(at_s):
        raise ValueError("the time is not known")
    return f"uts{floor(at_s)}"


def answered(action: Action, said: str) -> Outcome:
    """The outcome that scontrol's words mean; no words mean that it is written.

    An update of an array's record reaches its started tasks too, and Slurm tells of those that failed.
    Tasks that are over cannot take a value, which is no refusal of the record.
    """
    lines = said.splitlines()
    if not lines:
        return Outcome(action, "written")
    if isinstance(command_error("scontrol", 1, said), SlurmUnreachableError):
        return Outcome(action, "unknown", "; ".join(lines))
    if all((task := _OF_TASK.match(line)) and task["text"].endswith(_ENDED) for line in lines):
        return Outcome(action, "written", "; ".join(lines))
    texts = [found["text"] if (found := _OF_JOB.match(line)) else line for line in lines]
    return Outcome(action, "refused", "; ".join(texts))


def lacks_rights(outcome: Outcome) -> bool:
    """Whether Slurm refused the write for want of rights, by its words. Those of one job may be meant, too."""
    return outcome.status == "refused" and _NO_RIGHTS.search(outcome.message) is not None


def _with_own(tell: Callable[[str], str], outcome: Outcome, action: SetGpuRequest | SetCpus | SetMemory) -> Outcome:
    """The outcome of a refused request, after the job's own is written again.

    A pending job of which Slurm refuses a request keeps none in force, though scontrol shows the one before: it would
    start without GPUs (seen on 26.05.5). CPUs are in force already when Slurm checks the limits of the job.
    """
    again = _sent(tell, replace(action, new=action.base))
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
