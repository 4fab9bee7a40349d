"""The whole suites of ledger and leader lease on the lab's MariaDB and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurmsched.db import engine as engines
from tests.live.lab import run
from tests.unit.db.lease_suite import LeaseSuite
from tests.unit.db.ledger_suite import LedgerSuite, emptied

pytestmark = [pytest.mark.live, pytest.mark.newest]
MARIADB = "mysql+pymysql://slurmsched:slurmsched@127.0.0.1/slurmsched?charset=utf8mb4"
POSTGRESQL = "postgresql+psycopg://slurmsched:slurmsched@127.0.0.1/slurmsched"


@pytest.fixture(scope="module")
def postgresql(lab: None) -> Iterator[str]:
    """The lab starts its PostgreSQL only when asked to."""
    run("labctl", "start", "postgres")
    yield POSTGRESQL
    run("labctl", "stop", "postgres")


class TestMariaDb(LedgerSuite, LeaseSuite):
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


class TestPostgreSql(LedgerSuite, LeaseSuite):
    """Every rule of the suite."""

    @pytest.fixture
    def ledger_url(self, postgresql: str) -> Iterator[str]:
        with emptied(postgresql):
            yield postgresql
