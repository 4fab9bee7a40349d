"""Limits and shares as Slurm's own commands print them: qos.txt, assoc.txt and sshare.txt beside a slurm.conf."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from slurmsched.errors import ConfigError, InputError, UnreadableError
from slurmsched.model.durations import clock_s
from slurmsched.model.gres import count_gpus, normal_form, parse_gres
from slurmsched.model.slurm_text import MIB_OF_UNIT, license_counts, memory_mib
from slurmsched.model.trace_rows import parse_time_s
from slurmsched.plain_text import pluralize
from slurmsched.sim.cluster_layout import (
    BARRED,
    PARENT,
    ClusterDescription,
    ClusterLayout,
    LimitSpec,
    NodeOutage,
    NodeSpec,
    PartitionSpec,
)
from slurmsched.sim.slurm_conf_warnings import cluster_warnings, limit_warnings, partition_warnings
from slurmsched.slurm.site import SHOW_CONFIG, parse_settings
from slurmsched.topology.slurm_conf import ConfLine, ConfReader, with_defaults
from slurmsched.topology.topology_text import hosts_or_none

QOS_FILE, ACCOUNTS_FILE, SHARES_FILE, CONFIG_FILE = "qos.txt", "assoc.txt", "sshare.txt", "config.txt"
VERSION = "SLURM_VERSION"  # of `scontrol show config`; slurm.conf does not have it
MADE_BY = {
    CONFIG_FILE: " ".join(SHOW_CONFIG),
    QOS_FILE: "sacctmgr -P show qos",
    ACCOUNTS_FILE: "sacctmgr -P show assoc tree format=cluster,account,parentname,user,partition,share,grpjobs,grptres,"
    "grpsubmit,maxjobs,maxtres,maxsubmit,maxwall,grptresmins,grptresrunmins,grpwall,maxtresmins",
    SHARES_FILE: "sshare -alP",
}
_TRES = ("GrpTRES", "MaxTRES", "MaxTRESPU", "MaxTRESPA", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESMins")
TYPED_TRES = "gres/gpu:"
# Columns of which limits on GPUs of one type count.
TYPED_OF = {QOS_FILE: ("GrpTRES", "MaxTRESPU", "MaxTRESPA"), ACCOUNTS_FILE: ("GrpTRES",)}
_WEIGHT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([KMGT]?)", re.IGNORECASE | re.ASCII)


def time_limit_s(text: str, key: str) -> float:
    """Seconds of "30" (minutes), "5:30" (minutes), "1:00:00", "7-0" or "7-12:00:00". Raises ConfigError."""
    seconds = clock_s(text, bare_unit_s=60.0)
    if seconds is None:
        raise ConfigError(f"is {text!r}, not a time such as 5, 0:30 or 7-0", key=key)
    return seconds


def billing_weights(text: str) -> tuple[float, float, float] | None:
    """What a GPU, a CPU and a MiB cost by a text such as "CPU=1.0,Mem=0.25G,GRES/gpu=8"; None without one.

    Raises ConfigError. Weights of GPU types and of other resources are not looked at.
    """
    if not text:
        return None
    made = {"gres/gpu": 0.0, "cpu": 0.0, "mem": 0.0}
    for part in text.split(","):
        name, _, weight = (each.strip() for each in part.partition("="))
        if name.lower() in made:
            found = _WEIGHT.fullmatch(weight)
            if not found:
                raise ConfigError(f"is {weight!r} for {name}, not a weight", key="TRESBillingWeights")
            unit = MIB_OF_UNIT.get(found[2].upper(), 1.0) if name.lower() == "mem" else 1.0
            made[name.lower()] = float(found[1]) / unit
    return made["gres/gpu"], made["cpu"], made["mem"]


def read_qos(folder: Path) -> tuple[LimitSpec, ...]:
    """The QOS of qos.txt in the folder, () without it. Raises InputError."""
    path = folder / QOS_FILE
    return tuple(
        LimitSpec(
            row["Name"],
            **_limit_fields(row, _QOS, path, line),
            **_flags(row.get("Flags") or ""),
            typed_gpus=_typed_limits(row, TYPED_OF[QOS_FILE], path, line),
        )
        for line, row in _rows(path, "Name")
    )


def read_accounts(folder: Path) -> tuple[LimitSpec, ...]:
    """Accounts and their users of assoc.txt in the folder, with the usage in sshare.txt; () without. Raises InputError.

    The account above is told by a column, or by how far names are set in (`show assoc tree`); else it is root.
    Associations of one partition are left out, and so are those of another cluster than the first.
    """
    path, made, above, cluster = folder / ACCOUNTS_FILE, list[LimitSpec](), list[tuple[int, str]](), None
    for line, row in _rows(path, "Account"):
        cluster = cluster or row.get("Cluster")
        if row.get("Partition") or row.get("Cluster") != cluster:
            continue
        name, user = row["Account"].strip(), (row.get("User") or "").strip()
        parent = (row.get("Par Name") or row.get("ParentName") or "").strip()
        if not user:
            depth = len(row["Account"]) - len(row["Account"].lstrip())
            above = [each for each in above if each[0] < depth]
            parent = parent or (above[-1][1] if above else "")
            above.append((depth, name))
        typed = _typed_limits(row, TYPED_OF[ACCOUNTS_FILE], path, line)
        parent = "" if user else parent
        made.append(
            LimitSpec(name, user=user, parent=parent, typed_gpus=typed, **_limit_fields(row, _ACCOUNT, path, line))
        )
    usage = _usage(folder / SHARES_FILE)
    return tuple(replace(each, usage=usage.get((each.name, each.user), 0.0)) for each in made)


def left_out(folder: Path) -> tuple[str, ...]:
    """Limits in the folder's files that are not heeded, as text. Raises InputError."""
    found = list[str]()
    for name, key in ((QOS_FILE, "Name"), (ACCOUNTS_FILE, "Account")):
        found += limit_warnings(str(folder / name), [row for _, row in _rows(folder / name, key)], _TRES)
        columns = [column for column in _TRES if column not in TYPED_OF[name]]
        rows = ((line, row.get(of) or "") for line, row in _rows(folder / name, key) for of in columns)
        typed = [(line, part) for line, text in rows for part in text.split(",") if part.startswith("gres/gpu:")]
        if typed:
            line, first = typed[0]
            found.append(
                f"{folder / name}: {pluralize(len(typed), 'limit')} on GPUs of one type left out, "
                f"{first} in line {line} first"
            )
    return tuple(found)


