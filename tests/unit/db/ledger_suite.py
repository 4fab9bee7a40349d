"""What a ledger must do on every database. A test class per database gives the fixture `ledger_url` (an empty one)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from alembic import command

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.db import database as engines
from slurmsched.db import ledger_records, schema
from slurmsched.db.ledger_queries import operations_since
from slurmsched.db.ledger_store import LedgerStore, open_store
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError, SlurmUnreachableError
from slurmsched.model import (
    Operation,
    OperationStage,
    Outcome,
    Plan,
    Purpose,
    Ranking,
    Receipt,
    Requeue,
    SetNice,
    SetNodeList,
    SetSiteFactor,
    Snapshot,
    Victim,
)
from slurmsched.testing import snapshot
from tests.unit.planning.node_lists.node_list_cases import mesh_of

DAY_S = 86_400.0
RUNNING, PENDING, COMPLETED = "RUNNING", "PENDING", "COMPLETED"


@dataclass(frozen=True)
class Run:
    """A record of sacct -D."""

    job_id: int
    submit_s: float
    start_s: float
    end_s: float
    suspended_s: float
    gpus: int
    state: str = "REQUEUED"


@dataclass
class Sacct:
    """Stands for sacct: answers with its runs, or is down; keeps what it was asked."""

    runs: list[Run] = field(default_factory=list)
    down: bool = False
    asked: list[list[int]] = field(default_factory=list)

    def __call__(self, job_ids: Sequence[int]) -> Iterable[Run]:
        self.asked.append(list(job_ids))
        if self.down:
            raise SlurmUnreachableError("slurmdbd does not answer")
        return [run for run in self.runs if run.job_id in job_ids]


def pending(job_id: int = 1, **columns: object) -> dict[str, object]:
    return {"job_id": job_id, "state": PENDING, "submit_s": 1000.0, "gpus": 4, **columns}


def running(job_id: int = 1, *, start_s: float, now_s: float, **columns: object) -> dict[str, object]:
    row = {"job_id": job_id, "state": RUNNING, "submit_s": 1000.0, "gpus": 4, "start_s": start_s}
    return row | {"run_s": now_s - start_s, **columns}


def completed(job_id: int = 1, *, start_s: float, end_s: float, **columns: object) -> dict[str, object]:
    row = {"job_id": job_id, "state": COMPLETED, "submit_s": 1000.0, "gpus": 4, "start_s": start_s, "end_s": end_s}
    return row | {"run_s": end_s - start_s, **columns}


def nice(old: int, new: int, base: int = 0, job_id: int = 1, status: str = "written") -> Outcome:
    return Outcome(SetNice(job_id, 1000.0, "to place 1", old, new, base), status)


def cycle(
    store: LedgerStore, now_s: float, *rows: dict[str, object], outcomes: Sequence[Outcome] = (), dry_run: bool = False
) -> Snapshot:
    """One quantum with these jobs and writes; the snapshot as a policy saw it."""
    recalled = store.recall(snapshot(rows, now_s=now_s))
    actions = tuple(outcome.action for outcome in outcomes)
    store.append(recalled, Plan(actions), Receipt(tuple(outcomes), planned=len(actions), dry_run=dry_run))
    return recalled


def operations_of(
    store: LedgerStore,
    now_s: float,
    before: Sequence[Operation],
    operations: Sequence[Operation],
    outcomes: Sequence[Outcome] = (),
    *,
    dry_run: bool = False,
) -> None:
    """One quantum of jobs 1 and 3 that finds the operations `before` open and leaves `operations`."""
    at = store.recall(snapshot([pending(1), pending(3)], now_s=now_s, operations=tuple(before)))
    plan = Plan(tuple(outcome.action for outcome in outcomes), operations=tuple(operations))
    store.append(at, plan, Receipt(tuple(outcomes), planned=len(outcomes), dry_run=dry_run))


def rows_of(store: LedgerStore, table: sa.Table) -> list[dict[str, object]]:
    with store._engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


@contextmanager
def emptied(url: str) -> Iterator[None]:
    """A database of a server without tables, before and after."""

    def empty() -> None:
        engine, found = engines.open_engine(url), sa.MetaData()
        found.reflect(engine)
        found.drop_all(engine)
        engine.dispose()

    empty()
    yield
    empty()


def cut_after(url: str, statements: int) -> bool:
    """Migrate, and die after so many statements that make something; whether there were no more."""
    made = itertools.count()

    class Killed(BaseException):
        pass

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.lstrip().startswith("CREATE") and next(made) == statements:
            raise Killed

    engine = engines.open_engine(url)
    sa.event.listen(engine, "before_cursor_execute", count)
    try:
        engines.migrate(engine)
    except Killed:
        return False
    finally:
        engine.dispose()
    return True


def missing_tables(url: str) -> set[str]:
    engine = engines.open_engine(url)
    names = sa.inspect(engine).get_table_names()
    engine.dispose()
    return set(schema.metadata.tables) - set(names)


class CutSuite:
    """Beside the other suite, for databases where a migration may be cut short."""

    def test_migrations__cut_anywhere_are_made_whole(self, ledger_url: str, reopen) -> None:
        """Killed after any number of statements that make something: who starts then says what to run if anything is
        there, and after `db upgrade` all tables are there and a cycle can be put on record."""
        apart = 9
        for made in itertools.count(1, apart):
            with emptied(ledger_url):
                whole = cut_after(ledger_url, made)
                if missing_tables(ledger_url) not in (set(), set(schema.metadata.tables)):
                    with pytest.raises(LedgerError, match="run `slurmsched db upgrade`"):
                        reopen()
                engines.upgrade_schema(ledger_url)
                assert missing_tables(ledger_url) == set()
                cycle(reopen(), 1100.0, pending())
            if whole:
                break
        assert made > 2 * apart

    def test_migrations__leave_tables_with_rows_alone(self, ledger_url: str, reopen) -> None:
        """A ledger without its revision on record is somebody's, not half a schema."""
        with emptied(ledger_url):
            cycle(reopen(), 1100.0, pending())
            engine = engines.open_engine(ledger_url)
            with engine.begin() as connection:
                connection.execute(sa.text("DROP TABLE alembic_version"))
            with pytest.raises(LedgerError, match=r"table \w+ has rows, but no schema version is recorded"):
                engines.upgrade_schema(ledger_url)
            assert missing_tables(ledger_url) == set()
            engine.dispose()


