"""The ledger on SQLite, and what only SQLite has."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.db import database as engines
from slurmsched.db import ledger_records
from slurmsched.db.ledger_store import open_store
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError
from slurmsched.logs import Log
from slurmsched.model import Plan, Receipt
from slurmsched.testing import snapshot
from tests.unit.db.ledger_suite import CutSuite, LedgerSuite, cycle, nice, pending, running


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/made/ledger.db"


class TestSqlite(LedgerSuite, CutSuite):
    """Every rule of the suite."""


@pytest.fixture
def config(ledger_url: str, tmp_path: Path) -> Config:
    return parse_config({"ledger": {"url": ledger_url, "journal": str(tmp_path / "journal.jsonl")}})


def test_open_store__makes_folder_and_file(config: Config, tmp_path: Path) -> None:
    """First use needs no other command; the file is written ahead (WAL)."""
    open_store(config).close()
    connection = sqlite3.connect(tmp_path / "made" / "ledger.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_append__a_locked_database_fails_clearly_and_loses_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be remembered is in the journal; the next cycle takes it from there."""
    monkeypatch.setattr(engines, "BUSY_S", 0)
    store = open_store(config)
    cycle(store, 1100.0, pending(nice=5))
    recalled = store.recall(snapshot([pending(nice=5), running(2, start_s=1150.0, now_s=1200.0)], now_s=1200.0))
    other = sqlite3.connect(tmp_path / "made" / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    write = nice(5, -300, 5)
    OverrideLog(config.ledger.journal).intend("c1", [write.action])
    with pytest.raises(LedgerError, match=r"locked; another process holds it"):
        store.append(recalled, Plan((write.action,)), Receipt((write,), planned=1))
    with pytest.raises(LedgerError, match=r"locked; another process holds it"):  # told before a job is touched
        store.recall(recalled)
    other.execute("ROLLBACK")
    other.close()
    jobs = cycle(store, 1300.0, pending(nice=-300), running(2, start_s=1150.0, now_s=1300.0)).jobs
    assert (jobs.base_nice[0], jobs.written[0], jobs.attained_gpu_s[1]) == (5, True, 600.0)


def test_append__a_full_disk_fails_clearly_and_the_next_cycle_works(config: Config) -> None:
    """The cycle is on record as a whole or not at all."""
    store = open_store(config)
    cycle(store, 1100.0, pending())
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    many = [running(job_id, start_s=1150.0, now_s=1200.0) for job_id in range(2, 2000)]
    with pytest.raises(LedgerError, match="full; free some space"):
        cycle(store, 1200.0, *many)
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert cycle(store, 1300.0, *many[:1]).jobs.attained_gpu_s.tolist() == [200.0]


@pytest.mark.parametrize("replaced", [False, True])
def test_recall__a_file_that_was_removed_under_it_is_told_before_a_job_is_touched(
    config: Config, tmp_path: Path, replaced: bool
) -> None:
    """SQLite goes on in the file without a name: all would be gone with the process. Opened anew it works."""
    store, file = open_store(config), tmp_path / "made" / "ledger.db"
    cycle(store, 1100.0, pending())
    copy = file.read_bytes()
    file.rename(tmp_path / "away.db")
    if replaced:
        file.write_bytes(copy)
    with pytest.raises(LedgerError, match="was removed or replaced while it was open; restart slurmsched"):
        cycle(store, 1200.0, pending())
    store.close()
    assert len(cycle(open_store(config), 1300.0, pending()).jobs) == 1


@pytest.mark.parametrize("content", [None, b"this is no database", b""])
def test_open_store__read_only_serves_without_a_ledger(config: Config, tmp_path: Path, content: bytes | None) -> None:
    """`plan` works for anyone: with a warning, an empty memory, and nothing made on disk."""
    file = tmp_path / "made" / "ledger.db"
    if content is not None:
        file.parent.mkdir()
        file.write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    recalled = open_store(config, read_only=True).recall(snapshot([pending(nice=3)], now_s=1100.0))
    assert ["without memory" in text for text in recalled.warnings] == [True]
    assert (recalled.jobs.base_nice.tolist(), sorted(tmp_path.rglob("*"))) == ([3], before)


def test_open_store__read_only_reads_what_is_there(config: Config) -> None:
    """And appends nothing."""
    cycle(open_store(config), 1100.0, pending(nice=5), outcomes=[nice(5, -800, 5)])
    store = open_store(config, read_only=True)
    recalled = store.recall(snapshot([pending(nice=-800)], now_s=1200.0))
    assert (recalled.jobs.base_nice.tolist(), recalled.warnings) == ([5], ())
    with pytest.raises(LedgerError, match="reading only"):
        cycle(store, 1200.0, pending(nice=-800))


def test_recall__read_only_an_unreadable_journal_is_a_warning(config: Config) -> None:
    """`plan` by someone who may not read it; a cycle that writes must know it."""
    config.ledger.journal.mkdir()  # a folder cannot be read as a file, not even by root
    look = snapshot([pending(nice=3)], now_s=1100.0)
    recalled = open_store(config, read_only=True).recall(look)
    assert ["values written by a cycle" in text for text in recalled.warnings[-1:]] == [True]
    with pytest.raises(LedgerError, match="journal cannot be read"):
        open_store(config).recall(look)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("no url", "is not an SQLAlchemy URL"),
        ("oracle://somewhere/db", "is not offered; use sqlite"),
        ("sqlite:////proc/nothing/ledger.db", "cannot be made"),
        ("postgresql://user:secret@127.0.0.1:1/db", r"user:\*\*\*@127.0.0.1"),
    ],
)
def test_open_store__a_url_that_cannot_work_says_why(url: str, text: str) -> None:
    """What, where, what to do; never the password."""
    with pytest.raises(LedgerError, match=text):
        open_store(parse_config({"ledger": {"url": url}}))