def _typed_limits(
    row: Mapping[str, str], columns: Sequence[str], path: Path, line: int
) -> tuple[tuple[str, str, int], ...]:
    """Limits on GPUs of one type: column, type, GPUs. Raises InputError."""
    made = list[tuple[str, str, int]]()
    for column in columns:
        for part in (row.get(column) or "").split(","):
            name, _, count = part.strip().partition("=")
            if name.startswith(TYPED_TRES):
                if not count.isdecimal():
                    raise InputError(f"cannot be read: {part!r} in {column}", source=str(path), line=line)
                made.append((column, name.removeprefix(TYPED_TRES), int(count)))
    return tuple(made)


def _usage(path: Path) -> dict[tuple[str, str], float]:
    """RawUsage of each user. {} without a file."""
    found = {}
    for line, row in _rows(path, "Account"):
        if user := (row.get("User") or "").strip():
            values = _limit_fields(row, {"RawUsage": ("usage", float)}, path, line)
            found[row["Account"].strip(), user] = float(values.get("usage", 0.0))
    return found


def _rows(path: Path, key: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and row of what was printed. Raises InputError for a file without the heading."""
    if not path.exists():
        return
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
    rows = csv.DictReader(text.splitlines(), delimiter="|", quoting=csv.QUOTE_NONE)
    if key not in (rows.fieldnames or ()):
        made_by = MADE_BY[path.name]
        raise InputError(f"has no heading with {key}; make it with `{made_by}`", source=str(path), line=1)
    yield from ((rows.line_num, row) for row in rows if (row[key] or "").strip())


def _limit_fields(
    row: Mapping[str, str], columns: Mapping[str, tuple[str, Callable[[str], Any]]], path: Path, line: int
) -> dict[str, Any]:
    """Fields of Limits that the row tells. Raises InputError."""
    try:
        cells = ((column, (row.get(column) or "").strip()) for column in columns)
        return {columns[column][0]: columns[column][1](text) for column, text in cells if text}
    except (ValueError, UnreadableError, ConfigError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path), line=line) from error


def _count(text: str) -> int:
    """A limit: Slurm prints nothing where there is none, and 0 where nobody may do anything."""
    return max(int(text), 0) or BARRED


def _gpus(text: str) -> int:
    """GPUs of a TRES text; one without GPUs limits none, nor does one of GPUs of a type."""
    parts = [part for part in text.split(",") if part.partition("=")[0] == "gres/gpu"]
    return count_gpus(parse_gres(",".join(parts))) or BARRED if parts else 0


def _gpu_s(text: str) -> float:
    """GPU seconds of a TRES text in minutes."""
    gpus = _gpus(text)
    return 60.0 * gpus if gpus > 0 else float(gpus)


def _flags(text: str) -> dict[str, Any]:
    given = {flag.strip().lower() for flag in text.split(",")}
    return {"no_decay": "nodecay" in given, "over_part_qos": "overpartqos" in given}


def _share(text: str) -> int:
    return PARENT if text.lower() == "parent" else int(text)


def _mode(text: str) -> str:
    """A PreemptMode of a QOS or a partition, "" = the cluster's."""
    return next((mode for mode in ("off", "cancel", "requeue") if mode in text.lower()), "")


def _grace_s(text: str) -> float:
    """Seconds of a GraceTime, which is in seconds where it is a bare number. Raises ConfigError."""
    seconds = clock_s(text or "0", bare_unit_s=1.0)
    if seconds is None:
        raise ConfigError(f"is {text!r}, not a time such as 120 or 0:02:00", key="GraceTime")
    return seconds


def _wall_s(text: str, column: str = "MaxWall") -> float:
    return time_limit_s(text, column) or BARRED


_USED: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "GrpTRESMins": ("group_gpu_s", _gpu_s), "GrpTRESRunMins": ("group_run_gpu_s", _gpu_s),
    "GrpWall": ("group_wall_s", partial(_wall_s, column="GrpWall")), "MaxTRESMins": ("max_gpu_s_per_job", _gpu_s),
}  # fmt: skip
# Column of sacctmgr -> field of Limits, and how it is read; of a TRES text the GPUs count.
_QOS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "Priority": ("priority", int), "UsageFactor": ("usage_factor", float), "MaxWall": ("max_wall_s", _wall_s),
    "MaxJobsPU": ("max_jobs_per_user", _count), "MaxTRESPU": ("max_gpus_per_user", _gpus),
    "GrpTRES": ("group_gpus", _gpus), "GrpJobs": ("group_jobs", _count), "MaxTRES": ("max_gpus_per_job", _gpus),
    "MaxSubmitPU": ("max_submit_per_user", _count), "GrpSubmit": ("group_submit", _count), **_USED,
    "MaxJobsPA": ("max_jobs_per_account", _count), "MaxTRESPA": ("max_gpus_per_account", _gpus),
    "Preempt": ("preempts", lambda text: tuple(text.split(","))), "PreemptMode": ("preempt_mode", _mode),
    "GraceTime": ("grace_s", _grace_s),
}  # fmt: skip
_ACCOUNT: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "MaxJobs": ("max_jobs_per_user", _count), "GrpTRES": ("group_gpus", _gpus), "GrpJobs": ("group_jobs", _count),
    "MaxTRES": ("max_gpus_per_job", _gpus), "MaxWall": ("max_wall_s", _wall_s),
    "MaxSubmit": ("max_submit_per_user", _count), "GrpSubmit": ("group_submit", _count), "Share": ("shares", _share),
    **_USED,
}  # fmt: skip


