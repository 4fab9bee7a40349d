"""The journal: every lever value slurmsched ever meant to write, on disk before Slurm hears of it.

One JSON object a line. An "intend" line is synced to disk before its action is sent; an "outcome" line
follows the answer. With the database lost, `undo` still knows every job that was touched, and its base.
With a leader lease each line is in the database too, for the hosts that have not written it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slurmsched.db.lines import Lines, as_line
from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger
from slurmsched.model.plan import Outcome, SetLever

if TYPE_CHECKING:
    from slurmsched.db.shared import SharedLines

log = get_logger()


class LeverKey(NamedTuple):
    """One lever of one job, as the snapshot saw the job."""

    job_id: int
    submit_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class LeverRecord:
    """What the journal knows of one lever of one job.

    kind: "nice" or "site_factor". base: the value that undo restores. values: every value ever
    intended. last: the latest of them. submit_s: the latest submit time it was seen under.
    """

    job_id: int
    submit_s: float
    kind: str
    base: int
    values: frozenset[int]
    last: int


class Journal(Lines):
    """Append-only file of intentions and outcomes. clock: Unix seconds. shared: where other hosts see them.

    lenient: for undo. What cannot be put down is sent all the same, with a warning, since it only gives values back.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        shared: SharedLines | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(path, _sound)
        self._clock, self._shared, self._lenient = clock, shared, lenient
        self._last = self._settled = (0, 0.0)

    @property
    def size(self) -> int:
        """Bytes of the file or of the shared lines, whichever are more."""
        return max(super().size, self._shared.size if self._shared else 0)

    @property
    def written_s(self) -> float:
        """When something was written to it last [Unix s]; -inf if never. Raises LedgerError.

        inf where the last line is another leader's, whose clock is not ours, and was not settled yet.
        """
        if self._shared is not None:
            self._last = self._shared.last()
            if self._last not in ((0, 0.0), self._settled) and self._last[0] != self._shared.term:
                return inf
        try:
            return self.path.stat().st_mtime
        except OSError:
            return -inf

    def settle(self) -> None:
        """What written_s told of is in the ledger now."""
        self._settled = self._last

    def intend(self, cycle: str, actions: Sequence[SetLever]) -> None:
        """Put the actions on disk, synced. Raises LedgerError; then none of them may be sent.

        A job without a submit time could not be told from another under its id: nobody should plan for it.
        """
        now_s = self._clock()
        unknown = [action.job_id for action in actions if not isfinite(action.submit_s)]
        if unknown:
            raise LedgerError(f"{self.path}: job {unknown[0]} has no submit time to be known by; nothing was sent")
        term = self._shared.term if self._shared else None
        lines = [_intention(now_s, cycle, action, term) for action in actions]
        try:
            if self._shared is not None:
                self._shared.append(lines)
            self.append(lines, sync=True)
        except LedgerError as error:
            if not self._lenient:
                raise
            log.warning("record.not_written", error=str(error))

    def outcome(self, cycle: str, outcomes: Iterable[Outcome]) -> None:
        """Note what became of actions. Not synced: an intention without outcome counts as sent. Raises LedgerError."""
        now_s = self._clock()
        self.append((_outcome(now_s, cycle, outcome) for outcome in outcomes), sync=False)

    def levers(self, *, lenient: bool = False) -> dict[LeverKey, LeverRecord]:
        """Every lever ever intended. lenient: skip bad lines with a warning (undo), else raise LedgerError."""
        records: dict[LeverKey, LeverRecord] = {}
        for line in self.lines(lenient=lenient):
            if line["event"] == "intend":
                key = LeverKey(line["job_id"], line["submit_s"], line["kind"])
                records[key] = _joined(records.get(key), key, line)
        return records

    def compact(self, live_job_ids: Collection[int] | None = None) -> int:
        """Drop the lines of jobs that left the queue (None: of no job); how many. The file is replaced as a whole or
        not at all.

        Lines that cannot be read are moved to `<name>.bad` beside it, with one warning. Raises LedgerError.
        """
        if self._lenient:
            return 0
        live = None if live_job_ids is None else frozenset(live_job_ids)
        dropped, bad = 0, list[bytes]()

        def kept() -> Iterator[bytes]:
            nonlocal dropped
            for _, raw, line in self.read():
                if line is None:
                    bad.append(raw)
                elif live is None or line["job_id"] in live:
                    yield raw.rstrip(b"\n") + b"\n"
                else:
                    dropped += 1
            self.set_aside(bad)  # before the new file takes the place of the one that has them

        self.replace(kept())
        if self._shared is not None:
            parsed = [(raw, self._parsed(raw)) for raw in self._shared.read()]
            kept_of = (raw for raw, line in parsed if line and (live is None or line["job_id"] in live))
            self._shared.replace(raw + b"\n" for raw in kept_of)
        return dropped

    def lines(self, *, lenient: bool = False) -> Iterator[dict[str, Any]]:
        """The objects of the file, oldest first, then those that all hosts share; a torn last line is left out.

        Raises as `levers`; lenient: shared lines that cannot be had are left out with a warning.
        """
        bad: list[int] = []
        for number, _, line in self.read():
            if line is not None:
                yield line
            elif lenient:
                bad.append(number)
            else:
                raise LedgerError(f"{self.path}:{number}: not a line of the journal; repair or remove that line")
        if bad:
            log.warning("journal.lines_skipped", path=str(self.path), lines=len(bad), first=bad[0])
        yield from filter(None, map(self._parsed, self._of_others(lenient=lenient)))

    def _of_others(self, *, lenient: bool) -> list[bytes]:
        try:
            return list(self._shared.read()) if self._shared else []
        except LedgerError as error:
            if not lenient:
                raise
            log.warning("journal.others_unknown", error=str(error))
            return []


