"""The lock: one slurmsched at a time, freed however its holder ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmsched.config_file import digest, parse_config
from slurmsched.daemon.lock import exclusive_lock, holder, lock_holder_work, work_of_config
from slurmsched.errors import LedgerError, LockedError, RightsError
from slurmsched.paths import owner

HOLD = "import sys, time, pathlib; from slurmsched.daemon.lock import exclusive_lock\n"
HOLD += "with exclusive_lock(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "lock"


def other(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_exclusive__names_the_holder(path):
    """Who comes second is told the pid, host and command of the first."""
    with other(path) as first:
        with pytest.raises(LockedError, match="let it end") as caught, exclusive_lock(path):
            pass
        first.kill()
    assert caught.value.holder.startswith(f"pid {first.pid} on {os.uname().nodename}: -c ")


def test_exclusive__is_free_after_kill_9(path):
    """The kernel frees it; the text that the dead holder left is harmless."""
    with other(path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert str(first.pid) in path.read_text()
    with exclusive_lock(path):
        assert path.read_text().startswith(f"pid {os.getpid()} ")


def test_exclusive__is_free_after_the_body(path):
    """Also when the body raises; nothing of the holder stays written after a clean end."""
    with pytest.raises(ZeroDivisionError), exclusive_lock(path):
        1 / 0  # noqa: B018
    with exclusive_lock(path):
        pass
    assert path.read_text() == ""


def test_holder__tells_who_and_does_not_disturb(path):
    """Asking takes nothing from anybody."""
    assert holder(path) == ""
    with exclusive_lock(path):
        assert holder(path).startswith(f"pid {os.getpid()} ")
    assert holder(path) == ""


def test_exclusive__folder_that_cannot_be_made_raises(tmp_path):
    """A path under a file: LedgerError that names it."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "lock"
    with pytest.raises(LedgerError, match=r"file/lock: the lock cannot be opened"), exclusive_lock(path):
        pass


def test_exclusive__without_permission_names_whom_to_run_it_as(tmp_path, monkeypatch):
    """Run as root or as oneself, the commands that write are the service user's."""

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    advice = f"Permission denied; run it as {owner(tmp_path)}, who owns {tmp_path}, or see ledger.lock"
    with pytest.raises(LedgerError, match=advice), exclusive_lock(tmp_path / "lock"):
        pytest.fail("not reached")


def test_exclusive__that_cannot_be_signed_is_a_ledger_error(path, monkeypatch):
    """A full disk is told as such; nobody works without a signed lock."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    said = "lock cannot be signed: No space left on device; free some space"
    with pytest.raises(LedgerError, match=said), exclusive_lock(path):
        pytest.fail("not reached")


def test_exclusive__on_a_disk_mounted_to_be_read_only_says_so(tmp_path, monkeypatch):
    """No other user and no other key helps there."""

    def refused(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(LedgerError, match="mount it so that it can be written"), exclusive_lock(tmp_path / "lock"):
        pytest.fail("not reached")


def test_exclusive__root_makes_no_files_in_a_folder_of_somebody_else(tmp_path, monkeypatch):
    """The daemon could not open them afterwards: root is told as whom to run it, and nothing is made."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: SimpleNamespace(st_uid=4242))
    with (
        pytest.raises(RightsError, match="run it as 4242: runuser -u 4242 -- slurmsched"),
        exclusive_lock(tmp_path / "l"),
    ):
        pytest.fail("not reached")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_exclusive__publishes_what_its_holder_does(path):
    """Behind who it is, again at each change; the lock is as old as before. A holder that says nothing, or a file of
    another version, tells nothing."""
    tree = parse_config({"scope": {"partitions": ["gpu"]}})
    assert lock_holder_work(path) is None
    with exclusive_lock(path) as publish:
        assert lock_holder_work(path) is None
        os.utime(path, (1_000, 1_000))
        publish(work_of_config(tree, apply=True, refused="policy: unknown\nname"))
        publish(first := work_of_config(tree, apply=False))
        assert lock_holder_work(path) == first
        assert (first.mode, first.config, first.refused) == ("dry-run", digest(tree), "")
        assert holder(path).startswith(f"pid {os.getpid()} ")
        assert path.stat().st_mtime == 1_000
        path.write_text(path.read_text().replace('"mode"', '"kind"'))
        assert lock_holder_work(path) is None
    assert (lock_holder_work(path), holder(path)) == (None, "")


def test_digest__tells_configurations_apart_and_no_password():
    """Each setting counts; a password does not, whose guesses the digest could be held against."""
    one, other = (parse_config({"cycle": {"interval_s": seconds}}) for seconds in (5, 6))
    assert digest(one) != digest(other) != digest(parse_config({}))
    urls = [f"mysql+pymysql://me:{word}@db/slurmsched" for word in ("secret", "other")]
    assert len({digest(parse_config({"ledger": {"url": url}})) for url in urls}) == 1