# When nodes of the history were closed.

EVENTS_FILE, RESERVATIONS_FILE = "event.txt", "resv.txt"
MADE_BY |= {
    EVENTS_FILE: "SLURM_TIME_FORMAT=%s sacctmgr -P show event start=2020-01-01 format=cluster,nodename,start,end,state",
    RESERVATIONS_FILE: "SLURM_TIME_FORMAT=%s sacctmgr -P show reservation start=2020-01-01 "
    "format=cluster,name,nodenames,start,end,flags",
}


def read_outages(folder: Path) -> tuple[NodeOutage, ...]:
    """Times in which nodes were down, drained or kept for maintenance, of event.txt and resv.txt in the folder.

    () without them. Times are those of the file [Unix s], infinite for an end that is not known. Raises InputError.

    No job is ended by them: the run times of a history have such ends in them. Of reservations those with MAINT count.
    """
    made, events, kept = list[NodeOutage](), folder / EVENTS_FILE, folder / RESERVATIONS_FILE
    for line, row in _rows(events, "NodeName"):
        made.append(_outage(row, events, line, planned=False))
    for line, row in _rows(kept, "Name"):
        if "MAINT" in (row.get("Flags") or "").upper().split(","):
            made.append(_outage(row, kept, line, planned=True))
    return tuple(each for each in made if each.nodes)


