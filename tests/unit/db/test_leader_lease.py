"""The leader lease on SQLite, where every rule can be tried without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError
from tests.unit.db.lease_suite import LeaseSuite


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


class TestSqlite(LeaseSuite):
    """Every rule of the suite."""


def test_config__a_file_is_no_ledger_for_two_hosts() -> None:
    """Its locks are this host's: leader.enabled wants a server."""
    with pytest.raises(ConfigError, match=r"leader.enabled needs a ledger.url that all hosts share"):
        parse_config({"leader": {"enabled": True}})
