"""The earliest starts given to jobs, on disk before Slurm hears of them: for a daemon that starts, and for undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.db.either import Either
from slurmsched.model.deferrals import Deferral

if TYPE_CHECKING:
    from slurmsched.db.shared import SharedLines

COMPACT_BYTES = 1 << 20
_TYPES: dict[str, Any] = {
    "job_id": int, "submit_s": (int, float), "until_s": (int, float), "over": bool, "note": str, "values": list,
    "base_s": (int, float),
}  # fmt: skip
_LATER = frozenset({"values", "base_s"})  # lines written before these were have none


class DeferralLog(Either):
    """A line whenever a job is about to get a start, and when it has its own back; of several of a job the last counts.

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
        super().__init__(journal.with_name(f"{journal.stem}.deferrals.jsonl"), _sound, shared, lenient=lenient)
        self._clock = clock

    def note(self, deferrals: Iterable[Deferral]) -> None:
        """Put these on disk, synced. Raises LedgerError; then none of them may be sent."""
        self.put(self._line(record) for record in deferrals)

    def known(self) -> dict[int, Deferral]:
        """The last record of each job, by id. Raises LedgerError for a line that cannot be read."""
        values = (line["deferral"] for line in self.objects("deferrals"))
        return {
            told["job_id"]: self.made(Deferral, told | {"values": tuple(told.get("values", ()))}) for told in values
        }

    def keep(self, deferrals: Iterable[Deferral]) -> None:
        """Drop all but these once the file has grown. Raises LedgerError."""
        if self.store.size > COMPACT_BYTES:
            self.rewrite([self._line(record) for record in deferrals])

    def _line(self, record: Deferral) -> bytes:
        return self.line({"event": "deferral", "time_s": self._clock(), "deferral": asdict(record)})


def _sound(line: Mapping[str, Any]) -> bool:
    told = line.get("deferral")
    if not isinstance(told, dict) or not set(_TYPES) - _LATER <= set(told):
        return False
    return all(isinstance(told[key], kind) for key, kind in _TYPES.items() if key in told)