def _outage(row: Mapping[str, str], path: Path, line: int, *, planned: bool) -> NodeOutage:
    nodes = hosts_or_none(row.get("NodeName") or "")
    try:
        from_s, until_s = (_unix_s(row[name]) for name in ("TimeStart", "TimeEnd"))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"has no TimeStart and TimeEnd that are times; make it with `{MADE_BY[path.name]}`",
            source=str(path),
            line=line,
        ) from None
    return NodeOutage(nodes or (), from_s, until_s, planned=planned)


def _unix_s(text: str) -> float:
    """A time as sacctmgr prints it. Raises ValueError."""
    if text.lower() in ("unknown", "none", ""):
        return math.inf
    return float(text) if text.isdecimal() else parse_time_s(text)


# A site's own slurm.conf as a cluster to replay on, with what sacctmgr printed of its limits beside it.

NAMES = {name.lower(): name for name in (
    "AccountingStorageEnforce", "AuthInfo", "Epilog", "FairShareDampeningFactor", "KillWait", "MinJobAge",
    "PreemptExemptTime", "PreemptMode", "PreemptType", "PriorityCalcPeriod",
    "PriorityDecayHalfLife", "PriorityFavorSmall", "PriorityFlags", "PriorityMaxAge", "PriorityType",
    "PriorityUsageResetPeriod", "PriorityWeightAge", "PriorityWeightFairShare", "PriorityWeightJobSize",
    "PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES", "SchedulerParameters", "SchedulerType",
)}  # fmt: skip
# Minutes, or [days-]hours[:minutes[:seconds]].
TIMES = ("PriorityMaxAge", "PriorityCalcPeriod", "PriorityDecayHalfLife", "PreemptExemptTime")
ABSENT = ("FUTURE", "DOWN")  # state of a node that is not there
NO_LIMIT = ("", "UNLIMITED", "INFINITE", "NONE")


def read_slurm_site(path: Path) -> ClusterDescription:
    """The cluster of a slurm.conf, or of a folder that holds one and maybe what sacctmgr and sshare printed
    (slurm_limits). Files that are included lie beside it.
    Raises InputError and ConfigError naming file and line or key.
    """
    folder, conf = (path, path / "slurm.conf") if path.is_dir() else (path.parent, path)
    lines = ConfReader(lambda name: _text(folder / Path(name).name, missing=None))
    text = _text(conf)
    made = _SlurmConfReader(str(conf))
    for line, values in with_defaults(lines.read(text or "")):
        made.take(line, values)
    qos = read_qos(folder)
    licenses = licenses_of(made.settings)
    layout = ClusterLayout(made.all_nodes(), made.all_partitions(), qos, read_accounts(folder), licenses=licenses)
    made.warn_of_unmodelled()
    unknown = {each.qos for each in layout.partitions if each.qos} - {each.name for each in qos}
    missing = _unknown_qos(folder / QOS_FILE, sorted(unknown))
    settings = settings_of(made.settings) | read_effective(folder)
    warnings = (*lines.warnings, *made.warnings, *left_out(folder), *missing)
    return ClusterDescription(layout, settings, cpus_known=True, warnings=warnings, outages=read_outages(folder))


