"""A site's own slurm.conf as a cluster to replay on, with what sacctmgr printed of its limits beside it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurmsched.errors import ConfigError, InputError, UnreadableError
from slurmsched.replay.clusters import Described
from slurmsched.replay.layout import Layout, Limits, Node, Partition
from slurmsched.slurm.gres import count_gpus, normal_form, parse_gres
from slurmsched.slurm.text import memory_mib
from slurmsched.topology.conf_lines import ConfLine, Lines
from slurmsched.topology.plain import hosts

NAMES = {name.lower(): name for name in (
    "AuthInfo", "Epilog", "KillWait", "MinJobAge", "PriorityCalcPeriod", "PriorityFavorSmall", "PriorityMaxAge",
    "PriorityType", "PriorityWeightAge", "PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS",
    "PriorityWeightTRES", "SchedulerParameters", "SchedulerType",
)}  # fmt: skip
TIMES = ("PriorityMaxAge", "PriorityCalcPeriod")  # minutes, or [days-]hours[:minutes[:seconds]]
ABSENT = ("FUTURE", "DOWN")  # state of a node that is not there
QOS_FILE, ACCOUNTS_FILE = "qos.txt", "assoc.txt"


def read_slurm_site(path: Path) -> Described:
    """The cluster of a slurm.conf, or of a folder that holds one and maybe qos.txt and assoc.txt.

    Those are what `sacctmgr -P show qos` and `sacctmgr -P show assoc` print. Files that are included lie beside it.
    Raises InputError and ConfigError naming file and line or key.
    """
    folder, conf = (path, path / "slurm.conf") if path.is_dir() else (path.parent, path)
    lines = Lines(lambda name: _text(folder / Path(name).name, missing=None))
    text = _text(conf)
    made = _Conf(str(conf))
    for line in lines.read(text or ""):
        made.take(line)
    layout = Layout(made.all_nodes(), made.all_partitions(), _limits(folder / QOS_FILE, _QOS),
                    _limits(folder / ACCOUNTS_FILE, _ACCOUNT))  # fmt: skip
    warnings = (*lines.warnings, *made.warnings)
    return Described(layout, settings_of(made.settings), cpus_known=True, warnings=warnings)


def settings_of(given: Mapping[str, object]) -> dict[str, str]:
    """The keys of slurm.conf that the model reads, under Slurm's own names, times in seconds. Raises ConfigError."""
    known = {NAMES[key.lower()]: str(value) for key, value in given.items() if key.lower() in NAMES}
    return known | {key: f"{_seconds(known[key], key):.0f}" for key in TIMES if key in known}


class _Conf:
    """What the lines say so far; later NodeName lines of a node and later values of a key count less."""

    def __init__(self, source: str) -> None:
        self.source, self.warnings = source, list[str]()
        self.settings: dict[str, str] = {}
        self._nodes: dict[str, Node] = {}
        self._sets: dict[str, tuple[str, ...]] = {}
        self._partitions: list[tuple[bool, ConfLine, dict[str, str]]] = []
        self._defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}

    def take(self, line: ConfLine) -> None:
        for kind, defaults in self._defaults.items():
            if name := line.get(kind):
                values = defaults | dict(line.values)
                if name.upper() == "DEFAULT":
                    defaults |= dict(line.values)
                elif kind == "nodename":
                    self._take_nodes(line, values)
                else:
                    default = values.get("default", "no").lower() == "yes"
                    self._partitions.append((default, line, values))
                return
        if name := line.get("nodeset"):
            self._sets[name] = self._names(line, line.get("nodes"))
        self.settings |= {key: value for key, value in line.values.items() if key not in self.settings}

    def _take_nodes(self, line: ConfLine, values: Mapping[str, str]) -> None:
        if any(values.get("state", "").upper().startswith(state) for state in ABSENT):
            self.warnings.append(f"{line.where}: {line.get('nodename')} left out, State={values['state']}")
            return
        try:
            gres = parse_gres(values.get("gres", ""))
            memory = memory_mib(values.get("realmemory", ""))
            cpus = int(values.get("cpus") or values.get("procs") or _cores(values))
        except (UnreadableError, ValueError) as error:
            raise InputError(f"{line.where}: {error}", source=self.source) from error
        for name in self._names(line, line.get("nodename")):
            self._nodes.setdefault(name, Node(name, count_gpus(gres), cpus, memory, normal_form(gres, ("gpu",))))

    def _names(self, line: ConfLine, text: str) -> tuple[str, ...]:
        found = hosts(text)
        if found is None:
            raise InputError(f"{line.where}: {text!r} is not a hostlist", source=self.source)
        return found

    def all_nodes(self) -> tuple[Node, ...]:
        if not self._nodes:
            raise InputError("has no NodeName line; is it a slurm.conf?", source=self.source)
        return tuple(self._nodes.values())

    def all_partitions(self) -> tuple[Partition, ...]:
        """Those that have nodes, the default one first."""
        made = []
        for _, line, values in sorted(self._partitions, key=lambda each: not each[0]):
            names = self._members(line, values.get("nodes", ""))
            if not names:
                self.warnings.append(f"{line.where}: partition {line.get('partitionname')} has no nodes here, left out")
                continue
            tier, factor = (self._whole(line, values, key) for key in ("prioritytier", "priorityjobfactor"))
            made.append(Partition(line.get("partitionname"), names, tier, factor))
        if not made:
            raise InputError("has no PartitionName line with nodes", source=self.source)
        return tuple(made)

    def _members(self, line: ConfLine, text: str) -> tuple[str, ...]:
        if text.upper() == "ALL":
            return tuple(self._nodes)
        named = [name for part in self._names(line, text) for name in self._sets.get(part, (part,))]
        return tuple(name for name in named if name in self._nodes)

    def _whole(self, line: ConfLine, values: Mapping[str, str], key: str) -> int:
        text = values.get(key) or values.get("priority") or "1"
        if not text.isdigit():
            raise InputError(f"{line.where}: {key} is {text!r}, not a whole number", source=self.source)
        return int(text)


