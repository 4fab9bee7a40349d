"""The signals that `job wants` sends: each on disk before it is sent, in a file beside the journal.

Only who holds the lock writes the journal itself. A signal may go out while the daemon holds it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurmsched.db.journal_file import LineFile, as_line
from slurmsched.model.job_details import HistoryRow
from slurmsched.model.plan import Outcome, Signal
from slurmsched.paths import SIGNALS_SUFFIX, refuse_root

FULL_BYTES = 1 << 20  # then the file becomes the older one, in place of the one before
UNANSWERED = "no answer on record"


class SignalLog:
    """Append-only file of signals and of what Slurm answered. Each line is written in one go: several may write.

    journal: the file that it stands beside.
    clock: Unix seconds.
    """

    def __init__(self, journal: Path, clock: Callable[[], float] = time.time) -> None:
        path = journal.with_name(journal.stem + SIGNALS_SUFFIX)
        self._file, self._older = LineFile(path, _sound), LineFile(path.with_name(f"{path.name}.old"), _sound)
        self._clock = clock

    def intend(self, signal: Signal, by: str) -> str:
        """Put the signal on disk, synced. by: the user that asks for it. Returns its id, for the answer.

        Raises LedgerError, or RightsError for root in a folder of another user. Then it may not be sent.
        """
        refuse_root(self._file.path)
        if self._file.size > FULL_BYTES:
            self._file.path.replace(self._older.path)
        line = {"event": "signal", "id": secrets.token_hex(8), "time_s": self._clock(), "job_id": signal.job_id,
                "submit_s": signal.submit_s, "signal": signal.signal, "reason": signal.reason, "by": by}  # fmt: skip
        self._file.append([as_line(line)], sync=True)
        return str(line["id"])

    def answered(self, sent: str, outcome: Outcome) -> None:
        """Note Slurm's answer. sent: the id. Raises LedgerError; the signal is on record all the same."""
        line = {"event": "outcome", "id": sent, "time_s": self._clock(), "job_id": outcome.action.job_id}
        self._file.append([as_line(line | {"status": outcome.status, "message": outcome.message})], sync=False)

    def rows(self, job_id: int) -> list[HistoryRow]:
        """The signals to a job, oldest first, each with Slurm's answer. Raises LedgerError if a file is not readable.

        A line that cannot be read is left out: nothing is sent or restored by it.
        """
        lines = [line for file in (self._older, self._file) for _, _, line in file.read()
                 if line is not None and line["job_id"] == job_id]  # fmt: skip
        answers = {line["id"]: ": ".join(filter(None, (line["status"], line["message"])))
                   for line in lines if line["event"] == "outcome"}  # fmt: skip
        return [
            HistoryRow(line["time_s"], f"slurmsched job wants ({line['by']})", f"signal {line['signal']}",
                       line["reason"], answers.get(line["id"], UNANSWERED))
            for line in lines if line["event"] == "signal"
        ]  # fmt: skip


_KEYS: dict[str, dict[str, Any]] = {
    "signal": {"id": str, "time_s": (int, float), "job_id": int, "signal": str, "reason": str, "by": str},
    "outcome": {"id": str, "job_id": int, "status": str, "message": str},
}


def _sound(line: dict[str, Any]) -> bool:
    keys = _KEYS.get(str(line.get("event")))
    return keys is not None and all(isinstance(line.get(name), kind) for name, kind in keys.items())
