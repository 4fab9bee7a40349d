"""The operations under way, on disk before Slurm hears of them: what a daemon that starts must finish or take back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.config import Config
from slurmsched.db.boot_clock import BootClock
from slurmsched.db.journal_file import JournalFile
from slurmsched.model.durations import HOUR_S
from slurmsched.model.operations import NodeWait, Operation, OperationStage, Purpose, Victim

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import SharedLines
    from slurmsched.db.ledger_queries import OperationFacts

COMPACT_BYTES = 1 << 20
_OWN_TIMES = ("begun_s", "stage_s", "seen_s", "promised_s")
_TEXTS, _NUMBERS = ("id", "user", "nodes"), ("job_id", "submit_s", "time_limit_s", "begun_s")


class OperationLog(JournalFile):
    """One line whenever an operation is about to move on, one when that was sent.

    An append-only file beside the journal; with a leader lease the database in its place (shared), so that whoever
    takes over knows them.
    keep_s: closed operations begun so lately are remembered, since caps and leases count them.
    """

    def __init__(
        self,
        journal: Path,
        clock: BootClock = BootClock(),  # noqa: B008  # frozen
        keep_s: float = HOUR_S,
        *,
        shared: SharedLines | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(
            journal.with_name(f"{journal.stem}.operations.jsonl"), _is_operation_line, shared, lenient=lenient
        )
        self._clock, self.keep_s = clock, keep_s
        self._read: dict[str, Any] = {}
        self._redated = False  # lines of another clock than ours were of a time to come

    def begin(self, operations: Sequence[Operation]) -> None:
        """Put on disk, synced, how these operations are from now on. Raises LedgerError; then none of their steps may
        go."""
        if self._redated:  # closed ones are by our clock too from now on, or they would count as begun now each time
            self.compact()
            self._redated = False
        self.put(self._line(operation, sent=False) for operation in operations)

    def sent(self, operations: Sequence[Operation]) -> None:
        """Note that all steps of these operations were answered; the operations as they are after that. Raises
        LedgerError."""
        self.put(self._line(operation, sent=True) for operation in operations)
        if operations and self.store.size > COMPACT_BYTES:
            self.compact()

    def open(self) -> tuple[Operation, ...]:
        """The operations that are not closed, oldest first. Raises LedgerError as `known` does."""
        return tuple(operation for operation in self.known() if operation.stage != OperationStage.CLOSED)

    def known(self) -> tuple[Operation, ...]:
        """All that are open or were begun lately, oldest first; one whose last steps may or may not have been sent is
        not sure. Where the wall clock was set since a line was written, its times are told by the clock of now; a line
        of a time to come, by a clock that is not ours, counts as written now.

        Raises LedgerError for a line that cannot be read: no operation may be begun or ended on doubt.
        """
        latest: dict[str, Operation] = {}
        self._read = self._clock.mark()
        for line in self.objects("operations"):
            operation, step_s = self._operation(line["operation"], sure=line["sent"]), self._clock.step_s(line)
            latest[operation.id] = _at_step(operation, line["time_s"], step_s)
            self._redated |= bool(step_s) and self._clock.elsewhere(line)
        since_s = self._clock.wall() - self.keep_s
        return tuple(
            operation
            for operation in latest.values()
            if operation.stage != OperationStage.CLOSED or operation.begun_s > since_s
        )

    def stepped(self) -> bool:
        """Whether the wall clock was set since the record was read last: then it is to be read again."""
        return bool(self._read) and bool(self._clock.step_s(self._read))

    def compact(self) -> None:
        """Drop what is closed and no longer remembered. Raises LedgerError."""
        self.rewrite([self._line(operation, sent=operation.sure) for operation in self.known()])

    def _operation(self, values: Mapping[str, Any], *, sure: bool) -> Operation:
        plain = {
            **values,
            "stage": OperationStage(values["stage"]),
            "purpose": Purpose(values["purpose"]),
            "sure": sure,
        }
        plain["victims"] = tuple(self.made(Victim, victim) for victim in values["victims"])
        plain["waits"] = tuple(self.made(NodeWait, wait) for wait in values.get("waits", ()))
        return self.made(Operation, plain)

    def _line(self, operation: Operation, *, sent: bool) -> bytes:
        return self.line(
            {
                "event": "operation",
                **self._clock.mark(),
                "sent": sent,
                "operation": asdict(replace(operation, sure=True)),
            }
        )


def operations_on_record(config: Config) -> tuple[Operation, ...]:
    """The operations that are not closed, from the file or, where hosts take turns, the database. Raises
    LedgerError."""
    if not config.leader.enabled:
        return OperationLog(config.ledger.journal).open()
    from slurmsched.db.leader_lease import open_leader_files

    with closing(open_leader_files(config)) as lead:
        return OperationLog(config.ledger.journal, shared=lead.operations).open()


def operation_facts(config: Config, since_s: float) -> list[OperationFacts]:
    """Operations at work since then, oldest first, by the ledger; of open ones what is idle up to the last cycle
    counts. Raises LedgerError."""
    from slurmsched.db.ledger_queries import operations_since

    idle_gpu_s = {operation.id: operation.idle_gpu_s for operation in operations_on_record(config)}
    return [
        replace(each, idle_gpu_s=max(each.idle_gpu_s, idle_gpu_s.get(each.operation, 0.0)))
        for each in operations_since(config.ledger.address, since_s)
    ]


def _is_operation_line(line: Mapping[str, Any]) -> bool:
    operation = line.get("operation")
    if not (
        isinstance(operation, dict)
        and isinstance(line.get("sent"), bool)
        and isinstance(line.get("time_s"), int | float)
    ):
        return False
    typed = all(isinstance(operation.get(name), str) for name in _TEXTS) and isinstance(operation.get("victims"), list)
    known = all(isinstance(operation.get(name), int | float) for name in _NUMBERS)
    times = all(isinstance(operation.get(name, 0.0), int | float) for name in _OWN_TIMES)
    parts = all(
        _has_required_fields(operation.get(name, []), kind) for name, kind in (("victims", Victim), ("waits", NodeWait))
    )
    return (
        typed
        and known
        and times
        and parts
        and operation.get("stage") in [*OperationStage]
        and operation.get("purpose") in [*Purpose]
    )


def _has_required_fields(rows: Any, kind: type[Victim | NodeWait]) -> bool:
    """Whether each row has what this kind cannot be without."""
    needed = {spec.name for spec in fields(kind) if spec.default is MISSING and spec.default_factory is MISSING}
    return isinstance(rows, list) and all(isinstance(row, dict) and needed <= row.keys() for row in rows)


def _at_step(operation: Operation, time_s: float, step_s: float) -> Operation:
    """The operation by a wall clock that was set by so much since time_s: what was past or present then has its age
    still.

    What was to come is Slurm's time, such as the begin of a reservation, and stays.
    """
    if not step_s:
        return operation
    moved = {name: at_s + step_s for name in _OWN_TIMES if 0 < (at_s := getattr(operation, name)) <= time_s}
    return replace(operation, **moved)
