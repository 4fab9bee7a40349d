"""What a site's Slurm is: its settings, its version, our rights there, and how busy it is."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.model.snapshot import Rights, Site
from slurmsched.slurm.commands import Commands, Started, failure
from slurmsched.slurm.text import whole

SHOW_CONFIG = ("scontrol", "show", "config")
_SETTING = re.compile(r"^(\S[^=\n]*?)[ \t]*=[ \t]?(.*)$", re.MULTILINE)
_RIGHTS = {"none": Rights.USER, "operator": Rights.OPERATOR, "administrator": Rights.ADMINISTRATOR}


def parse_settings(text: str) -> dict[str, str]:
    """Keys and values of `scontrol show config`."""
    return {match[1].strip(): match[2].strip() for match in _SETTING.finditer(text)}


def read_settings(commands: Commands) -> dict[str, str]:
    """slurm.conf as slurmctld has it. Raises SlurmError when it does not answer."""
    return collect_settings(commands.start(*SHOW_CONFIG))


def collect_settings(started: Started) -> dict[str, str]:
    """Of SHOW_CONFIG, when it has ended. Raises SlurmError when slurmctld did not answer.

    Behind the settings scontrol pings slurmctld, and ends with 1 where that is not answered. The rate limiter
    (rl_enable) refuses a ping at once, not tried again as other requests are: settings that are there stay good.
    """
    status, out, err = started.finish()
    settings = parse_settings(out)
    if status and (status != 1 or "SLURM_VERSION" not in settings):
        raise failure(started.program, status, err or out)
    return settings


def read_site(commands: Commands) -> Site:
    """The site with our own rights in it. Raises SlurmError when slurmctld does not answer."""
    settings = read_settings(commands)
    return make_site(settings, read_rights(commands, settings))


def make_site(settings: Mapping[str, str], rights: Rights) -> Site:
    """The site of these settings. Raises UnreadableError when they are not Slurm's."""
    version = settings.get("SLURM_VERSION", "")
    if not version:
        raise UnreadableError("`scontrol show config` names no SLURM_VERSION", text=", ".join(list(settings)[:5]))
    return Site(settings.get("ClusterName", ""), version, rights, own_name(), settings)


def own_name() -> str:
    """The user slurmsched runs as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def read_rights(commands: Commands, settings: Mapping[str, str]) -> Rights:
    """Our own admin level, as ask_rights tells it; no answer counts as no rights beyond a user's."""
    told = ask_rights(commands, settings)
    return Rights.USER if told is None else told


def ask_rights(commands: Commands, settings: Mapping[str, str]) -> Rights | None:
    """Our own admin level, None if nobody answers. SlurmUser and root may do everything; without slurmdbd nobody else.

    slurmctld's own copy of the accounts is asked, which serves while slurmdbd is down; slurmdbd is asked
    where that does not name us.
    """
    user = own_name()
    slurm_user = settings.get("SlurmUser", "").partition("(")[0]
    if os.geteuid() == 0 or user == slurm_user:
        return Rights.ADMINISTRATOR
    if "slurmdbd" not in settings.get("AccountingStorageType", ""):
        return Rights.USER
    ours = _ask(commands, "scontrol", "show", "assoc_mgr", "flags=users", f"users={user}")
    found = re.search(rf"^UserName={re.escape(user)}\(.*\bAdminLevel=(\w+)", ours or "", re.MULTILINE)
    if found is None:
        kept = _ask(commands, "sacctmgr", "-nP", "show", "user", f"name={user}", "format=adminlevel")
        if ours is None and kept is None:
            return None
        found = re.match(r"(\w+)", kept or "")
    return _RIGHTS.get(found[1].lower(), Rights.USER) if found else Rights.USER


def _ask(commands: Commands, program: str, *arguments: str) -> str | None:
    """What the command prints; None when it fails."""
    try:
        return commands.run(program, *arguments)
    except SlurmError:
        return None


@dataclass(frozen=True, slots=True)
class Load:
    """How busy slurmctld is. threads: server threads now. dbd_queue: messages waiting for slurmdbd.

    agent_queue: messages waiting for nodes.
    """

    threads: int = 0
    dbd_queue: int = 0
    agent_queue: int = 0


_LOAD = {"Server thread count": "threads", "DBD Agent queue size": "dbd_queue", "Agent queue size": "agent_queue"}


def parse_load(text: str) -> Load:
    """The load of sdiag's text, all versions. Raises UnreadableError when it is not sdiag's."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words, _, number = line.partition(":")
        if (name := _LOAD.get(words.strip())) and (count := whole(number, -1)) >= 0:
            found.setdefault(name, count)
    if "threads" not in found:
        raise UnreadableError("sdiag tells no server thread count", text=text[:80])
    return Load(**found)


def read_load(commands: Commands) -> Load:
    """The load of slurmctld now. Raises SlurmError."""
    return parse_load(commands.run("sdiag"))
