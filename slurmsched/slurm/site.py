"""A site's Slurm: settings, version, load, partitions with GPUs, our rights there, and a tag for this installation."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from slurmsched.config import Config
from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.model.gres import count_gpus, count_mig, parse_gres
from slurmsched.model.slurm_text import whole_number
from slurmsched.model.snapshot import Rights, Site
from slurmsched.passwords import url_without_password
from slurmsched.slurm.commands import Commands, RunningCommand, command_error

SHOW_CONFIG = ("scontrol", "show", "config")
_SETTING = re.compile(r"^(\S[^=\n]*?)[ \t]*=[ \t]?(.*)$", re.MULTILINE)
_RIGHTS = {"none": Rights.USER, "operator": Rights.OPERATOR, "administrator": Rights.ADMINISTRATOR}


def parse_settings(text: str) -> dict[str, str]:
    """Keys and values of `scontrol show config`."""
    return {match[1].strip(): match[2].strip() for match in _SETTING.finditer(text)}


def read_settings(commands: Commands) -> dict[str, str]:
    """slurm.conf as slurmctld has it. Raises SlurmError if it does not answer."""
    return collect_settings(commands.start(*SHOW_CONFIG))


def collect_settings(started: RunningCommand) -> dict[str, str]:
    """The settings of a started SHOW_CONFIG. Raises SlurmError if slurmctld did not answer.

    After printing them scontrol pings slurmctld, and ends with 1 if that fails. The rate limiter (rl_enable) may refuse
    the ping, which is not retried. The settings are valid all the same.
    """
    status, out, err = started.finish()
    settings = parse_settings(out)
    if status and (status != 1 or "SLURM_VERSION" not in settings):
        raise command_error(started.program, status, err or out)
    return settings


def read_site(commands: Commands) -> Site:
    """The site and our rights there. Raises SlurmError if slurmctld does not answer."""
    settings = read_settings(commands)
    return make_site(settings, read_rights(commands, settings))


def make_site(settings: Mapping[str, str], rights: Rights) -> Site:
    """The site of these settings. Raises UnreadableError if they are not Slurm's."""
    version = settings.get("SLURM_VERSION", "")
    if not version:
        raise UnreadableError("`scontrol show config` names no SLURM_VERSION", text=", ".join(list(settings)[:5]))
    return Site(settings.get("ClusterName", ""), version, rights, own_name(), settings)


def own_name() -> str:
    """The user that runs this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def read_rights(commands: Commands, settings: Mapping[str, str]) -> Rights:
    """Our admin level, as ask_rights; without an answer, that of a user."""
    rights = ask_rights(commands, settings)
    return Rights.USER if rights is None else rights


def ask_rights(commands: Commands, settings: Mapping[str, str]) -> Rights | None:
    """Our admin level; None without an answer. SlurmUser and root may do everything; without slurmdbd nobody else may.

    slurmctld's copy of the accounts is read first, since it works while slurmdbd is down. slurmdbd is asked if that
    copy does not contain us.
    """
    user = own_name()
    slurm_user = settings.get("SlurmUser", "").partition("(")[0]
    if os.geteuid() == 0 or user == slurm_user:
        return Rights.ADMINISTRATOR
    if not Site(settings=settings).accounts_in_slurmdbd:
        return Rights.USER
    ours = _ask(commands, "scontrol", "show", "assoc_mgr", "flags=users", f"users={user}")
    found = re.search(rf"^UserName={re.escape(user)}\(.*\bAdminLevel=(\w+)", ours or "", re.MULTILINE)
    if found is None:
        record = _ask(commands, "sacctmgr", "-nP", "show", "user", f"name={user}", "format=adminlevel")
        if ours is None and record is None:
            return None
        found = re.match(r"(\w+)", record or "")
    return _RIGHTS.get(found[1].lower(), Rights.USER) if found else Rights.USER


def operator_line(user: str) -> str:
    """The command that gives a user the Operator right.

    `sacctmgr modify` does nothing for a user without association, and `add` nothing for a user with one.
    """
    return (
        f"sacctmgr add user {user} account=root adminlevel=Operator "
        f"(if it has an association: sacctmgr modify user {user} set adminlevel=Operator)"
    )


def _ask(commands: Commands, program: str, *arguments: str) -> str | None:
    """The output of the command; None if it fails."""
    try:
        return commands.run(program, *arguments)
    except SlurmError:
        return None


@dataclass(frozen=True, slots=True)
class SdiagLoad:
    """The load of slurmctld.

    threads: server threads now.
    dbd_queue: messages waiting for slurmdbd.
    agent_queue: messages waiting for nodes.
    """

    threads: int = 0
    dbd_queue: int = 0
    agent_queue: int = 0


_LOAD = {"Server thread count": "threads", "DBD Agent queue size": "dbd_queue", "Agent queue size": "agent_queue"}


def parse_load(text: str) -> SdiagLoad:
    """The load in the output of sdiag, of any version. Raises UnreadableError for other text."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words, _, number = line.partition(":")
        if (name := _LOAD.get(words.strip())) and (count := whole_number(number, -1)) >= 0:
            found.setdefault(name, count)
    if "threads" not in found:
        raise UnreadableError("sdiag shows no server thread count", text=text[:80])
    return SdiagLoad(**found)


