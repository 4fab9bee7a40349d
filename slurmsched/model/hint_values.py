"""Values of hints: the form of each and what is wrong with another.

Every parser takes the text after `=` and raises ValueError with the rest of the sentence "VALUE ...".
"""

from __future__ import annotations

import math
import re
import signal
from dataclasses import dataclass
from datetime import datetime

from slurmsched.model.durations import duration_s

TOPOLOGIES = ("nvlink", "numa", "switch", "any")
_LOSS = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
# Of all that Python takes, which changes with its version and which Slurm's Lua could not tell.
_ISO = re.compile(r"(?:19[7-9]\d|[2-9]\d{3})-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How to ask a job for a checkpoint: send `signal` (name without SIG), wait `lead_s` [s]."""

    signal: str
    lead_s: float

    def __str__(self) -> str:
        return f"{self.signal}@{self.lead_s:g}"


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a job must have ended: at a Unix time [s], or so long after its submission [s]."""

    at_s: float | None = None
    after_submit_s: float | None = None

    def due_s(self, submit_s: float) -> float:
        """The Unix time [s] for a job submitted at submit_s."""
        return self.at_s if self.at_s is not None else submit_s + (self.after_submit_s or 0.0)

    def __str__(self) -> str:
        if self.at_s is None:
            return f"{self.after_submit_s:g} s after submission"
        return datetime.fromtimestamp(self.at_s).astimezone().isoformat()


def yes_no(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise ValueError("is neither yes nor no")
    return text.lower() == "yes"


def checkpoint(text: str) -> Checkpoint:
    name, at, lead = text.partition("@")
    if not at or not name:
        raise ValueError("is not SIGNAL@SECONDS")
    lead_s = float(lead) if re.fullmatch(r"\d{1,6}", lead, re.ASCII) else duration_s(lead)
    return Checkpoint(signal_name(name.upper()), lead_s)


def signal_name(name: str) -> str:
    try:
        number = re.fullmatch(r"\d+", name, re.ASCII)
        found = signal.Signals(int(name)) if number else signal.Signals["SIG" + name.removeprefix("SIG")]
    except (KeyError, ValueError):
        raise ValueError("names no signal") from None
    if found in (signal.SIGKILL, signal.SIGSTOP):
        raise ValueError("names a signal that no program can catch")
    return found.name.removeprefix("SIG")


def save_signal(text: str) -> str:
    return signal_name(text.upper())


def deadline(text: str) -> Deadline:
    if text.startswith("+"):
        return Deadline(after_submit_s=duration_s(text[1:]))
    try:
        if _ISO.fullmatch(text):
            return Deadline(at_s=datetime.fromisoformat(text).timestamp())
    except ValueError:
        pass
    raise ValueError("is neither an ISO time nor +DURATION")


def progress(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)", text, re.ASCII)
    if not match:
        raise ValueError("is not DONE/TOTAL")
    done, total = map(float, match.groups())
    if not 0 < total < math.inf or done > total:
        raise ValueError("has more done than there is in total")
    return done / total


def losses(text: str) -> float:
    """What the last step took off the loss over all that has been taken off so far, 0 to 1; 1 before any step."""
    first, before, now = loss_steps(text)
    if first == before == now:
        return 1.0
    return min(max(before - now, 0.0) / (first - now), 1.0) if first > now else 0.0


def loss_steps(text: str) -> tuple[float, float, float]:
    """Loss of the first step, of the step before and of now."""
    match = re.fullmatch(rf"({_LOSS}):({_LOSS}):({_LOSS})", text, re.ASCII)
    first, before, now = map(float, match.groups()) if match else (math.inf,) * 3
    if math.inf in (first, before, now):
        raise ValueError("is not FIRST:BEFORE:NOW")
    return first, before, now


def number(text: str) -> float:
    """A number of at least 0, such as 512, 0.76 or 9.9e-05."""
    if not re.fullmatch(_LOSS, text, re.ASCII) or not math.isfinite(float(text)):
        raise ValueError("is no number of at least 0")
    return float(text)


def part(text: str) -> float:
    """A number above 0 and below 1, such as 0.25."""
    if not re.fullmatch(_LOSS, text, re.ASCII) or not 0 < float(text) < 1:
        raise ValueError("is no number above 0 and below 1")
    return float(text)


def topology(text: str) -> str:
    if text.lower() not in TOPOLOGIES:
        raise ValueError(f"is none of {', '.join(TOPOLOGIES)}: choose one")
    return text.lower()


def count(text: str) -> int:
    if not re.fullmatch(r"\d{1,7}", text, re.ASCII) or int(text) == 0:
        raise ValueError("is no whole number above zero")
    return int(text)


def gibibytes(text: str) -> int:
    """A whole number of GiB, alone or with Slurm's G."""
    try:
        return count(text.upper().removesuffix("G"))
    except ValueError:
        raise ValueError("is no whole number of GiB, such as 32 or 32G") from None


def counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({count(part) for part in text.split(":")}))


def name(text: str) -> str:
    if not re.fullmatch(r"[\w.+/-]{1,64}", text, re.ASCII):
        raise ValueError("is no name of at most 64 letters, digits and . _ + / -")
    return text
