"""A trace that can be shared: names hashed with a key, ids renumbered, the calendar moved by whole weeks."""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Labels
from slurmsched.replay.trace_files import Recorded

HIDDEN = {
    "user": "u",
    "account": "a",
    "name": "n",
    "partition": "p",
    "qos": "q",
}  # column -> first letter of its new names
WEEK_S = 604_800.0
DIGEST_BYTES = 6  # 48 bits: two of a million names meet with a chance of 0.2 %


@dataclass(frozen=True, slots=True)
class Anonymiser:
    """What to hide and how. The same key gives the same names, in every trace.

    key: up to 64 bytes, kept by whoever shares. models: hide the models' names too. calendar: keep hour and weekday;
    else no date at all. shift_s: added to the calendar.
    """

    key: bytes
    models: bool = False
    calendar: bool = True
    shift_s: float = 0.0

    def apply(self, recorded: Recorded) -> Recorded:
        """The trace without names. Sizes, times between events, GPU types and states stay: they are its use."""
        trace = recorded.trace
        columns = HIDDEN | ({"model": "m"} if self.models else {})
        hidden = {name: self.hide(getattr(trace, name), letter) for name, letter in columns.items()}
        ids = np.arange(1, len(trace) + 1)
        origin_s = recorded.origin_s % WEEK_S + self.shift_s if self.calendar else math.nan
        hidden["comment"] = Labels.constant("", len(trace))  # free text, which may tell anything
        return replace(recorded, trace=trace.with_columns(job_id=ids, **hidden), origin_s=origin_s, warnings=())

    def hide(self, labels: Labels, letter: str) -> Labels:
        """The column with each name as letter and hash; the same name of another column gets another."""
        made = Labels.of([self.name(name, letter) for name in labels.names])
        return made.take(labels.codes) if len(labels) else labels

    def name(self, name: str, letter: str) -> str:
        """What a name becomes; "" stays."""
        if not name:
            return ""
        digest = hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, key=self.key, person=letter.encode()
        )
        return letter + digest.hexdigest()


def new_key() -> bytes:
    """A key that nobody keeps: names cannot be made equal to those of another trace."""
    return secrets.token_bytes(32)


def read_key(path: Path) -> bytes:
    """The key of a file, in hexadecimal, made for its owner alone if there is none. Raises InputError."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(new_key().hex(), encoding="ascii")
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be used as a key file: {error}", source=str(path)) from error
    if not 16 <= len(key) <= 64:
        raise InputError("must hold 16 to 64 bytes in hexadecimal", source=str(path))
    return key