def test_recall__a_bad_line_of_the_journal_is_told_of_once(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """cron would mail it every minute."""
    told: list[str] = []
    monkeypatch.setattr(Log, "warning", lambda _, event, **values: told.append(event))
    config.ledger.journal.write_bytes(b"broken\n")
    for now_s in (1100.0, 1200.0):
        store = open_store(config)
        cycle(store, now_s, pending(nice=-5000))  # looks like ours: the journal is asked
        store.close()
    assert told == ["journal.lines_set_aside"]


MINUTE = (
    """INSERT INTO cycles VALUES (NULL, :now, :now, 0.1, '0123456789abcdef', 'las', 10000, 500, 500, 0, 0, 0, '')"""
)
WRITES = """WITH RECURSIVE series(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM series WHERE value < 500)
 INSERT INTO actions SELECT NULL, (SELECT max(id) FROM cycles), :now + value, :now, 'nice', 0, -4000, 0,
 'las: rank 77 of 10000, attained 0', 'written', '' FROM series"""


def test_retention__keeps_up_with_500_writes_a_minute(config: Config) -> None:
    """Half a day of the fastest pace there is, an hour of it kept: no more ever stays, at a second a cycle."""
    engine = engines.open_engine(config.ledger.url)
    engines.prepare_schema(engine)
    kept, cycles = [], []
    for hour in range(1, 13):
        with engine.begin() as connection:
            for minute in range(60):
                now = {"now": hour * 3600 + minute * 60}
                connection.exec_driver_sql(MINUTE, now)
                connection.exec_driver_sql(WRITES, now)
        tries = iter(range(60))  # an hour has no more cycles
        cycles.append(
            1 + next(n for n in tries if ledger_records.drop_old(engine, hour * 3600 + 3540, 1 / 24, field="nice"))
        )
        with engine.connect() as connection:
            kept.append(connection.exec_driver_sql("SELECT count(*) FROM actions").scalar())
    engine.dispose()
    assert (max(kept), max(cycles) <= 60) == (60 * 500 + 500, True)


def test_prepare__cut_off_in_the_middle_leaves_no_half_schema(tmp_path):
    """All tables are made in one transaction: the next process finds an empty database and makes them all."""
    engine = engines.open_engine(f"sqlite:///{tmp_path}/ledger.db")
    made = []

    def cut(_connection, _cursor, statement, *_):
        made.extend([statement] if statement.lstrip().startswith("CREATE TABLE") else [])
        if len(made) == 5:
            raise KeyboardInterrupt

    sa.event.listen(engine, "before_cursor_execute", cut)
    with pytest.raises(KeyboardInterrupt):
        engines.prepare_schema(engine)
    sa.event.remove(engine, "before_cursor_execute", cut)
    assert sa.inspect(engine).get_table_names() == []
    engines.prepare_schema(engine)
    engines.check_schema(engine)
