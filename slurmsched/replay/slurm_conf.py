"""A site's own slurm.conf as a cluster to replay on, with what sacctmgr printed of its limits beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmsched.errors import ConfigError, InputError, UnreadableError
from slurmsched.model.gres import count_gpus, normal_form, parse_gres
from slurmsched.replay.clusters import Described
from slurmsched.replay.layout import Layout, Node, Partition
from slurmsched.replay.slurm_limits import (
    MADE_BY,
    QOS_FILE,
    billing_weights,
    clock_s,
    left_out,
    read_accounts,
    read_qos,
)
from slurmsched.slurm.text import memory_mib
from slurmsched.topology.conf_lines import ConfLine, Lines
from slurmsched.topology.plain import hosts

NAMES = {name.lower(): name for name in (
    "AccountingStorageEnforce", "AuthInfo", "Epilog", "FairShareDampeningFactor", "KillWait", "MinJobAge",
    "PriorityCalcPeriod",
    "PriorityDecayHalfLife", "PriorityFavorSmall", "PriorityFlags", "PriorityMaxAge", "PriorityType",
    "PriorityUsageResetPeriod", "PriorityWeightAge", "PriorityWeightFairShare", "PriorityWeightJobSize",
    "PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES", "SchedulerParameters", "SchedulerType",
)}  # fmt: skip
# Minutes, or [days-]hours[:minutes[:seconds]].
TIMES = ("PriorityMaxAge", "PriorityCalcPeriod", "PriorityDecayHalfLife")
ABSENT = ("FUTURE", "DOWN")  # state of a node that is not there
NO_LIMIT = ("", "UNLIMITED", "INFINITE", "NONE")


def read_slurm_site(path: Path) -> Described:
    """The cluster of a slurm.conf, or of a folder that holds one and maybe what sacctmgr and sshare printed
    (slurm_limits). Files that are included lie beside it.
    Raises InputError and ConfigError naming file and line or key.
    """
    folder, conf = (path, path / "slurm.conf") if path.is_dir() else (path.parent, path)
    lines = Lines(lambda name: _text(folder / Path(name).name, missing=None))
    text = _text(conf)
    made = _Conf(str(conf))
    for line in lines.read(text or ""):
        made.take(line)
    qos = read_qos(folder)
    layout = Layout(made.all_nodes(), made.all_partitions(), qos, read_accounts(folder))
    unknown = {each.qos for each in layout.partitions if each.qos} - {each.name for each in qos}
    told = _unknown_qos(folder / QOS_FILE, sorted(unknown))
    warnings = (*lines.warnings, *made.warnings, *left_out(folder), *told)
    return Described(layout, settings_of(made.settings), cpus_known=True, warnings=warnings)


def _unknown_qos(path: Path, names: list[str]) -> list[str]:
    """What to tell of QOS that partitions name and the file does not have; once where there is no file."""
    if names and not path.exists():
        named, made_by = ", ".join(names), MADE_BY[QOS_FILE]
        return [
            f"{path}: is not there; limits of {named}, which partitions name, are left out; make it with `{made_by}`"
        ]
    return [f"{path}: has no QOS {name}, which a partition names; its limits are left out" for name in names]


def settings_of(given: Mapping[str, object]) -> dict[str, str]:
    """The keys of slurm.conf that the model reads, under Slurm's own names, times in seconds. Raises ConfigError."""
    known = {NAMES[key.lower()]: str(value) for key, value in given.items() if key.lower() in NAMES}
    return known | {key: f"{clock_s(known[key], key):.0f}" for key in TIMES if key in known}


_TIMES_OF_JOB = {"max_time_s": "maxtime", "default_time_s": "defaulttime"}


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
            memory = max(memory_mib(values.get("realmemory", "")) - memory_mib(values.get("memspeclimit", "")), 0.0)
            spare = int(values.get("corespeccount", "0")) * int(values.get("threadspercore", "1"))
            cpus = max(int(values.get("cpus") or values.get("procs") or _cores(values)) - spare, 0)
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
            made.append(Partition(line.get("partitionname"), names, tier, factor, **self._of_job(line, values)))
        if not made:
            raise InputError("has no PartitionName line with nodes", source=self.source)
        return tuple(made)

    def _of_job(self, line: ConfLine, values: Mapping[str, str]) -> dict[str, Any]:
        """What the partition allows and what it counts. Raises InputError."""
        try:
            made: dict[str, Any] = {name: _time_s(values.get(key, "")) for name, key in _TIMES_OF_JOB.items()}
            for name, key in (("min_nodes", "minnodes"), ("max_nodes", "maxnodes")):
                text = values.get(key, "").upper()
                made[name] = 0 if text in NO_LIMIT else int(text)
            qos = values.get("qos", "")
            made["qos"] = "" if qos.upper() == "N/A" else qos
            return made | {"billing": billing_weights(values.get("tresbillingweights", ""))}
        except ConfigError as error:
            raise InputError(f"{line.where}: {error}", source=self.source) from error
        except ValueError as error:
            raise InputError(f"{line.where}: not a number of nodes: {error}", source=self.source) from error

    def _members(self, line: ConfLine, text: str) -> tuple[str, ...]:
        if text.upper() == "ALL":
            return tuple(self._nodes)
        named = [name for part in self._names(line, text) for name in self._sets.get(part, (part,))]
        return tuple(name for name in named if name in self._nodes)

    def _whole(self, line: ConfLine, values: Mapping[str, str], key: str) -> int:
        text = values.get(key) or values.get("priority") or "1"
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise InputError(f"{line.where}: {key} is {text!r}, not a whole number", source=self.source)
        return int(text)


def _time_s(text: str) -> float:
    """Seconds of a time that a job may take, 0 = no limit. Raises ConfigError."""
    return 0.0 if text.upper() in NO_LIMIT else clock_s(text, "MaxTime or DefaultTime")


def _cores(values: Mapping[str, str]) -> int:
    sockets = int(values.get("sockets") or int(values.get("boards", "1")) * int(values.get("socketsperboard", "1")))
    return sockets * int(values.get("corespersocket", "1")) * int(values.get("threadspercore", "1"))


def _text(path: Path, **otherwise: None) -> str | None:
    """The file's text; where it cannot be read, `missing` if that is given. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if otherwise:
            return None
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
