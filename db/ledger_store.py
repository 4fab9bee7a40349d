"""The ledger as the cycle uses it: recall what is on record of the queue, append what a cycle did."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from slurmsched.config import Config
from slurmsched.db import database as engines
from slurmsched.db import ledger_records, move_costs, priority_overrides, schema, services
from slurmsched.db.attained_service import Completion, EarlierRun, RunEnded
from slurmsched.db.move_costs import MoveCosts
from slurmsched.db.override_log import OverrideLog, records_by_job
from slurmsched.db.priority_overrides import PriorityCheck, PriorityOverride, PriorityOverrides
from slurmsched.db.remembered_jobs import HISTORY_JOBS
from slurmsched.db.services import Observation, RunSources, Services
from slurmsched.errors import LedgerError
from slurmsched.model.columns import Floats, frozen
from slurmsched.model.jobs import Jobs
from slurmsched.model.operations import Operation, OperationStage
from slurmsched.model.overrides import Override
from slurmsched.model.plan import Action, Outcome, Plan, Receipt, Requeue, SetNice, SetSiteFactor, Step
from slurmsched.model.snapshot import Snapshot

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import LeaderFiles, LeaderLease

EarlierRuns = Callable[[Sequence[int]], Iterable[EarlierRun]]
SACCT_PAUSE_S = 600.0  # sacct that did not answer is left in peace this long
_ACTIONS: dict[str, type[SetNice] | type[SetSiteFactor]] = {"nice": SetNice, "site_factor": SetSiteFactor}


@dataclass(slots=True)
class LedgerState:
    """The last cycle, the memory of the jobs in the queue, and what the journal told since.

    last_s: clock of the last snapshot.
    recorded_s: when its cycle was put on record.
    retained_s: when old facts were dropped last; NaN if never.
    moves: what moves of jobs cost.
    history: attained service of completed jobs [GPU s], oldest first.
    journal: as read since the last cycle, None if it was not.
    doubted: jobs about which it was asked.
    """

    cycle_id: int
    last_s: float
    recorded_s: float
    services: Services
    overrides: PriorityOverrides
    history: Floats
    carry: Mapping[str, Any]
    retained_s: float
    moves: MoveCosts
    journal: list[Override] | None = None
    doubted: frozenset[int] = frozenset()


def _load(engine: Engine, config: Config, before: LedgerState | None) -> LedgerState:
    """What is on record now; `before` itself if no other process has appended a cycle since it was made."""
    with engine.connect() as connection:
        cycle_id, last_s, recorded_s = ledger_records.last_cycle(connection)
        if before is not None and before.cycle_id == cycle_id:
            return before
        return LedgerState(
            cycle_id,
            last_s,
            recorded_s,
            ledger_records.load_services(connection),
            ledger_records.load_priority_overrides(connection, config.lever.kind),
            ledger_records.history(connection),
            ledger_records.last_carry(connection, config.policy.name),
            ledger_records.last_done(connection),
            ledger_records.load_moves(connection),
        )


@dataclass(slots=True)
class _Look:
    """What one snapshot adds to what is on record; appended with its cycle."""

    snapshot: Snapshot
    begun_s: float
    seen: Observation
    check: PriorityCheck
    adopted: list[PriorityOverride]
    history: Floats
    moves: MoveCosts
    warnings: list[str] = field(default_factory=list)


class LedgerStore:
    """A Store (see protocols) on a database.

    earlier_runs: asks sacct for all runs of some jobs; None if it is not to be asked.
    journal: what to compare with after a crash.
    lease: without it nothing is remembered; None: this host is the only one.

    One process at a time writes: hold the lock. All methods raise LedgerError.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        config: Config,
        earlier_runs: EarlierRuns | None = None,
        journal: OverrideLog | None = None,
        warnings: Sequence[str] = (),
        read_only: bool = False,
        lease: LeaderLease | None = None,
    ) -> None:
        self._engine = engine
        self._config = config
        self._earlier_runs = earlier_runs
        self._journal = journal
        self._warnings = tuple(warnings)
        self._read_only = read_only
        self._lease = lease
        self._known: LedgerState | None = None
        self._look: _Look | None = None
        self._before: Snapshot | None = None
        self._refused_s = -inf  # when sacct did not answer last

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is remembered. Nothing is written yet: the same call gives the same answer.

        A ledger that could not be written afterwards is an error now, while no job has been touched.
        """
        begun_s = time.monotonic()
        if not self._read_only:
            engines.check_writable(self._engine)
        with engines.ledger_errors(self._engine):
            known = self._recorded()
            look = self._looked(known, snapshot, begun_s)
        self._look = look
        return look.snapshot

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember this cycle, in one transaction: all of it is on record, or nothing."""
        if self._read_only:
            raise LedgerError("the ledger is open for reading only; nothing was remembered")
        look = self._look
        if look is None or look.snapshot is not snapshot:
            self.recall(snapshot)
            look = self._look
        assert look is not None
        known, self._known, self._look = self._known, None, None  # read anew, should this fail
        assert known is not None
        with engines.ledger_errors(self._engine):
            self._known = self._appended(known, look, plan, receipt)
            self._before = look.snapshot
            self._retain(self._known, snapshot.now_s)
        if self._journal is not None:
            self._journal.settle()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _recorded(self) -> LedgerState:
        """What is on record, read anew if another process has worked since."""
        self._known = _load(self._engine, self._config, self._known)
        return self._known

    def _looked(self, known: LedgerState, snapshot: Snapshot, begun_s: float) -> _Look:
        now_s, lever = snapshot.now_s, self._config.lever
        seen = services.observe(
            known.services, snapshot, known.last_s, self._past(now_s), gpu_jobs_only=self._config.scope.gpu_jobs_only
        )
        if seen.refused:
            self._refused_s = now_s
        jobs = snapshot.jobs.with_columns(**services.columns(seen.services, snapshot.jobs, now_s))
        adopted, check = self._checked(known, jobs, now_s)
        moved = move_costs.observe_moves(known.moves, replace(snapshot, jobs=jobs))
        texts = (
            *snapshot.warnings,
            *self._warnings,
            *seen.warnings,
            priority_overrides.warning(jobs, check.suspects, lever.kind),
        )
        history = _learned(known.history, seen)
        recalled = replace(
            snapshot,
            jobs=jobs.with_columns(**check.columns, **move_costs.move_columns(moved, jobs)),
            history_gpu_s=frozen(np.sort(history), np.float64),
            carry=known.carry,
            warnings=tuple(text for text in texts if text),
        )
        if self._before is not None:
            from slurmsched.planning.quality import placed

            recalled = replace(recalled, placed=placed(self._before, recalled))
        return _Look(recalled, begun_s, seen, check, adopted, history, moved)

    def _past(self, now_s: float) -> RunSources:
        def ends(job_ids: Sequence[int]) -> dict[int, list[RunEnded]]:
            with self._engine.connect() as connection:
                return ledger_records.ends_of(connection, job_ids)

        ask = self._earlier_runs if self._config.ledger.sacct else None
        if ask is None or 0 <= now_s - self._refused_s < SACCT_PAUSE_S:
            return RunSources(ends, later=ask is not None)
        return RunSources(ends, lambda job_ids: list(ask(job_ids)), later=True)

    def _checked(self, known: LedgerState, jobs: Jobs, now_s: float) -> tuple[list[PriorityOverride], PriorityCheck]:
        """The overrides of nice or site factor after this look.

        The journal is read in three cases:

        - It is ahead of the ledger: a cycle was cut between writing and remembering, or the ledger is new.
        - A value that is not on record looks like one of ours.
        - A value is about to count as another user's.
        """
        lever = self._config.lever
        if self._journal_is_ahead(known):
            self._read_journal(known)
        adopted = priority_overrides.adopt(known.overrides, jobs, known.journal or (), lever.kind)
        check = priority_overrides.check(known.overrides.merged(adopted), jobs, now_s, lever)
        suspects = frozenset(jobs.job_id[check.suspects].tolist())
        if (check.changes or suspects - known.doubted) and self._read_journal(known):
            adopted = priority_overrides.adopt(known.overrides, jobs, known.journal or (), lever.kind)
            check = priority_overrides.check(known.overrides.merged(adopted), jobs, now_s, lever)
        known.doubted |= suspects
        return adopted, check

    def _read_journal(self, known: LedgerState) -> bool:
        """Whether the journal had not been read since the last cycle, and is now."""
        if self._journal is None or known.journal is not None:
            return False
        try:
            known.journal = list(records_by_job(self._journalled(self._journal), self._config.lever.kind).values())
        except LedgerError as error:
            if not self._read_only:
                raise
            known.journal = []
            self._warnings += (f"values written by a cycle that did not end are not known: {error}",)
        return True

    def _journalled(self, journal: OverrideLog) -> tuple[Override, ...]:
        """What the journal knows. A line that cannot be read is set aside, so that it is told of once only."""
        try:
            return journal.priorities()
        except LedgerError:
            if self._read_only:
                return journal.priorities(lenient=True)
            journal.compact()
            return journal.priorities()

    def _journal_is_ahead(self, known: LedgerState) -> bool:
        written_s = self._journal.written_s if self._journal else -inf
        return written_s > -inf and (isnan(known.recorded_s) or written_s > known.recorded_s)

    # Over 30 lines: all writes of a cycle in one transaction, in the order that they need.
    def _appended(self, known: LedgerState, look: _Look, plan: Plan, receipt: Receipt) -> LedgerState:
        snapshot, kind, policy = look.snapshot, self._config.lever.kind, self._config.policy.name
        jobs = snapshot.jobs
        made = priority_overrides.remember(look.check.overrides, jobs, receipt.outcomes, kind)
        saved = {override.job_id: override for override in [*look.adopted, *look.check.changed, *made]}
        gone = priority_overrides.gone(look.check.overrides, jobs)
        carry = known.carry if plan.ranking is None else plan.ranking.carry
        recorded_s = time.time()
        with self._transaction() as connection:
            cycle_id = ledger_records.add_cycle(connection, _cycle_row(look, plan, receipt, policy, recorded_s))
            ledger_records.add_facts(connection, [*look.seen.facts, *look.check.changes, *snapshot.placed])
            outcomes = [*map(_found_again(kind), look.adopted), *receipt.outcomes]
            ledger_records.add_actions(connection, cycle_id, outcomes, _first_submits(snapshot, outcomes))
            operations = operation_rows(snapshot, plan, receipt)
            ledger_records.add_operations(connection, new_rows(connection, operations))
            ledger_records.save_services(connection, look.seen.changed, look.seen.dropped)
            ledger_records.save_priority_overrides(connection, list(saved.values()), gone)
            if look.moves != known.moves:
                ledger_records.save_moves(connection, look.moves, self._lease.term if self._lease else 0, recorded_s)
            if plan.ranking is not None and (carry or known.carry):
                ledger_records.add_carry(connection, cycle_id, policy, carry)
        return replace(
            known,
            cycle_id=cycle_id,
            last_s=snapshot.now_s,
            recorded_s=recorded_s,
            services=look.seen.services,
            overrides=look.check.overrides.merged(made, gone),
            history=look.history,
            carry=carry,
            moves=look.moves,
            journal=None,
        )

    def _transaction(self) -> AbstractContextManager[Connection]:
        return self._lease.fenced(self._engine) if self._lease else self._engine.begin()

    def _retain(self, known: LedgerState, now_s: float) -> None:
        keep_days, kind = self._config.ledger.keep_days, self._config.lever.kind
        if ledger_records.due(now_s, known.retained_s) and ledger_records.drop_old(
            self._engine, now_s, keep_days, field=kind
        ):
            known.retained_s = now_s