def read_effective(folder: Path) -> dict[str, str]:
    """The settings that slurmctld works by, and its version, of config.txt in the folder; {} without it.

    Raises InputError for a file that is something else.
    """
    path = folder / CONFIG_FILE
    if not path.exists():
        return {}
    given = parse_settings(_text(path) or "")
    if VERSION not in given:
        raise InputError(f"has no {VERSION}; make it with `{MADE_BY[CONFIG_FILE]}`", source=str(path))
    kept = {*NAMES.values(), VERSION}
    return {key: value for key, value in given.items() if key.partition("[")[0] in kept}


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
    return known | {key: f"{time_limit_s(known[key], key):.0f}" for key in TIMES if key in known}


def licenses_of(given: Mapping[str, object]) -> dict[str, int]:
    """How many there are of each licence by slurm.conf. Raises ConfigError."""
    text = next((str(value) for key, value in given.items() if key.lower() == "licenses"), "")
    counts = license_counts(text)
    if text and not counts:
        raise ConfigError(f"is {text!r}, not licences such as matlab:5,ansys:2", key="Licenses")
    return counts


_COUNTS_OF_PARTITION = {"min_nodes": "minnodes", "max_nodes": "maxnodes", "max_cpus_per_node": "maxcpuspernode"}
_TIMES_OF_JOB = {"max_time_s": "maxtime", "default_time_s": "defaulttime"}