def read_load(commands: Commands) -> SdiagLoad:
    """The load of slurmctld now. Raises SlurmError."""
    return parse_load(commands.run("sdiag"))


# A tag for this installation.


def installation_tag(config: Config) -> str:
    """Six hex digits for the names of its reservations. They are the same at every start.

    They follow from the place of the record of operations: host and journal file, or the database if several hosts
    share one.
    """
    where = [socket.gethostname(), str(config.ledger.journal.absolute())]
    if config.leader.enabled:
        url = urlsplit(url_without_password(config.ledger.url))
        where = [url.hostname or "", str(url.port or ""), url.path]
    return hashlib.blake2b("\0".join(where).encode(), digest_size=3).hexdigest()


# What `slurmsched init` reads of a site: its release, its partitions with GPUs, its accounting.


@dataclass(frozen=True, slots=True)
class GpuPartition:
    """A partition with GPUs.

    nodes: nodes with GPUs.
    gpus: whole GPUs.
    types: their types, ascending.
    mig: MIG devices.
    unread: nodes whose gres cannot be read.
    """

    name: str
    nodes: int
    gpus: int
    types: tuple[str, ...] = ()
    mig: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class DiscoveredSite:
    """A site.

    version, cluster, slurm_user: of slurm.conf.
    partitions: those with GPUs, most GPUs first.
    settings: keys of slurm.conf that begin with Priority.
    """

    version: str
    cluster: str
    slurm_user: str
    multifactor: bool
    slurmdbd: bool
    partitions: tuple[GpuPartition, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


def discover_site(commands: Commands) -> DiscoveredSite:
    """Read the site. Raises SlurmError if slurmctld does not answer."""
    settings = read_settings(commands)
    return DiscoveredSite(
        settings.get("SLURM_VERSION", ""),
        settings.get("ClusterName", ""),
        settings.get("SlurmUser", "").partition("(")[0],
        "multifactor" in settings.get("PriorityType", ""),
        Site(settings=settings).accounts_in_slurmdbd,
        gpu_partitions(commands.run("sinfo", "-h", "-a", "-o", "%R|%D|%G")),
        {key: value for key, value in settings.items() if key.startswith("Priority")},
    )


def gpu_partitions(text: str) -> tuple[GpuPartition, ...]:
    """Partitions with GPUs, from `sinfo -o "%R|%D|%G"`: one line for each kind of node in a partition."""
    found: dict[str, GpuPartition] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        count, _, gres = rest.partition("|")
        if count.isdecimal() and "gpu" in gres:
            found[name] = _with(found.get(name, GpuPartition(name, 0, 0)), int(count), gres)
    made = [one for one in found.values() if one.nodes or one.unread]
    return tuple(sorted(made, key=lambda one: (-one.gpus, -one.mig, one.name)))


def _with(one: GpuPartition, nodes: int, gres: str) -> GpuPartition:
    """The partition with this many more nodes of this gres."""
    try:
        entries = [entry for entry in parse_gres(gres) if entry.kind == "gpu"]
    except UnreadableError:
        return replace(one, unread=one.unread + nodes)
    if not entries:
        return one
    types = {*one.types, *(entry.type for entry in entries if entry.type)}
    return GpuPartition(one.name, one.nodes + nodes, one.gpus + nodes * count_gpus(entries), tuple(sorted(types)),
                        one.mig + nodes * count_mig(entries), one.unread)  # fmt: skip