class LedgerSuite:
    """See the module."""

    @pytest.fixture
    def sacct(self) -> Sacct:
        return Sacct()

    @pytest.fixture
    def config(self, ledger_url: str, tmp_path: Path) -> Config:
        return parse_config({"ledger": {"url": ledger_url, "journal": str(tmp_path / "journal.jsonl")}})

    @pytest.fixture
    def reopen(self, config: Config, sacct: Sacct) -> Iterable[object]:
        """Opens the ledger as a process that has just started."""
        opened: list[LedgerStore] = []

        def start(changed: Config | None = None) -> LedgerStore:
            opened.append(open_store(changed or config, sacct))
            return opened[-1]

        yield start
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, reopen) -> LedgerStore:
        return reopen()

    # Placements

    def test_append__what_jobs_got_is_on_record(self, store: LedgerStore) -> None:
        """A job that started between two cycles of this process, once; what an earlier process saw is not judged."""
        got = {"allocations": [{"job_id": 1, "node": "n1", "gpus": 2, "gpu_mask": 0b11}], "topology": mesh_of(2)}
        run = running(start_s=2000.0, now_s=2030.0, gpus=2)
        for now_s, jobs, more in ((1990.0, [], {}), (2030.0, [run], got), (2060.0, [run], got)):
            at = snapshot(jobs, "2x8", now_s=now_s, **more)
            store.append(store.recall(at), Plan(), Receipt())
        (row,) = rows_of(store, schema.placements)
        assert (row["job_id"], row["first_submit_s"], row["ratio"], row["pinned"]) == (1, 1000.0, 0.5, False)
        assert str(row["note"]).startswith("n1 had GPUs ")

    def test_append__a_node_list_is_among_the_actions(self, store: LedgerStore) -> None:
        """With its reason; numbers are for levers."""
        step = SetNodeList(1, 1000.0, "GPUs 0,3", "pin-1", "n2", "", "")
        cycle(store, 2000.0, running(start_s=1990.0, now_s=2000.0), outcomes=(Outcome(step, "written"),))
        (row,) = rows_of(store, schema.actions)
        assert (row["kind"], row["reason"], row["old"], row["base"]) == ("pin", "GPUs 0,3", None, None)

    # Preemptions and gang reservations

    def test_append__operations_are_on_record_as_they_move_on(self, store: LedgerStore, config: Config) -> None:
        """A row whenever a preemption or gang reservation begins or moves on, with what it takes; each told once, with
        sums."""
        victim = Victim(2, 0.0, 0, 4, "USR2", 30.0, 480.0)
        takes = Operation("0a1b2c-1-1100", Purpose.PREEMPT, 1, 1000.0, "zoë", "n[1-900]", 600.0, 1100.0, (victim,))
        keeps = Operation("0a1b2c-3-1100", Purpose.RESERVE, 3, 1000.0, "bob", "n7", 600.0, 1100.0, promised_s=1500.0)
        before: list[Operation] = []
        gone = Outcome(Requeue(2, 0.0, "", takes.id), "written")
        for now_s, stages, outcomes in (
            (1100.0, (OperationStage.BEGUN, OperationStage.PROMISED), ()),
            (1160.0, (OperationStage.REQUEUED, OperationStage.PROMISED), (gone,)),
            (1220.0, (OperationStage.CLOSED, OperationStage.REVERSING), ()),
        ):
            moved = [replace(operation, stage=stage, idle_gpu_s=now_s - 1100.0)
                     for operation, stage in zip((takes, keeps), stages, strict=True)]  # fmt: skip
            operations_of(store, now_s, before, moved, outcomes)
            before = moved
        told = operations_since(config.ledger.url, 1100.0)
        names = ("operation", "user", "nodes", "stage", "lost_gpu_s", "idle_gpu_s", "gpus")
        assert [tuple(getattr(row, name) for name in names) for row in told] == [
            (takes.id, "zoë", "n[1-900]", "closed", 480.0, 120.0, 4),
            (keeps.id, "bob", "n7", "reversing", 0.0, 120.0, 4),
        ]
        assert [row["stage"] for row in rows_of(store, schema.operations)] == [
            "begun", "promised", "requeued", "closed", "reversing",
        ]  # fmt: skip

    def test_append__a_dry_run_tells_each_operation_once(self, store: LedgerStore, config: Config) -> None:
        """What it would have taken, though every cycle would begin the same anew."""
        victim = Victim(2, 0.0, 0, 4, "USR2", 30.0, 7_200.0)
        for now_s in (1100.0, 1160.0):
            operation = Operation(f"1-{now_s:.0f}", Purpose.PREEMPT, 1, 1000.0, "ann", "n1", 600.0, now_s, (victim,))
            operations_of(store, now_s, [], [operation], dry_run=True)
        (told,) = operations_since(config.ledger.url, 0.0)
        assert (told.dry_run, told.lost_gpu_s, told.victims) == (True, 7_200.0, 1)

    # The schema

    def test_migrations__make_the_schema_that_the_code_describes(self, ledger_url: str) -> None:
        """From an empty database up to the newest revision there is no difference left."""
        engines.upgrade_schema(ledger_url)
        engine, config = engines.open_engine(ledger_url), engines.migrations()
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.check(config)  # raises where something differs
            version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        engine.dispose()
        assert version == schema.HEAD

    def test_migrations__go_down_to_nothing(self, ledger_url: str) -> None:
        """Every migration can be undone."""
        engines.upgrade_schema(ledger_url)
        engine, config = engines.open_engine(ledger_url), engines.migrations()
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
        left = sa.inspect(engine).get_table_names()
        engine.dispose()
        assert left == ["alembic_version"]

    def test_open__an_older_schema_says_what_to_run(self, ledger_url: str, reopen) -> None:
        """Nobody's ledger is migrated behind his back."""
        reopen()
        engine = engines.open_engine(ledger_url)
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0000'"))
        engine.dispose()
        with pytest.raises(LedgerError, match="slurmsched db upgrade"):
            reopen()

    def test_open__a_newer_schema_asks_for_the_newer_slurmsched(self, ledger_url: str, reopen) -> None:
        """After a step back to an older release; `db upgrade` says the same, for it cannot help."""
        reopen()
        engine = engines.open_engine(ledger_url)
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        engine.dispose()
        newest = f"the newest schema of this slurmsched is {schema.HEAD}"
        said = f"has schema 9999, {newest}; install the newer slurmsched again"
        with pytest.raises(LedgerError, match=said):
            reopen()
        with pytest.raises(LedgerError, match=said):
            engines.upgrade_schema(ledger_url)

    # Attained service

    def test_recall__a_pending_job_without_a_past_has_no_row(self, store: LedgerStore) -> None:
        """Its columns come from Slurm's record alone, and nothing is kept of it."""
        jobs = cycle(store, 1600.0, pending(nice=7, eligible_s=1100.0)).jobs
        got = (jobs.first_submit_s[0], jobs.attained_gpu_s[0], jobs.waiting_s[0], jobs.base_nice[0], jobs.written[0])
        assert got == (1000.0, 0.0, 500.0, 7, False)
        assert rows_of(store, schema.services) == []

    def test_recall__the_current_run_counts_by_its_executed_time(self, store: LedgerStore) -> None:
        """run_s leaves suspensions out; attained service is run_s times GPUs."""
        jobs = cycle(store, 3000.0, running(start_s=2000.0, now_s=3000.0, run_s=600.0)).jobs
        assert (jobs.attained_gpu_s[0], jobs.executed_s[0], jobs.waiting_s[0]) == (2400.0, 600.0, 0.0)

    def test_recall__a_job_preempted_once_and_completed_counts_both_runs_once(self, store: LedgerStore) -> None:
        """200 s and 300 s on 4 GPUs are 2,000 GPU s, whatever we saw in between."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        leaving = running(start_s=1100.0, now_s=1300.0, state="PENDING,COMPLETING", restarts=1, run_s=0.0)
        between = cycle(store, 1300.0, leaving).jobs
        waiting = cycle(store, 1400.0, pending(submit_s=1300.0, restarts=1)).jobs
        second = cycle(store, 1600.0, running(start_s=1500.0, now_s=1600.0, submit_s=1300.0, restarts=1)).jobs
        done = completed(start_s=1500.0, end_s=1800.0, submit_s=1300.0, restarts=1)
        first_look = cycle(store, 1900.0, done)
        second_look = cycle(store, 1950.0, done)
        seen = [float(j.attained_gpu_s[0]) for j in (between, waiting, second, first_look.jobs, second_look.jobs)]
        assert seen == [800.0, 800.0, 1200.0, 2000.0, 2000.0]
        assert waiting.waiting_s[0] == 100.0
        assert second_look.history_gpu_s.tolist() == [2000.0]
        assert [row["source"] for row in rows_of(store, schema.run_ends)] == ["requeue", "record"]

    def test_recall__memory_outlives_the_process(self, reopen) -> None:
        """A cold process knows what the one before it saw."""
        cycle(reopen(), 1200.0, running(start_s=1100.0, now_s=1200.0))
        cycle(reopen(), 1400.0, pending(submit_s=1300.0, restarts=1))
        jobs = cycle(reopen(), 1600.0, running(start_s=1500.0, now_s=1600.0, submit_s=1300.0, restarts=1)).jobs
        assert (jobs.attained_gpu_s[0], jobs.executed_s[0], jobs.first_submit_s[0]) == (1200.0, 300.0, 1000.0)

    def test_recall__sacct_is_asked_once_for_a_job_first_seen_after_a_requeue(
        self, store: LedgerStore, sacct: Sacct
    ) -> None:
        """Its earlier runs are in sacct -D only; records of an older job under the same id are left out."""
        sacct.runs = [
            Run(1, 100.0, 200.0, 900.0, 0.0, 8, "COMPLETED"),  # another job, before the ids wrapped around
            Run(1, 1000.0, 1100.0, 1300.0, 50.0, 4),
            Run(1, 1300.0, 1400.0, 1500.0, 0.0, 4, "PREEMPTED"),
        ]
        row = pending(submit_s=1500.0, restarts=2)
        first = cycle(store, 1600.0, row, pending(2)).jobs
        second = cycle(store, 1700.0, row, pending(2)).jobs
        assert sacct.asked == [[1]]
        for jobs in (first, second):
            assert (jobs.attained_gpu_s[0], jobs.executed_s[0], jobs.first_submit_s[0]) == (1000.0, 250.0, 1000.0)
        assert second.waiting_s[0] == 200.0

    def test_recall__a_run_that_both_sacct_and_we_saw_counts_once(
        self, reopen, store: LedgerStore, sacct: Sacct
    ) -> None:
        """After down-time sacct tells of the run we saw begin, and of one we did not see at all."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        sacct.runs = [Run(1, 1000.0, 1100.0, 1300.0, 0.0, 4), Run(1, 1300.0, 1400.0, 1450.0, 0.0, 4)]
        jobs = cycle(reopen(), 9000.0, running(start_s=8900.0, now_s=9000.0, submit_s=1450.0, restarts=2)).jobs
        again = cycle(reopen(), 9100.0, running(start_s=8900.0, now_s=9100.0, submit_s=1450.0, restarts=2)).jobs
        assert (jobs.attained_gpu_s[0], again.attained_gpu_s[0]) == (800.0 + 200.0 + 400.0, 1800.0)
        assert sacct.asked == [[1]]

    def test_recall__without_sacct_the_last_look_counts(self, reopen, store: LedgerStore, sacct: Sacct) -> None:
        """sacct down is a warning, never an error; the ledger asks again later and then counts exactly."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        sacct.down = True
        row = pending(submit_s=1450.0, restarts=2)
        poor = cycle(store, 2000.0, row)
        soon = cycle(store, 2060.0, row)
        sacct.down = False
        sacct.runs = [Run(1, 1000.0, 1100.0, 1300.0, 0.0, 4), Run(1, 1300.0, 1400.0, 1450.0, 0.0, 4)]
        rich = cycle(store, 9000.0, row)
        assert [float(s.jobs.attained_gpu_s[0]) for s in (poor, soon, rich)] == [400.0, 400.0, 1000.0]
        assert ["sacct does not answer" in " ".join(s.warnings) for s in (poor, soon, rich)] == [True, False, False]

    def test_recall__a_pause_of_sacct_ends_though_the_clock_was_set_back(self, store: LedgerStore, sacct) -> None:
        """It is asked again at once, not when the clock has come that far again."""
        sacct.down = True
        row = running(start_s=89_500.0, now_s=100_000.0, submit_s=89_000.0, restarts=1)
        cycle(store, 100_000.0, row)
        sacct.down, asked = False, len(sacct.asked)
        cycle(store, 90_000.0, row)
        assert len(sacct.asked) == asked + 1
        assert len(sacct.asked) == 2

    def test_recall__a_job_that_left_unseen_is_asked_for(self, reopen, store: LedgerStore, sacct: Sacct) -> None:
        """How it ended is in sacct; it feeds the history once."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        sacct.runs = [Run(1, 1000.0, 1100.0, 1350.0, 0.0, 4, COMPLETED)]
        after = cycle(store, 9000.0)
        later = cycle(reopen(), 9100.0)
        assert (after.history_gpu_s.tolist(), later.history_gpu_s.tolist()) == ([1000.0], [1000.0])
        assert rows_of(store, schema.services) == []

    def test_recall__a_job_that_sacct_does_not_know_is_not_asked_for_ever(
        self, store: LedgerStore, sacct: Sacct
    ) -> None:
        """slurmdbd may lag behind, so a few times; then our own last look stands."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        for now_s in range(2000, 3000, 100):
            cycle(store, float(now_s))
        assert sacct.asked == [[1]] * 3
        assert [(row["end_s"], row["source"]) for row in rows_of(store, schema.run_ends)] == [(1200.0, "observed")]

    def test_recall__a_run_that_began_and_ended_between_two_looks_counts(self, store: LedgerStore) -> None:
        """Slurm's record of the finished job has both times."""
        cycle(store, 1100.0, pending())
        assert cycle(store, 1200.0, completed(start_s=1110.0, end_s=1160.0)).history_gpu_s.tolist() == [200.0]

    def test_recall__a_job_seen_while_its_nodes_are_cleaned_up_completes(self, store: LedgerStore) -> None:
        """squeue says COMPLETING then, and how the job ended only afterwards: the run is closed once it does."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        cleaning = cycle(store, 1300.0, completed(start_s=1100.0, end_s=1250.0, state="COMPLETING"))
        done = cycle(store, 1400.0, completed(start_s=1100.0, end_s=1250.0))
        assert [float(s.jobs.attained_gpu_s[0]) for s in (cleaning, done)] == [600.0, 600.0]
        assert done.history_gpu_s.tolist() == [600.0]
        assert [row["source"] for row in rows_of(store, schema.run_ends)] == ["record"]

    def test_recall__a_run_in_a_state_nobody_knows_goes_on(self, store: LedgerStore) -> None:
        """A newer Slurm shows a word we cannot read for a while: the run still counts once."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0))
        strange = cycle(store, 1300.0, running(start_s=1100.0, now_s=1300.0, state=0, run_s=0.0))
        again = cycle(store, 1400.0, running(start_s=1100.0, now_s=1400.0))
        assert [float(s.jobs.attained_gpu_s[0]) for s in (strange, again)] == [800.0, 1200.0]

    def test_recall__a_job_cancelled_in_the_queue_has_no_run(self, store: LedgerStore) -> None:
        """Slurm gives it a start time equal to its end."""
        row = completed(start_s=1150.0, end_s=1150.0, state="CANCELLED")
        assert cycle(store, 1200.0, row).history_gpu_s.tolist() == []
        assert rows_of(store, schema.run_starts) == []

    def test_recall__an_id_used_again_is_a_new_job(self, store: LedgerStore) -> None:
        """A later submit without restarts, or fewer restarts than known."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0), outcomes=[nice(0, -50)])
        jobs = cycle(store, 9000.0, pending(submit_s=8000.0, nice=3)).jobs
        got = (jobs.first_submit_s[0], jobs.attained_gpu_s[0], jobs.base_nice[0], jobs.written[0])
        assert got == (8000.0, 0.0, 3, False)

    def test_recall__a_resized_run_adds_both_parts(self, store: LedgerStore) -> None:
        """What ran since our last look counts by the new size; closing the run keeps the first part."""
        cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0, gpus=8))
        shrunk = cycle(store, 1300.0, running(start_s=1100.0, now_s=1300.0, gpus=2)).jobs
        after = cycle(store, 1400.0, running(start_s=1100.0, now_s=1400.0, gpus=2)).jobs
        done = cycle(store, 1600.0, completed(start_s=1100.0, end_s=1500.0, gpus=2))
        seen = [float(j.attained_gpu_s[0]) for j in (shrunk, after, done.jobs)]
        assert seen == [1000.0, 1200.0, 1400.0]
        assert done.history_gpu_s.tolist() == [1400.0]

    def test_recall__a_suspension_is_left_out_when_the_run_ends_by_requeue(self, reopen) -> None:
        """No record tells how long the run was stopped, so the ledger does, over processes too."""
        cycle(reopen(), 1200.0, running(start_s=1100.0, now_s=1200.0))
        for now_s in (1300.0, 1400.0):
            cycle(reopen(), now_s, running(start_s=1100.0, now_s=now_s, run_s=150.0, state="SUSPENDED"))
        cycle(reopen(), 1500.0, running(start_s=1100.0, now_s=1500.0, run_s=220.0))
        jobs = cycle(reopen(), 1700.0, pending(submit_s=1600.0, restarts=1)).jobs
        assert (jobs.executed_s[0], jobs.attained_gpu_s[0]) == (320.0, 1280.0)

    def test_append__a_cycle_that_is_repeated_adds_nothing(self, reopen, store: LedgerStore) -> None:
        """Two cycles over one snapshot, in one process or in two."""
        row = completed(start_s=1100.0, end_s=1150.0)
        for each in (store, store, reopen()):
            seen = cycle(each, 1200.0, row)
        assert seen.history_gpu_s.tolist() == [200.0]
        assert len(rows_of(store, schema.run_ends)) == 1

    def test_recall__alone_changes_nothing(self, store: LedgerStore) -> None:
        """A look at the queue is not a fact until its cycle is appended."""
        one = store.recall(snapshot([running(start_s=1100.0, now_s=1200.0)], now_s=1200.0))
        two = store.recall(snapshot([running(start_s=1100.0, now_s=1200.0)], now_s=1200.0))
        assert one.digest == two.digest
        assert rows_of(store, schema.run_starts) == []

    def test_recall__jobs_without_gpus_leave_no_facts(self, store: LedgerStore) -> None:
        """Where only GPU jobs are managed; what they executed in this run is known all the same."""
        jobs = cycle(store, 1200.0, running(start_s=1100.0, now_s=1200.0, gpus=0)).jobs
        assert (jobs.executed_s[0], rows_of(store, schema.run_starts)) == (100.0, [])

    # Levers

    def test_recall__what_we_wrote_is_not_the_users_wish(self, reopen) -> None:
        """The base stays what it was at first sight; a requeue keeps the nice."""
        cycle(reopen(), 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5)])
        jobs = cycle(reopen(), 1200.0, pending(nice=-800)).jobs
        requeued = cycle(reopen(), 1300.0, pending(nice=-800, submit_s=1250.0, restarts=1)).jobs
        for each in (jobs, requeued):
            assert (each.base_nice[0], each.written[0], each.backoff[0]) == (5, True, False)

    def test_recall__a_change_behind_our_back_is_the_new_base_and_left_alone(self, store: LedgerStore) -> None:
        """Half an hour at first, twice as long at each repeat."""
        cycle(store, 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5)])
        cycle(store, 1200.0, pending(nice=40))
        ended = cycle(store, 3001.0, pending(nice=40), outcomes=[nice(40, -700, 40)]).jobs
        again = cycle(store, 3100.0, pending(nice=41)).jobs
        late = cycle(store, 3100.0 + 3599.0, pending(nice=41)).jobs
        free = cycle(store, 3100.0 + 3601.0, pending(nice=41)).jobs
        assert [bool(j.backoff[0]) for j in (ended, again, late, free)] == [False, True, True, False]
        assert [int(j.base_nice[0]) for j in (ended, again, late, free)] == [40, 41, 41, 41]
        assert [(row["found"], row["base"]) for row in rows_of(store, schema.outside_changes)] == [(40, 40), (41, 41)]

    def test_recall__a_lever_set_back_to_its_base_is_a_change_too(self, store: LedgerStore) -> None:
        """Users do so, and Slurm at `scontrol release`: respected, at a repeat twice as long."""
        cycle(store, 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5)])
        back = cycle(store, 1200.0, pending(nice=5)).jobs
        ended = cycle(store, 3001.0, pending(nice=5), outcomes=[nice(5, -700, 5)]).jobs
        again = cycle(store, 3100.0, pending(nice=5)).jobs
        late = cycle(store, 3100.0 + 3599.0, pending(nice=5)).jobs
        assert [bool(j.backoff[0]) for j in (back, ended, again, late)] == [True, False, True, True]
        assert [int(j.base_nice[0]) for j in (back, ended, again, late)] == [5, 5, 5, 5]
        assert [(row["expected"], row["found"]) for row in rows_of(store, schema.outside_changes)] == [
            (-800, 5),
            (-700, 5),
        ]

    @pytest.mark.parametrize(("hours", "lasts_s"), [(0.2, 2_520.0), (5, 1_800.0), (24, 1_800.0)])
    def test_recall__a_back_off_ends_though_the_clock_was_set_back(self, reopen, hours, lasts_s) -> None:
        """By less than it lasts: it lasts no more than twice as long. By more: it begins anew, once, in later processes
        too."""
        at_s = 200_000.0
        cycle(reopen(), at_s, pending(nice=5, submit_s=10.0), outcomes=[nice(5, -800, 5)])
        cycle(reopen(), at_s + 100.0, pending(nice=40, submit_s=10.0))
        back_s = at_s + 100.0 - hours * 3_600.0
        for later_s, left_alone in ((0.0, True), (lasts_s - 1, True), (lasts_s + 1, False)):
            seen = cycle(reopen(), back_s + later_s, pending(nice=40, submit_s=10.0)).jobs
            assert (seen.backoff.tolist(), seen.base_nice.tolist()) == ([left_alone], [40])

    def test_recall__undo_is_no_change_behind_our_back(self, reopen, store: LedgerStore, config: Config) -> None:
        """The journal's last value for the job is its base: the next cycle may write it again, the one after too."""
        cycle(store, 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5)])
        OverrideLog(config.ledger.journal).intend("undo", [SetNice(1, 1000.0, "undo", -800, 5, 5)])
        for now_s in (1200.0, 1300.0):
            jobs = cycle(reopen(), now_s, pending(nice=5)).jobs
            assert (jobs.base_nice[0], jobs.written[0], jobs.backoff[0]) == (5, False, False)
        assert rows_of(store, schema.outside_changes) == []

    def test_recall__a_reset_after_undo_and_a_new_write_is_the_users(self, store: LedgerStore, config: Config) -> None:
        """An undo of long ago excuses nothing."""
        journal = OverrideLog(config.ledger.journal)
        journal.intend("undo", [SetNice(1, 1000.0, "undo", -800, 5, 5)])
        journal.intend("c2", [SetNice(1, 1000.0, "to place 1", 5, -900, 5)])
        cycle(store, 1100.0, pending(nice=5), outcomes=[nice(5, -900, 5)])
        assert cycle(store, 1200.0, pending(nice=5)).jobs.backoff.tolist() == [True]

    def test_recall__an_older_value_of_ours_is_nobodys_base(self, store: LedgerStore, config: Config) -> None:
        """slurmctld was killed before it saved our last write: the journal knows the value that came back."""
        journal = OverrideLog(config.ledger.journal)
        for now_s, old, new in ((1100.0, 5, -800), (1200.0, -800, -900)):
            write = nice(old, new, 5)
            journal.intend("c", [write.action])
            cycle(store, now_s, pending(nice=old), outcomes=[write])
        jobs = cycle(store, 1300.0, pending(nice=-800)).jobs
        assert (jobs.base_nice[0], jobs.written[0], jobs.backoff[0]) == (5, True, False)

    @pytest.mark.parametrize("found", [5, -800])
    def test_recall__after_no_answer_both_values_are_ours(self, store: LedgerStore, found: int) -> None:
        """slurmctld went away in the middle: the write may have come through or not."""
        cycle(store, 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5, status="unknown")])
        jobs = cycle(store, 1200.0, pending(nice=found)).jobs
        assert (jobs.base_nice[0], jobs.backoff[0]) == (5, False)

    def test_append__a_refused_action_is_on_record_and_not_ours(self, store: LedgerStore) -> None:
        """The job keeps what it had."""
        cycle(store, 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5, status="refused")])
        assert not cycle(store, 1200.0, pending(nice=5)).jobs.written[0]
        assert [row["outcome"] for row in rows_of(store, schema.actions)] == ["refused"]

    def test_append__dry_run_keeps_facts_of_runs_and_no_write(self, store: LedgerStore) -> None:
        """Attained service is true from the first day on."""
        row = running(2, start_s=1050.0, now_s=1100.0)
        cycle(store, 1100.0, pending(), row, dry_run=True)
        assert (len(rows_of(store, schema.run_starts)), rows_of(store, schema.actions)) == (1, [])
        assert [row["dry_run"] for row in rows_of(store, schema.cycles)] == [True]

    def test_recall__a_value_like_ours_without_record_is_left_alone(self, store: LedgerStore) -> None:
        """Ledger and journal are lost: it is never taken for the user's wish."""
        seen = cycle(store, 1100.0, pending(1, nice=-5000), pending(2, nice=50))
        assert seen.jobs.backoff.tolist() == [True, False]
        assert ["job 1)" in text for text in seen.warnings] == [True]

    def test_recall__the_journal_tells_what_a_crash_hid(self, reopen, store: LedgerStore, config: Config) -> None:
        """Killed after the write and before the ledger: base and value are in the journal, and then in the ledger."""
        cycle(store, 1100.0, pending(nice=5))
        OverrideLog(config.ledger.journal).intend("c2", [SetNice(1, 1000.0, "to place 1", 5, -300, 5)])
        fresh = reopen()
        looked = fresh.recall(snapshot([pending(nice=-300)], now_s=1200.0))
        jobs = cycle(fresh, 1200.0, pending(nice=-300)).jobs
        later = cycle(reopen(), 1300.0, pending(nice=-300)).jobs
        for each in (looked.jobs, jobs, later):
            assert (each.base_nice[0], each.written[0], each.backoff[0]) == (5, True, False)
        assert [row["outcome"] for row in rows_of(store, schema.actions)] == ["journal"]

    def test_recall__site_factor_has_base_zero(self, reopen, config: Config) -> None:
        """Users do not set it; the same rules hold."""
        lever = config.lever.model_copy(update={"kind": "site_factor"})
        store = reopen(config.model_copy(update={"lever": lever}))
        write = Outcome(SetSiteFactor(1, 1000.0, "to place 1", 0, 900, 0), "written")
        cycle(store, 1100.0, pending(nice=9), outcomes=[write])
        ours = cycle(store, 1200.0, pending(nice=9, site_factor=900)).jobs
        foreign = cycle(store, 1300.0, pending(nice=9, site_factor=77)).jobs
        assert (ours.base_nice[0], ours.written[0], ours.backoff[0]) == (0, True, False)
        assert (foreign.base_nice[0], foreign.written[0], foreign.backoff[0]) == (0, False, True)

    # Cycles, carry, texts, retention

    def test_append__the_carry_comes_back_to_the_same_policy(self, reopen, config: Config) -> None:
        """Keys may be numbers; the last two carries are kept; another policy starts without."""
        carry = {"promoted": {7: 1.5, 8: 2.0}, "queue": [1, 2], "name": "é \U0001f600"}
        store = reopen()
        for now_s in (1100.0, 1200.0, 1300.0):
            recalled = store.recall(snapshot([pending()], now_s=now_s))
            store.append(recalled, Plan(ranking=Ranking(np.array([0]), carry=carry)), Receipt())
        other = reopen(config.model_copy(update={"policy": config.policy.model_copy(update={"name": "fifo"})}))
        assert reopen().recall(snapshot([pending()], now_s=1400.0)).carry == carry
        assert other.recall(snapshot([pending()], now_s=1400.0)).carry == {}
        assert len(rows_of(store, schema.carries)) == 2

    def test_append__any_text_fits(self, store: LedgerStore) -> None:
        """Slurm's messages may be long, of any script, and broken."""
        text = "é\U0001f600\0\udcff" + "x" * 2000
        cycle(store, 1100.0, pending(), outcomes=[Outcome(SetNice(1, 1000.0, text, 0, 1, 0), "refused", text)])
        kept = [row["message"] for row in rows_of(store, schema.actions)]
        assert kept == [("é\U0001f600?" + "x" * 2000)[: schema.REASON_CHARACTERS]]

    def test_append__big_numbers_fit(self, store: LedgerStore) -> None:
        """Job ids and levers near the ends of Slurm's ranges."""
        cycle(store, 1100.0, pending(2**40), outcomes=[nice(0, -2147483645, 0, 2**40)])
        assert [(row["job_id"], row["new"]) for row in rows_of(store, schema.actions)] == [(2**40, -2147483645)]

    def test_recall__another_process_in_between_is_noticed(self, reopen) -> None:
        """A tick beside a daemon: memory is read anew."""
        daemon, tick = reopen(), reopen()
        cycle(daemon, 1100.0, pending(nice=5))
        cycle(tick, 1200.0, pending(nice=5), outcomes=[nice(5, -800, 5)])
        assert cycle(daemon, 1300.0, pending(nice=-800)).jobs.base_nice[0] == 5

    def test_retention__drops_old_facts_of_jobs_that_left(self, store: LedgerStore) -> None:
        """A job in the queue keeps its facts however old; batches are bounded."""
        keep_days = 10
        done = [completed(job_id, start_s=1100.0, end_s=1150.0) for job_id in (2, 3, 4)]
        cycle(store, 1200.0, running(1, start_s=1100.0, now_s=1200.0), *done, outcomes=[nice(0, 1, 0, 2)])
        now_s = 1200.0 + 11 * DAY_S
        cycle(store, now_s, running(1, start_s=1100.0, now_s=now_s))
        ledger_records.drop_old(store._engine, now_s, keep_days, field="nice")
        left = {name: len(rows_of(store, schema.metadata.tables[name])) for name in ("run_starts", "run_ends",
                "completions", "actions", "cycles")}  # fmt: skip
        assert left == {"run_starts": 1, "run_ends": 0, "completions": 0, "actions": 0, "cycles": 1}

    def test_retention__runs_once_an_hour(self, store: LedgerStore) -> None:
        """The first cycle of an hour does it."""
        done_s = []
        for now_s in (1200.0, 1300.0, 1200.0 + 3600.0):
            cycle(store, now_s)
            done_s += [row["done_s"] for row in rows_of(store, schema.chores)]
        assert done_s == [1200.0, 1200.0, 4800.0]

    def test_retention__goes_on_in_the_next_cycle_when_its_time_is_up(
        self, reopen, store: LedgerStore, config: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One batch at least, then no more in this cycle; the hour begins when all is done."""
        monkeypatch.setattr(ledger_records, "BATCH_ROWS", 2)
        cycle(
            store,
            1200.0,
            *(pending(job_id) for job_id in range(1, 6)),
            outcomes=[nice(0, 9, 0, j) for j in range(1, 6)],
        )
        now_s, left = 1200.0 + (config.ledger.keep_days + 1) * DAY_S, []
        monkeypatch.setattr(ledger_records.drop_old, "__kwdefaults__", {"budget_s": -1.0})
        for later_s in range(4):
            cycle(store, now_s + later_s)
            left.append(len(rows_of(store, schema.actions)))
        assert left == [3, 1, 0, 0]
        assert [row["done_s"] for row in rows_of(store, schema.chores)] == [now_s + 2]