class _SlurmConfReader:
    """What the lines say so far; later NodeName lines of a node and later values of a key count less."""

    def __init__(self, source: str) -> None:
        self.source, self.warnings = source, list[str]()
        self.settings: dict[str, str] = {}
        self._nodes: dict[str, NodeSpec] = {}
        self._sets: dict[str, tuple[str, ...]] = {}
        self._partitions: list[tuple[bool, ConfLine, Mapping[str, str]]] = []

    def take(self, line: ConfLine, values: Mapping[str, str]) -> None:
        """Take one line; the values include those of DEFAULT lines."""
        if line.get("nodename"):
            self._take_nodes(line, values)
            return
        if line.get("partitionname"):
            self._partitions.append((values.get("default", "no").lower() == "yes", line, values))
            return
        if name := line.get("nodeset"):
            self._sets[name] = self._names(line, line.get("nodes"))
        self.settings |= {key: value for key, value in line.values.items() if key not in self.settings}

    def _take_nodes(self, line: ConfLine, values: Mapping[str, str]) -> None:
        if any(values.get("state", "").upper().startswith(state) for state in ABSENT):
            self.warnings.append(
                f"{self.source}: {line.where}: {line.get('nodename')} left out, State={values['state']}"
            )
            return
        try:
            gres = parse_gres(values.get("gres", ""))
            memory = max(memory_mib(values.get("realmemory", "")) - memory_mib(values.get("memspeclimit", "")), 0.0)
            spare = int(values.get("corespeccount", "0")) * int(values.get("threadspercore", "1"))
            cpus = max(int(values.get("cpus") or values.get("procs") or _cores(values)) - spare, 0)
        except (UnreadableError, ValueError) as error:
            raise InputError(f"{line.where}: {error}", source=self.source) from error
        features = tuple(filter(None, (values.get("features") or values.get("feature", "")).split(",")))
        weight = self._whole(line, values, "weight", "1")
        for name in self._names(line, line.get("nodename")):
            spec = NodeSpec(name, count_gpus(gres), cpus, memory, normal_form(gres, ("gpu",)), features, weight)
            self._nodes.setdefault(name, spec)

    def _names(self, line: ConfLine, text: str) -> tuple[str, ...]:
        found = hosts_or_none(text)
        if found is None:
            raise InputError(f"{line.where}: {text!r} is not a hostlist", source=self.source)
        return found

    def all_nodes(self) -> tuple[NodeSpec, ...]:
        if not self._nodes:
            raise InputError("has no NodeName line; is it a slurm.conf?", source=self.source)
        nodes = list(self._nodes.values())
        if not self._memory_counts:
            nodes = [replace(node, memory_mib=0.0) for node in nodes]
        return tuple(nodes)

    @property
    def _memory_counts(self) -> bool:
        """Whether SelectTypeParameters has jobs share out memory, as it does where it is not given."""
        parameters = self.settings.get("selecttypeparameters", "").lower()
        return not parameters.startswith("cr_") or "memory" in parameters

    @property
    def _all_least_loaded(self) -> bool:
        """Whether SelectTypeParameters has CR_LLN."""
        return "cr_lln" in self.settings.get("selecttypeparameters", "").lower().split(",")

    def warn_of_unmodelled(self) -> None:
        """Add a warning for each setting that is not modelled."""
        named = [(line.get("partitionname"), values) for _, line, values in self._partitions]
        self.warnings += cluster_warnings(self.source, self.settings)
        self.warnings += partition_warnings(self.source, named)

    def all_partitions(self) -> tuple[PartitionSpec, ...]:
        """Those that have nodes, the default one first."""
        made = []
        for _, line, values in sorted(self._partitions, key=lambda each: not each[0]):
            names = self._members(line, values.get("nodes", ""))
            if not names:
                name = line.get("partitionname")
                self.warnings.append(f"{self.source}: {line.where}: partition {name} has no nodes here, left out")
                continue
            otherwise = values.get("priority") or "1"
            tier, factor = (self._whole(line, values, key, otherwise) for key in ("prioritytier", "priorityjobfactor"))
            linear = self.settings.get("selecttype", "").lower() == "select/linear"
            shared = (values.get("oversubscribe") or values.get("shared", "exclusive" if linear else "no")).lower()
            made.append(PartitionSpec(line.get("partitionname"), names, tier, factor, exclusive=shared == "exclusive",
                                      **self._of_job(line, values)))  # fmt: skip
        if not made:
            raise InputError("has no PartitionName line with nodes", source=self.source)
        return tuple(made)

    def _of_job(self, line: ConfLine, values: Mapping[str, str]) -> dict[str, Any]:
        """What the partition allows and what it counts. Raises InputError."""
        try:
            made: dict[str, Any] = {name: _time_s(values.get(key, "")) for name, key in _TIMES_OF_JOB.items()}
            for name, key in _COUNTS_OF_PARTITION.items():
                text = values.get(key, "").upper()
                made[name] = 0 if text in NO_LIMIT else int(text)
            qos = values.get("qos", "")
            made["qos"] = "" if qos.upper() == "N/A" else qos
            made["preempt_mode"] = _mode(values.get("preemptmode", ""))
            made["grace_s"] = _grace_s(values.get("gracetime", ""))
            made["least_loaded"] = values.get("lln", "no").lower() == "yes" or self._all_least_loaded
            return made | {"billing": billing_weights(values.get("tresbillingweights", ""))}
        except ConfigError as error:
            raise InputError(f"{line.where}: {error}", source=self.source) from error
        except ValueError as error:
            raise InputError(f"{line.where}: not a number of nodes or CPUs: {error}", source=self.source) from error

    def _members(self, line: ConfLine, text: str) -> tuple[str, ...]:
        if text.upper() == "ALL":
            return tuple(self._nodes)
        named = [name for part in self._names(line, text) for name in self._sets.get(part, (part,))]
        return tuple(name for name in named if name in self._nodes)

    def _whole(self, line: ConfLine, values: Mapping[str, str], key: str, otherwise: str) -> int:
        text = values.get(key) or otherwise
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise InputError(f"{line.where}: {key} is {text!r}, not a whole number", source=self.source)
        return int(text)


def _time_s(text: str) -> float:
    """Seconds of a time that a job may take, 0 = no limit. Raises ConfigError."""
    return 0.0 if text.upper() in NO_LIMIT else time_limit_s(text, "MaxTime or DefaultTime")


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
