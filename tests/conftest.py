"""Options of the test run."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from slurmsched import logs

settings.register_profile("busy", deadline=None)  # machines are noisy: a slow example is no fault
settings.load_profile("busy")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write replay goldens anew; review the diff")
    parser.addoption("--part", default="1/1", help="2/3: of the live tests' files only the second third")


@pytest.fixture(scope="session", autouse=True)
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tables of GPU sets are made anew, and not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logging and environment as in a process that has just begun, whatever the command of the test before chose."""
    structlog.reset_defaults()
    monkeypatch.setattr(
        logs, "_chosen", {"least": logs.LEVELS["info"], "format": "auto", "asked": False, "ready": False}
    )
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # so that monkeypatch gives back what a test makes of it
    monkeypatch.delenv("PYTHONSAFEPATH")