def _cores(values: Mapping[str, str]) -> int:
    sockets = int(values.get("sockets") or int(values.get("boards", "1")) * int(values.get("socketsperboard", "1")))
    return sockets * int(values.get("corespersocket", "1")) * int(values.get("threadspercore", "1"))


def _seconds(text: str, key: str) -> float:
    """Seconds of "30" (minutes), "5:30" (minutes), "1:00:00", "7-0" or "7-12:00:00"."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    if len(parts) > len(units) or not all(part.isdigit() for part in (*parts, days or "0")):
        raise ConfigError(f"is {text!r}, not a time such as 5, 0:30 or 7-0", key=key)
    return 86_400.0 * int(days or 0) + sum(unit * int(part) for unit, part in zip(units, parts, strict=False))


# Column of sacctmgr -> field of Limits; of a TRES text the GPUs count.
_QOS = {"Priority": "priority", "MaxJobsPU": "max_jobs_per_user", "MaxTRESPU": "max_gpus_per_user",
        "GrpTRES": "group_gpus", "GrpJobs": "group_jobs"}  # fmt: skip
_ACCOUNT = {"MaxJobs": "max_jobs_per_user", "GrpTRES": "group_gpus", "GrpJobs": "group_jobs"}


def _limits(path: Path, columns: Mapping[str, str]) -> tuple[Limits, ...]:
    """A limit a row of what sacctmgr -P printed; of associations those of accounts, not of users. () without a file."""
    return tuple(_rows(path, columns)) if path.exists() else ()


def _rows(path: Path, columns: Mapping[str, str]) -> Iterator[Limits]:
    rows = csv.DictReader((_text(path) or "").splitlines(), delimiter="|", quoting=csv.QUOTE_NONE)
    key = "Account" if "Account" in (rows.fieldnames or ()) else "Name"
    if key not in (rows.fieldnames or ()):
        raise InputError("has no heading with Name or Account; make it with sacctmgr -P", source=str(path), line=1)
    for row in rows:
        if row.get("User"):
            continue
        try:
            values = {name: _amount(row.get(column) or "") for column, name in columns.items()}
        except (ValueError, UnreadableError) as error:
            raise InputError(f"cannot be read: {error}", source=str(path), line=rows.line_num) from error
        yield Limits(row[key], **values)


def _amount(text: str) -> int:
    if not text or re.fullmatch(r"\d+", text):
        return int(text or 0)
    return count_gpus(parse_gres(",".join(part for part in text.split(",") if part.startswith("gres/"))))


def _text(path: Path, **otherwise: None) -> str | None:
    """The file's text; where it cannot be read, `missing` if that is given. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if otherwise:
            return None
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
