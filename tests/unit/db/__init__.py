import pytest

pytest.register_assert_rewrite("tests.unit.db.ledger_suite")
