"""What every unit test starts with."""

from __future__ import annotations

import pytest
import structlog

from slurmsched import logs


@pytest.fixture(autouse=True)
def own_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logging as in a process that has just begun, whatever level the command of the test before chose."""
    structlog.reset_defaults()
    monkeypatch.setattr(
        logs, "_chosen", {"least": logs.LEVELS["info"], "format": "auto", "asked": False, "ready": False}
    )