def open_store(
    config: Config, earlier_runs: EarlierRuns | None = None, *, read_only: bool = False, lead: LeaderFiles | None = None
) -> LedgerStore:
    """The ledger that the configuration names; it is made if it is not there. lead: where several hosts may write.

    read_only: nothing is made or changed, and where there is no ledger that can be read an empty one serves, with a
    warning in each snapshot. Raises LedgerError.
    """
    url, path = config.ledger.address, config.ledger.journal
    readable = not read_only or os.access(path, os.R_OK)  # who only looks need not be able to read it
    journal = OverrideLog(path, shared=lead.journal if lead else None) if readable else None
    if not read_only:
        engine = engines.open_engine(url, still_s=config.leader.lease_s if lead else None)
        engines.prepare_schema(engine)
        lease = lead.lease if lead else None
        return LedgerStore(engine, config=config, earlier_runs=earlier_runs, journal=journal, lease=lease)
    try:
        engine = engines.open_engine(url, read_only=True)
        engines.check_schema(engine)
        return LedgerStore(engine, config=config, earlier_runs=earlier_runs, journal=journal, read_only=True)
    except LedgerError as error:
        warning = f"without memory of earlier cycles: {error}"
        engine = engines.memory_engine()
        return LedgerStore(
            engine, config=config, earlier_runs=earlier_runs, journal=journal, warnings=[warning], read_only=True
        )