def by_job(levers: Mapping[LeverKey, LeverRecord], kind: str) -> dict[int, LeverRecord]:
    """The records of one lever by job id, those of all submit times of an id in one.

    A requeue moves the submit time and keeps the lever, so an id seen under two submit times is the same
    job, unless ids have wrapped around: then its lever holds none of `values`, which is the sign to leave
    it alone. base and last are of the latest submit time.
    """
    joined: dict[int, LeverRecord] = {}
    for record in sorted((r for r in levers.values() if r.kind == kind), key=lambda r: r.submit_s):
        before = joined.get(record.job_id)
        joined[record.job_id] = replace(record, values=record.values | before.values) if before else record
    return joined


def _joined(before: LeverRecord | None, key: LeverKey, line: Mapping[str, Any]) -> LeverRecord:
    values = (before.values if before else frozenset()) | {line["new"]}
    return LeverRecord(key.job_id, key.submit_s, key.kind, line["base"], values, line["new"])


def _intention(now_s: float, cycle: str, action: SetLever, term: int | None) -> bytes:
    line = {"event": "intend", "time_s": now_s, "cycle": cycle, "kind": action.kind, "job_id": action.job_id}
    line |= {"submit_s": action.submit_s, "old": action.old, "new": action.new, "base": action.base}
    return as_line(line | {"reason": action.reason} | ({} if term is None else {"term": term}))


def _outcome(now_s: float, cycle: str, outcome: Outcome) -> bytes:
    action = outcome.action
    line = {"event": "outcome", "time_s": now_s, "cycle": cycle, "kind": action.kind, "job_id": action.job_id}
    return as_line(line | {"submit_s": action.submit_s, "status": outcome.status, "message": outcome.message})


_NEEDED: dict[str, dict[str, Any]] = {
    "intend": {"job_id": int, "submit_s": (int, float), "kind": str, "new": int, "base": int},
    "outcome": {"job_id": int},
}


def _sound(line: Mapping[str, Any]) -> bool:
    needed = _NEEDED.get(line.get("event", ""))
    return needed is not None and all(isinstance(line.get(name), kind) for name, kind in needed.items())
