"""Files of slurmsched: who may write them, and who may read the password."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.db import schema
from slurmsched.db.ledger_store import open_store
from slurmsched.slurm.doctor import CheckResult, site_checks
from slurmsched.slurm.doctor.site_checks import check_files, service_user


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


def configured(folder: Path, **ledger: Any) -> Config:
    files = {"url": f"sqlite:///{folder}/ledger.db", "journal": f"{folder}/journal.jsonl", "lock": f"{folder}/lock"}
    return parse_config({"ledger": files | ledger, "cycle": {"stop_file": f"{folder}/stop"}})


def judged(config: Config, path: Path | None = None) -> dict[str, CheckResult]:
    return {finding.name: finding for finding in check_files(config, path)}


def deny(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """As if somebody else owned these (root may write anything)."""
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in paths and real(path, mode))


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tests is no root, whoever it is."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(site_checks, "own_name", lambda: "slurmsched")
    monkeypatch.setattr(site_checks, "owner", lambda _: "slurmsched")


def test_file_findings__of_a_fresh_folder_are_all_ok(folder: Path) -> None:
    """Nothing made yet, and everything can be; nothing is made by looking."""
    assert {finding.verdict for finding in check_files(configured(folder), None)} == {"ok"}
    assert list(folder.iterdir()) == []


def test_file_findings__of_a_ledger_in_use(folder: Path) -> None:
    """The schema is looked at too."""
    open_store(configured(folder)).close()
    assert judged(configured(folder))["ledger"].detail.endswith(f"ledger.db: schema {schema.HEAD}")
    (folder / "ledger.db").write_bytes(b"this is no database, by far" * 100)
    assert judged(configured(folder))["ledger"].verdict == "fail"


@pytest.mark.parametrize("name", ["ledger", "journal", "lock"])
def test_file_findings__folder_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The service user must be able to write; the line to change names folder and user."""
    deny(monkeypatch, folder)
    found = judged(configured(folder))[name]
    assert (found.verdict, found.remedy) == ("fail", f"chown -R {site_checks.own_name()} {folder}")


def test_file_findings__folder_that_cannot_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is offered ready to paste."""
    deny(monkeypatch, folder)
    found = judged(configured(folder, lock=f"{folder}/deeper/lock"))["lock"]
    assert found.remedy == f"install -d -o {site_checks.own_name()} -m 0750 {folder}/deeper"


def test_file_findings__somebody_who_only_looks_needs_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only cycles and undo write: told, and nothing to repair."""
    deny(monkeypatch, folder)
    monkeypatch.setattr(site_checks, "own_name", lambda: "ann")
    found = judged(configured(folder))["lock"]
    assert (found.verdict, found.remedy) == ("warn", "tick, daemon and undo: run them as slurmsched")


@pytest.mark.parametrize(
    ("flag", "free", "detail", "remedy"),
    [
        (os.ST_RDONLY, 9, "its file system is mounted read-only", "mount -o remount,rw"),
        (0, 0, "its disk is full", "free some space"),
    ],
)
def test_file_findings__of_a_disk_that_takes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, flag: int, free: int, detail: str, remedy: str
) -> None:
    """No owner is at fault: chown would not help."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flag, f_blocks=9, f_bavail=free))
    found = judged(configured(folder))
    assert {(found[name].verdict, found[name].remedy) for name in ("ledger", "journal", "lock")} == {("fail", remedy)}
    assert found["lock"].detail == f"{folder}/lock: {detail}"


def test_file_findings__of_root_say_that_they_are_roots(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is well for root always: who reads that would start a daemon that may do nothing."""
    assert "who looks" not in judged(configured(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = judged(configured(folder))["who looks"]
    assert (found.verdict, found.remedy) == ("warn", "runuser -u slurmsched -- slurmsched doctor")
    monkeypatch.setattr(site_checks, "service_user", lambda _: "root")
    assert "there is no user slurmsched yet" in judged(configured(folder))["who looks"].detail


def test_file_findings__of_the_stop_file(folder: Path) -> None:
    """The first thing to look for where nothing is written."""
    (folder / "stop").touch()
    found = judged(configured(folder))["stop file"]
    assert (found.verdict, found.remedy) == ("warn", f"rm {folder}/stop")


@pytest.mark.parametrize(
    ("mode", "url", "verdict", "remedy"),
    [
        (0o644, "sqlite:////tmp/x.db", "ok", ""),
        (0o646, "sqlite:////tmp/x.db", "fail", "chmod o-w"),
        (0o644, "mysql://me:secret@127.0.0.1:1/x", "warn", "chmod 0640"),
        (0o640, "mysql://me:secret@127.0.0.1:1/x", "ok", ""),
    ],
)
def test_file_findings__of_the_configuration(folder: Path, mode: int, url: str, verdict: str, remedy: str) -> None:
    """Nobody else may change it, and a password in it is not for everybody."""
    path = folder / "slurmsched.toml"
    path.touch()
    path.chmod(mode)
    found = site_checks._config_file(configured(folder, url=url), path, "slurmsched")
    assert (found.verdict, remedy in found.remedy, stat.filemode(path.stat().st_mode) in found.detail) == (
        verdict, True, True)  # fmt: skip
    assert "secret" not in found.detail


def test_file_findings__configuration_of_a_stranger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither root nor the service user: its owner decides what we do."""
    monkeypatch.setattr(site_checks, "owner", lambda _: "mallory")
    monkeypatch.setattr(site_checks, "service_user", lambda _: "slurmsched")
    path = folder / "slurmsched.toml"
    path.touch(0o644)
    assert judged(configured(folder), path)["configuration file"].remedy == f"chown root {path}"


def test_file_findings__a_server_that_does_not_answer(folder: Path) -> None:
    """Without its ledger no cycle works."""
    found = judged(configured(folder, url="postgresql://me:secret@127.0.0.1:1/x"))["ledger"]
    assert (found.verdict, "secret" in found.detail) == ("fail", False)


def test_service_user__owns_the_folder_of_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none yet, it is the user slurmsched, or whoever asks."""
    monkeypatch.setattr(site_checks, "owner", lambda _: "sched")
    assert service_user(configured(folder)) == "sched"
    assert service_user(configured(folder / "none")) in (site_checks.own_name(), "slurmsched")