def _learned(history: Floats, seen: Observation) -> Floats:
    fresh = [fact.gpu_s for fact in seen.facts if isinstance(fact, Completion) and isfinite(fact.gpu_s)]
    return np.concatenate([history, fresh])[-HISTORY_JOBS:] if fresh else history


def _cycle_row(look: _Look, plan: Plan, receipt: Receipt, policy: str, recorded_s: float) -> dict[str, Any]:
    snapshot = look.snapshot
    return {
        "now_s": snapshot.now_s,
        "recorded_s": recorded_s,
        "duration_s": time.monotonic() - look.begun_s,
        "digest": snapshot.digest,
        "policy": policy,
        "jobs": len(snapshot.jobs),
        "planned": len(plan.actions),
        "written": len(receipt.written),
        "refused": len(receipt.refused),
        "deferred": plan.deferred,
        "dry_run": receipt.dry_run,
        "stopped": receipt.stopped,
    }


def _found_again(kind: str) -> Callable[[PriorityOverride], Outcome]:
    def outcome(known: PriorityOverride) -> Outcome:
        base, sent = int(known.base), int(known.sent)
        action = _ACTIONS[kind](known.job_id, known.submit_s, "found in the journal", base, sent, base)
        return Outcome(action, "journal", "it was written by a cycle that did not end")

    return outcome


