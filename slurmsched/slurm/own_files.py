"""What slurmsched needs of the machine it runs on: files it may write, and a configuration nobody else may change."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from slurmsched.config import Config
from slurmsched.db import engine as engines
from slurmsched.errors import LedgerError
from slurmsched.passwords import holds_password, url_without_password
from slurmsched.paths import owner, standing_folder
from slurmsched.slurm.finding import Finding
from slurmsched.slurm.site import own_name

SERVICE_USER = "slurmsched"  # as site-configs/sysusers makes it


def service_user(config: Config) -> str:
    """Who runs the cycles here: the owner of the lock's folder, else the user slurmsched, else we."""
    folder = config.ledger.lock.absolute().parent
    if folder.is_dir() and owner(folder) != "root":
        return owner(folder)
    try:
        return pwd.getpwnam(SERVICE_USER).pw_name
    except KeyError:
        return own_name()


def file_findings(config: Config, path: Path | None) -> tuple[Finding, ...]:
    """Who looks, ledger, journal, lock, stop file and configuration file (None: built-in defaults), judged for this
    user."""
    user = service_user(config)
    return (
        *_as_root(user),
        _ledger(config, user),
        _writable("journal", config.ledger.journal, user, "Nothing is sent that cannot be put on record first."),
        _writable("lock", config.ledger.lock, user, "It keeps two cycles from writing at once."),
        _stop_file(config.cycle.stop_file),
        _config_file(config, path, user),
    )


def _as_root(user: str) -> tuple[Finding, ...]:
    """root may do everything, so that what it finds well says nothing of the user that the cycles run as."""
    if os.geteuid() != 0:
        return ()
    why = "What root may do the user of daemon and cron may not: only his own doctor tells of his rights and files."
    if user != "root":
        return (Finding("who looks", "warn", "root", why, f"runuser -u {user} -- slurmsched doctor"),)
    made = "systemd-sysusers, systemd-tmpfiles and sacctmgr as in docs/install.md, User and rights"
    return (Finding("who looks", "warn", f"root; there is no user {SERVICE_USER} yet", why, made),)


def _ledger(config: Config, user: str) -> Finding:
    why = "Attained service and what users chose are remembered there."
    try:
        url = make_url(config.ledger.url)
        if url.get_backend_name() == "sqlite" and url.database:
            found = _writable("ledger", Path(url.database), user, why)
            if not found.ok or not Path(url.database).exists():
                return found
        return Finding("ledger", "ok", engines.look(config.ledger.address), why)
    except LedgerError as error:
        return Finding("ledger", "fail", str(error), why, "ledger.url: see docs/ledger.md")
    except (ValueError, ArgumentError):  # its text may hold a password
        detail = f"ledger.url {url_without_password(config.ledger.url)} is not an SQLAlchemy URL"
        return Finding("ledger", "fail", detail, why, "ledger.url: see docs/ledger.md")


def _writable(name: str, path: Path, user: str, why: str) -> Finding:
    """Whether we may make, read and replace this file. fail for the service user, warn for others, who only look."""
    folder, me = standing_folder(path), own_name()
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        return Finding(name, "fail", f"{path}: its file system is mounted read-only", why, "mount -o remount,rw")
    if disk.f_blocks and not disk.f_bavail:
        return Finding(name, "fail", f"{path}: no space is left there", why, "free some space")
    if os.access(folder, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.R_OK | os.W_OK)):
        return Finding(name, "ok", f"{path} can be written", why)
    if me != user:
        return Finding(name, "warn", f"{me} may not write {path}", why, f"tick, daemon and undo: run them as {user}")
    made = folder == path.absolute().parent
    remedy = f"chown -R {user} {folder}" if made else f"install -d -o {user} -m 0750 {path.parent}"
    return Finding(name, "fail", f"{user} may not write {path}", why, remedy)


def _stop_file(path: Path) -> Finding:
    there = os.path.exists(path)  # noqa: PTH110 - a folder that may not be read is no error
    detail = f"{path} is there: nothing is written" if there else "not there"
    why = "While it is there tick and daemon write nothing."
    return Finding("stop file", "warn" if there else "ok", detail, why, f"rm {path}" if there else "")


def _config_file(config: Config, path: Path | None, user: str) -> Finding:
    why = "Who may write it decides what is written to Slurm; a password in it is for slurmsched only."
    if path is None:
        return Finding("configuration file", "ok", "built-in defaults", why)
    mode, belongs = path.stat().st_mode, owner(path)
    secret = holds_password(config.ledger.url) and mode & stat.S_IROTH
    verdict, detail, remedy = "ok", f"{path}, {stat.filemode(mode)}, of {belongs}", ""
    if mode & stat.S_IWOTH:
        verdict, remedy = "fail", f"chmod o-w {path}"
    elif secret:
        verdict, remedy = "warn", f"chgrp {user} {path} && chmod 0640 {path}"
        detail += ": everybody may read the password in ledger.url"
    elif belongs not in ("root", user, own_name()):
        verdict, remedy = "warn", f"chown root {path}"
    return Finding("configuration file", verdict, detail, why, remedy)
