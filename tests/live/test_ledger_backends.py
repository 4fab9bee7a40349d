"""The whole suites of ledger and leader lease on the lab's MariaDB and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from slurmsched.db import engine as engines
from slurmsched.db.store import LedgerStore
from slurmsched.errors import LedgerError
from tests.live.lab import run
from tests.unit.db.lease_suite import LeaseSuite
from tests.unit.db.ledger_suite import CutSuite, LedgerSuite, cycle, emptied, missing_tables, pending

pytestmark = [pytest.mark.live, pytest.mark.newest]
MARIADB = "mysql+pymysql://slurmsched:slurmsched@127.0.0.1/slurmsched?charset=utf8mb4"
POSTGRESQL = "postgresql+psycopg://slurmsched:slurmsched@127.0.0.1/slurmsched"


@pytest.fixture(scope="module")
def postgresql(lab: None) -> Iterator[str]:
    """The lab starts its PostgreSQL only when asked to."""
    run("labctl", "start", "postgres")
    yield POSTGRESQL
    run("labctl", "stop", "postgres")


class TestMariaDb(LedgerSuite, CutSuite, LeaseSuite):
    """Every rule of the suite, on the server that slurmdbd uses too."""

    @pytest.fixture
    def ledger_url(self, lab: None) -> Iterator[str]:
        with emptied(MARIADB):
            yield MARIADB

    def test_tables__hold_any_script(self, ledger_url: str) -> None:
        """utf8mb4, whatever the default of the server."""
        engines.upgrade(ledger_url)
        engine = engines.open_engine(ledger_url)
        with engine.connect() as connection:
            query = "SELECT DISTINCT character_set_name FROM information_schema.columns WHERE table_schema = DATABASE()"
            sets = connection.exec_driver_sql(
                f"{query} AND table_name <> 'alembic_version' AND character_set_name IS NOT NULL"
            )
            found = sets.scalars().all()
        engine.dispose()
        assert found == ["utf8mb4"]

    def test_upgrade__drops_no_table_with_rows(self, ledger_url: str, reopen: Callable[[], LedgerStore]) -> None:
        """A ledger whose revision was lost: said which table has rows, and nothing is touched."""
        cycle(reopen(), 1100.0, pending())
        engine = engines.open_engine(ledger_url)
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM alembic_version")
        engine.dispose()
        with pytest.raises(LedgerError, match=r"table chores has rows, .* restore the table alembic_version"):
            engines.upgrade(ledger_url)
        assert missing_tables(ledger_url) == set()


class TestPostgreSql(LedgerSuite, LeaseSuite):
    """Every rule of the suite."""

    @pytest.fixture
    def ledger_url(self, postgresql: str) -> Iterator[str]:
        with emptied(postgresql):
            yield postgresql