def _first_submits(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> dict[int, float]:
    jobs = snapshot.jobs
    actions: list[Action] = [outcome.action for outcome in outcomes]
    rows = np.flatnonzero(np.isin(jobs.job_id, [action.job_id for action in actions]))
    return dict(zip(jobs.job_id[rows].tolist(), jobs.first_submit_s[rows].tolist(), strict=True))


# Rows of preemptions and gang reservations: one whenever an operation begins, moves on or takes GPUs.


def operation_rows(snapshot: Snapshot, plan: Plan, receipt: Receipt) -> Iterator[dict[str, Any]]:
    """Rows of the table `operations`. lost_gpu_s: work lost by the requeues of this cycle; in a dry-run, that would be
    lost.

    An operation of which nothing was sent is as before; one that lost a step is being taken back.
    """
    before = {operation.id: operation for operation in snapshot.operations}
    for operation in plan.operations:
        old = before.get(operation.id)
        if receipt.dry_run:
            if old is None:
                lost_gpu_s = sum(victim.lost_gpu_s for victim in operation.victims)
                yield _row(snapshot, operation, operation.stage, operation.note, lost_gpu_s, True)
            continue
        steps = [
            each for each in receipt.outcomes if isinstance(each.action, Step) and each.action.operation == operation.id
        ]
        if not steps and any(isinstance(action, Step) and action.operation == operation.id for action in plan.actions):
            continue
        refused = next((each.message for each in steps if each.status == "refused"), "")
        stage = OperationStage.REVERSING if refused and operation.stage != OperationStage.CLEANING else operation.stage
        gone = {each.action.job_id for each in steps if each.status == "written" and isinstance(each.action, Requeue)}
        lost_gpu_s = sum(victim.lost_gpu_s for victim in operation.victims if victim.job_id in gone)
        if old is None or old.stage != stage or gone:
            yield _row(snapshot, operation, stage, refused or operation.note, lost_gpu_s, False)


def new_rows(connection: Connection, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows to append: of those of a dry-run only what is new, since every cycle would begin the same anew."""
    return [row for row in rows if not (row["dry_run"] and _known(connection, row))]


def _known(connection: Connection, row: dict[str, Any]) -> bool:
    table = schema.operations
    same = [table.c[name] == row[name] for name in ("job_id", "first_submit_s", "purpose", "dry_run")]
    return connection.scalar(sa.select(table.c.id).where(*same).limit(1)) is not None


def _row(
    snapshot: Snapshot, operation: Operation, stage: OperationStage, note: str, lost_gpu_s: float, dry_run: bool
) -> dict[str, Any]:
    jobs = snapshot.jobs
    rows = np.flatnonzero(jobs.job_id == operation.job_id)
    gpus, first_s = (
        (int(jobs.gpus[rows[0]]), float(jobs.first_submit_s[rows[0]])) if len(rows) else (0, operation.submit_s)
    )
    return {
        "seen_s": snapshot.now_s,
        "operation": operation.id,
        "purpose": str(operation.purpose),
        "job_id": operation.job_id,
        "first_submit_s": first_s,
        "user": operation.user,
        "gpus": gpus,
        "nodes": operation.nodes,
        "stage": str(stage),
        "note": note,
        "victims": len(operation.victims),
        "lost_gpu_s": lost_gpu_s,
        "idle_gpu_s": operation.idle_gpu_s,
        "dry_run": dry_run,
    }
