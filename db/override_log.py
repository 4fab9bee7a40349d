"""The override log: every value that slurmsched ever meant to write to a job, on disk before Slurm hears of it.

It is a file with one JSON object a line. An "override" line is synced to disk before its action is sent; an "outcome"
line follows the answer. With the database lost, `undo` still has every job that was touched, and its base.
With a leader lease each line is in the database too, for the hosts that have not written it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.db.journal_file import JournalFile, as_line
from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger
from slurmsched.model.overrides import PRIORITY, Override, OverrideState
from slurmsched.model.plan import Outcome, SetPriority

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import SharedLines

log = get_logger()

_DEFAULTS = {spec.name: spec.default for spec in fields(Override)}
_NEEDED = tuple(name for name, default in _DEFAULTS.items() if default is MISSING)
_TYPES: dict[str, Any] = {
    "job_id": int, "submit_s": (int, float), "field": str, "base": (int, float, str), "sent": (int, float, str),
    "state": str, "values": list, "since_s": (int, float), "note": str,
    "accounting": bool,
}  # fmt: skip
# How lines begin that no cycle needs unless it was cut: most lines by far, so that they are passed over unread.
_PRIORITY_LINES = tuple(f'{{"event":"override","field":"{name}"'.encode() for name in PRIORITY)
_OUTCOMES = b'{"event":"outcome"'


class OverrideLog(JournalFile):
    """Append-only file of overrides and outcomes.

    clock: Unix seconds.
    shared: where other hosts see them.
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
        super().__init__(path, _is_override_line, shared, lenient=lenient)
        self._clock = clock
        self._last = self._settled = (0, 0.0)
        self.replaced = 0  # records that later ones replace, as `known` found them

    @property
    def size(self) -> int:
        """Bytes of the file or of the shared lines, whichever are more."""
        return max(super().size, self._shared.size if self._shared else 0)

    @property
    def shared(self) -> bool:
        """Whether other hosts may write to it too."""
        return self._shared is not None

    @property
    def term(self) -> int:
        """The term under which lines are written, 0 without a leader lease."""
        return self._shared.term if self._shared else 0

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
        """Mark the lines that written_s returned as being in the ledger."""
        self._settled = self._last

    def record(self, overrides: Iterable[Override]) -> None:
        """Put these on disk, synced. Raises LedgerError; then none of them may be sent."""
        now_s = self._clock()
        self._put([self.line(_line(now_s, record)) for record in overrides])

    def intend(self, cycle: str, actions: Sequence[SetPriority]) -> None:
        """Put the overrides of these actions on disk, synced, each with the old value and the reason.

        Raises LedgerError; then none of them may be sent. A job without a submit time could not be told from another
        under its id: nobody should plan for it.
        """
        now_s = self._clock()
        unknown = [action.job_id for action in actions if not isfinite(action.submit_s)]
        if unknown:
            raise LedgerError(f"{self.path}: job {unknown[0]} has no submit time to be known by; nothing was sent")
        self._put([self.line(_intention(now_s, cycle, action)) for action in actions])

    def outcome(self, cycle: str, outcomes: Iterable[Outcome]) -> None:
        """Note what became of actions. Not synced: an override without outcome counts as sent. Raises LedgerError."""
        now_s = self._clock()
        self.append((as_line(_outcome(now_s, cycle, outcome)) for outcome in outcomes), sync=False)

    def known(self) -> dict[tuple[int, str], Override]:
        """The last record of each job and field; without nice and site factor, of which the ledger knows.

        Raises LedgerError for a line that cannot be read: nothing may be given or taken back on doubt.
        """
        found: dict[tuple[int, str], Override] = {}
        self.replaced = 0
        for line in self.objects("journal", skip=(*_PRIORITY_LINES, _OUTCOMES)):
            if line["event"] == "override" and line["field"] not in PRIORITY:
                record = self._record(line)
                self.replaced += record.key in found
                found[record.key] = record
        return found

    def priorities(self, *, lenient: bool = False) -> tuple[Override, ...]:
        """One record for each nice and site factor of a job under one submission, in the order of their first lines.

        values: every value ever meant for it. lenient: skip bad lines with a warning (undo), else raise LedgerError.
        """
        latest: dict[tuple[int, float, str], dict[str, Any]] = {}
        values: dict[tuple[int, float, str], dict[int, None]] = {}
        for line in self.lines(lenient=lenient):
            if line["event"] == "override" and line["field"] in PRIORITY:
                key = (line["job_id"], line["submit_s"], line["field"])
                latest[key] = line
                values.setdefault(key, {})[line["sent"]] = None
        return tuple(replace(self._record(line), values=tuple(values[key])) for key, line in latest.items())

    def compact(self, live_job_ids: Collection[int] | None = None) -> int:
        """Drop the lines of jobs that left the queue (None: of no job), and records that later ones replace; how many.
        The file is replaced as a whole or not at all.

        Lines that cannot be read are moved to `<name>.bad` beside it, with one warning. Raises LedgerError.
        """
        if self.lenient:
            return 0
        self.replaced = 0
        live = None if live_job_ids is None else frozenset(live_job_ids)
        dropped, bad, latest = 0, list[bytes](), _latest(line for _, _, line in self.read())

        def kept() -> Iterator[bytes]:
            nonlocal dropped
            for number, raw, line in self.read():
                if line is None:
                    bad.append(raw)
                elif _keeps_line(number, line, live, latest):
                    yield raw.rstrip(b"\n") + b"\n"
                else:
                    dropped += 1
            self.set_aside(bad)  # before the new file takes the place of the one that has them

        self.replace(kept())
        if self._shared is not None:
            parsed = [(raw, self._parsed(raw)) for raw in self._shared.read()]
            latest = _latest(line for _, line in parsed)
            rows = ((number, raw, line) for number, (raw, line) in enumerate(parsed, 1) if line)
            self._shared.replace(raw + b"\n" for number, raw, line in rows if _keeps_line(number, line, live, latest))
        return dropped

    def lines(self, *, lenient: bool = False) -> Iterator[dict[str, Any]]:
        """The objects of the file, oldest first, then those that all hosts share; a torn last line is left out.

        Raises as `priorities`; lenient: shared lines that cannot be had are left out with a warning.
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

    def _put(self, lines: Sequence[bytes]) -> None:
        """Into the shared lines, and into the file of this host. Raises LedgerError; then nothing may be sent."""
        try:
            if self._shared is not None:
                self._shared.append(lines)
            self.append(lines, sync=True)
        except LedgerError as error:
            if not self.lenient:
                raise
            log.warning("record.not_written", error=str(error))

    def _of_others(self, *, lenient: bool) -> list[bytes]:
        try:
            return list(self._shared.read()) if self._shared else []
        except LedgerError as error:
            if not lenient:
                raise
            log.warning("journal.others_unknown", error=str(error))
            return []

    def _record(self, line: Mapping[str, Any]) -> Override:
        state = OverrideState(line.get("state", OverrideState.ACTIVE))
        return Override(**{name: _as_tuple(line[name]) for name in _DEFAULTS if name in line} | {"state": state})


def records_by_job(records: Iterable[Override], field: str) -> dict[int, Override]:
    """The records of one field by job id, those of all submissions of an id in one.

    A requeue moves the submit time and keeps nice and site factor. So an id seen under two submit times is the same
    job, unless ids have wrapped around. Then it holds none of `values`, and it is not changed. base and sent are of the
    latest submission.
    """
    joined: dict[int, Override] = {}
    for record in sorted((each for each in records if each.field == field), key=lambda each: each.submit_s):
        before = joined.get(record.job_id)
        values = (*before.values, *record.values) if before else record.values
        joined[record.job_id] = replace(record, values=tuple(dict.fromkeys(values)))
    return joined


def _line(now_s: float, record: Override) -> dict[str, Any]:
    """A record as a line, without what is as by default."""
    values = {name: getattr(record, name) for name in _DEFAULTS}
    written = {name: value for name, value in values.items() if name in _NEEDED or value != _DEFAULTS[name]}
    return {"event": "override", "field": record.field, "time_s": now_s} | written


def _intention(now_s: float, cycle: str, action: SetPriority) -> dict[str, Any]:
    line = {"event": "override", "field": action.kind, "time_s": now_s, "cycle": cycle, "job_id": action.job_id}
    line |= {"submit_s": action.submit_s, "old": action.old, "sent": action.new, "base": action.base}
    return line | {"reason": action.reason}


def _outcome(now_s: float, cycle: str, outcome: Outcome) -> dict[str, Any]:
    action = outcome.action
    line = {"event": "outcome", "field": action.kind, "time_s": now_s, "cycle": cycle, "job_id": action.job_id}
    return line | {"submit_s": action.submit_s, "status": outcome.status, "message": outcome.message}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _latest(lines: Iterable[dict[str, Any] | None]) -> dict[tuple[int, str], int]:
    """Number of the last line of each job and field of which only the last counts."""
    rows = ((number, line) for number, line in enumerate(lines, 1) if line and line["event"] == "override")
    return {(line["job_id"], line["field"]): number for number, line in rows if line["field"] not in PRIORITY}


def _keeps_line(
    number: int, line: Mapping[str, Any], live: Collection[int] | None, latest: Mapping[tuple[int, str], int]
) -> bool:
    if live is not None and line["job_id"] not in live:
        return False
    key = (line["job_id"], line.get("field", ""))
    return line["event"] == "outcome" or latest.get(key, number) == number


def _is_override_line(line: Mapping[str, Any]) -> bool:
    event = line.get("event")
    if event == "outcome":
        return isinstance(line.get("job_id"), int)
    if event != "override" or not all(name in line for name in _NEEDED):
        return False
    whole = line["field"] not in PRIORITY or (isinstance(line["sent"], int) and isinstance(line["base"], int))
    whole = whole and line.get("state", OverrideState.ACTIVE) in [*OverrideState]
    return whole and all(isinstance(line[name], kind) for name, kind in _TYPES.items() if name in line)
