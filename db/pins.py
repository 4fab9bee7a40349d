"""Node lists and requests given to jobs, on disk before Slurm hears of them: what a daemon that starts must know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.db.either import Either
from slurmsched.model.pins import Pin

if TYPE_CHECKING:
    from slurmsched.db.shared import SharedLines

COMPACT_BYTES = 1 << 20
_TYPES: dict[str, Any] = {
    "job_id": int, "submit_s": (int, float), "since_s": (int, float), "nodes": str, "base": str, "values": list,
    "over": bool, "note": str, "gpus": str, "own_gpus": str, "requests": list,
}  # fmt: skip
_LATER = frozenset({"gpus", "own_gpus", "requests"})  # lines written before requests were have none


class PinLog(Either):
    """A line whenever a job is about to get a list, and when it has its own back; of several of a job the last counts.

    An append-only file beside the journal; with a leader lease the database in its place (shared).
    """

    def __init__(
        self,
        journal: Path,
        clock: Callable[[], float] = time.time,
        *,
        shared: SharedLines | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(journal.with_name(f"{journal.stem}.pins.jsonl"), _sound, shared, lenient=lenient)
        self._clock = clock

    def note(self, pins: Iterable[Pin]) -> None:
        """Put these on disk, synced. Raises LedgerError; then none of them may be sent."""
        self.put(self._line(pin) for pin in pins)

    def known(self) -> dict[int, Pin]:
        """The last record of each job, by id.

        Raises LedgerError for a line that cannot be read: no list may be given or taken back on doubt.
        """
        values = (line["pin"] for line in self.objects("pins"))
        return {pin["job_id"]: self.made(Pin, _tuples(pin)) for pin in values}

    def keep(self, pins: Iterable[Pin]) -> None:
        """Drop all but these once the file has grown. Raises LedgerError."""
        if self.store.size > COMPACT_BYTES:
            self.rewrite([self._line(pin) for pin in pins])

    def _line(self, pin: Pin) -> bytes:
        return self.line({"event": "pin", "time_s": self._clock(), "pin": asdict(pin)})


def _sound(line: Mapping[str, Any]) -> bool:
    pin = line.get("pin")
    if not isinstance(pin, dict) or not set(_TYPES) - _LATER <= set(pin):
        return False
    return all(isinstance(pin[key], kind) for key, kind in _TYPES.items() if key in pin)


def _tuples(pin: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in pin.items()}
