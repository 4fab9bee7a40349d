"""The configuration: one frozen tree, read from one TOML file and SLURMSCHED_* variables.

Every field carries its unit and meaning; `slurmsched config defaults` prints them from here.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from slurmsched.errors import ConfigError
from slurmsched.passwords import HIDDEN, holds_password, url_without_password, without_passwords
from slurmsched.written_files import absolute, ledger_url, see_distinct

PREFIX = "SLURMSCHED_"
OTHERS = ("SLURMSCHED_CONFIG", "SLURMSCHED_LAB")  # variables (the latter a family) that are no settings
SYSTEM_FILE = Path("/etc/slurmsched/slurmsched.toml")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Written = Annotated[Path, AfterValidator(absolute)]  # a file that slurmsched makes, or looks for
LAST_PORT = 65_535


def _absolute_or_none(path: str) -> str:
    return str(absolute(Path(path))) if path else ""


def _port(listen: str) -> str:
    if int(listen.rpartition(":")[2] or 0) > LAST_PORT:
        raise ValueError(f"the port must be at most {LAST_PORT}")
    return listen


Address = Annotated[str, Field(pattern=r"^$|^(\[[0-9A-Fa-f:.]+\]|[^:\s\[\]]+):\d{1,5}$"), AfterValidator(_port)]


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Plugin(Section):
    """A policy, placement or estimator by name; every other key is one of its parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = Field(description="name of the plug-in; `slurmsched policy list` shows all")

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class PolicyPlugin(Plugin):
    """The policy; parameters alone are those of the default one."""

    name: str = Field("discretized-las", description="name of the policy; `slurmsched policy list` shows all")


class Placement(Section):
    """Which nodes pending jobs get. Nothing is chosen unless `pin` or `types` says for whom."""

    name: str = Field("linked", description="name of the placement; `slurmsched policy list` shows all")
    parameters: dict[str, Any] = Field({}, description="its parameters")
    pin: Literal["off", "hints", "multi-gpu"] = Field(
        "off", description="whose nodes are chosen: nobody's, jobs with a topo hint, all jobs of two or more GPUs"
    )
    types: bool = Field(False, description="a job of one node whose request names no GPU type is pinned to a node of "
                        "the type that the policy wants for it, if there is room")  # fmt: skip
    wait_s: float = Field(0, ge=0, description="a job submitted to begin at most this much later waits only to be "
                          "placed: it may begin as soon as it is [s]")  # fmt: skip
    start_timeout_s: Positive = Field(120, description="a job that has not started on its node after this long is left "
                                      "to Slurm [s]")  # fmt: skip
    candidates: int = Field(100, ge=1, description="most waiting jobs looked at in a cycle, most urgent first")
    retype: bool = Field(False, description="on nodes whose GPUs have several Types, rewrite the request of a job that "
                         "is placed so that it names those of the best set")  # fmt: skip

    @property
    def places(self) -> bool:
        """Whether slurmsched chooses the nodes of any job."""
        return self.pin != "off" or self.types


class Scope(Section):
    """Which jobs slurmsched may touch. A job must match every list that is not empty."""

    partitions: tuple[str, ...] = Field((), description='managed partitions; empty = none, ["*"] = all')
    accounts: tuple[str, ...] = Field((), description="managed accounts; empty = all")
    qos: tuple[str, ...] = Field((), description="managed QOS; empty = all")
    gpu_jobs_only: bool = Field(True, description="leave jobs that ask for no GPU alone")


class Lever(Section):
    """How the wanted order is written."""

    kind: Literal["nice", "site_factor"] = Field("nice", description="the field of the job that is written")
    gap: Count = Field(0, description="distance left between neighbours [priority points]; 0 = from the site's weights")
    floor: int = Field(1000, ge=2, description="lowest priority slurmsched gives a job")
    ceiling: int = Field(2_000_000_000, le=2_147_000_000, description="highest priority slurmsched gives a job")
    backoff_s: Positive = Field(1800, description="a job changed behind our back is left alone this long [s]")
    size: bool = Field(False, description="also write the number of GPUs that the policy wants of pending jobs that "
                       "tell min_gpus and max_gpus")  # fmt: skip
    start: bool = Field(False, description="also write when the policy wants pending jobs to start at the earliest "
                        "(StartTime)")  # fmt: skip
    start_most_s: Positive = Field(3600, description="such a start is at most this far away, and renewed; jobs may "
                                   "start after it if slurmsched is gone [s]")  # fmt: skip

    @model_validator(mode="after")
    def _ordered(self) -> Lever:
        if self.floor >= self.ceiling:
            raise ValueError(f"floor must be below ceiling, which is {self.ceiling}")
        return self


class Pace(Section):
    """Least load on slurmctld."""

    writes_per_cycle: int = Field(500, ge=1, description="most jobs written in a cycle; the rest waits for the next")
    writes_per_s: float = Field(100, ge=0.01, allow_inf_nan=False, description="most jobs written in a second")
    busy_threads: int = Field(50, ge=1, description="slurmctld threads (sdiag) above which nothing is written")
    busy_dbd_queue: int = Field(5000, ge=1, description="slurmdbd messages waiting (sdiag): likewise")


class TopologyClass(Section):
    """One kind of node."""

    name: str = Field(description="what it is called")
    nodes: str = Field(description='its nodes, a hostlist such as "dgx[01-20]"')
    file: Path = Field(
        description="what `nvidia-smi topo -m`, `rocm-smi --showtopo` or slurmd's log says of one of them"
    )
    gpu_type: str = Field(
        "", description='GPU model, for link bandwidth, such as "a100"; empty = as file or Slurm tells'
    )


class Topology(Section):
    """How GPUs and nodes are wired."""

    gres_conf: str = Field("", description="gres.conf; empty = beside slurm.conf, if it can be read from here")
    fabric: str = Field("", description="topology.conf, topology.yaml or ibnetdiscover file; empty = as Slurm says")
    classes: tuple[TopologyClass, ...] = Field(
        (), description="kinds of node by name, nodes and file; before gres.conf"
    )


class Cycle(Section):
    """When the daemon works."""

    interval_s: float = Field(
        60, gt=0, le=86_400, allow_inf_nan=False, description="time between two cycles of the daemon [s]"
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="seed of policies that use chance")
    stop_file: Written = Field(Path("/etc/slurmsched/stop"), description="while this file exists nothing is written")


class Daemon(Section):
    """What wakes the daemon before its interval is over."""

    socket: Written | None = Field(
        None, description="unix socket to which plugin/event_hook tells of jobs' ends; none = no cycle in between"
    )
    users: tuple[str, ...] = Field(("slurm",), description="who may wake it, besides root and its own user: SlurmUser")
    wake_s: float = Field(1, ge=1, description="least time from the begin of a cycle to one that was asked for [s]")


class Preemption(Section):
    """Taking GPUs from running jobs. Nothing is taken unless `enabled`."""

    enabled: bool = Field(False, description="let more urgent jobs have GPUs of running ones")
    partitions: tuple[str, ...] = Field((), description="jobs there may lose their GPUs without a preempt hint")
    accounts: tuple[str, ...] = Field((), description="likewise for jobs of these accounts")
    qos: tuple[str, ...] = Field((), description="likewise for jobs of these QOS")
    without_checkpoint: bool = Field(False, description="also requeue jobs that give no ckpt hint")
    quantum_s: Positive = Field(1800, description="a run keeps its GPUs at least this long [s]")
    most_per_job: int = Field(3, ge=0, description="a job that was requeued so often is left alone")
    restart_cost_s: float = Field(
        120, ge=0, description="what a move costs a job without a restart hint and of which too few moves are known [s]"
    )
    least_factor: float = Field(0.5, ge=0, le=1, description="least share of its age a moved job must have worked")
    grace_s: Positive = Field(600, description="longest time for a checkpoint, whatever the hint asks [s]")
    candidates: int = Field(100, ge=1, description="most waiting jobs looked at in a cycle, most urgent first")
    acts: int = Field(4, ge=1, description="most preemptions under way at a time")
    acts_per_user: int = Field(2, ge=1, description="most preemptions under way for one user")


class Gangs(Section):
    """Nodes kept for gangs, from running jobs' ends on. Nothing is kept unless `reserve` says so."""

    reserve: bool = Field(False, description="keep nodes for the most urgent gang that cannot start")
    least_gpus: int = Field(8, ge=1, description="a job of so many GPUs or more is a gang")
    promises_per_partition: int = Field(1, ge=1, description="most promises open in a partition at a time")
    ends: Literal["limit", "estimate"] = Field("limit", description="when running jobs are taken to end")
    error: float = Field(0.5, ge=0, description="an estimate counts as longer by this share, up to the time limit")
    least_gain_s: Positive = Field(60, description="a promise moves for so much earlier a start, or later [s]")
    farthest_s: Positive = Field(604_800, description="no nodes are kept for a start farther away [s]")


class Starvation(Section):
    """Jobs that have waited too long, whatever the policy says."""

    age_cap_s: float = Field(0, ge=0, description="a job that could start and waited longer goes first [s]; 0 = never")


class Acts(Section):
    """Preemptions and promises under way: how many, and how long each may take."""

    per_cycle: int = Field(4, ge=1, description="most of them begun in a cycle")
    per_hour: int = Field(60, ge=1, description="most of them begun in an hour")
    per_user_per_hour: int = Field(20, ge=1, description="most of them begun in an hour for one user")
    lease_s: float = Field(1800, ge=0, description="so long two jobs do not take GPUs of each other in turn [s]")

    start_timeout_s: Positive = Field(600, description="a job that does not start so long after its nodes were to be "
                                      "free gives them back [s]")  # fmt: skip
    slack_s: Positive = Field(600, description="a reservation lasts this much longer than its job may run [s]")
    look_s: Positive = Field(5, description="the daemon looks at a preemption under way so often [s]")


class Slurm(Section):
    """How to speak to Slurm."""

    adapter: Literal["auto", "pyslurm", "cli"] = Field("auto", description="auto = pyslurm if it fits, else cli")
    bin_dir: str = Field("", description="folder of squeue, scontrol ...; empty = PATH")
    conf: str = Field("", description="slurm.conf; empty = SLURM_CONF or Slurm's own default")
    timeout_s: float = Field(
        60, gt=0, le=3600, allow_inf_nan=False, description="longest wait for one answer of Slurm [s]"
    )


class Ledger(Section):
    """What is remembered, and where."""

    url: Annotated[str, AfterValidator(ledger_url)] = Field(
        "sqlite:////var/lib/slurmsched/ledger.db", description="SQLAlchemy URL of the database"
    )
    password_file: Written | None = Field(
        None, description="file with the database's password in one line, which others may not read"
    )
    journal: Written = Field(
        Path("/var/lib/slurmsched/journal.jsonl"), description="each write, on disk before it is sent"
    )
    lock: Written = Field(Path("/var/lib/slurmsched/lock"), description="held by the one that works on the cluster")
    keep_days: int = Field(180, ge=1, description="facts older than this are dropped [days]")
    sacct: bool = Field(True, description="ask sacct for earlier runs of jobs seen for the first time")

    @model_validator(mode="after")
    def _one_password(self) -> Ledger:
        if self.password_file and self.url.startswith("sqlite"):
            raise ValueError("password_file is set but url names a SQLite file, which has no password; "
                             "set url to mysql://USER@HOST/DATABASE or postgresql://USER@HOST/DATABASE")  # fmt: skip
        of_key = r"(?<=[?&])(ssl_key_password|sslpassword)=[^&@]*(?=&|$)"  # opens the client's key, not the database
        if self.password_file and holds_password(re.sub(of_key, "", self.url)):
            raise ValueError("password_file is set and url holds a password too; take it out of url")
        return self

    @property
    def address(self) -> str:
        """What db/engine.py opens: the URL, with the password's file as an option."""
        if not self.password_file:
            return self.url
        return f"{self.url}{'&' if '?' in self.url else '?'}password_file={quote(str(self.password_file))}"


class Past(Section):
    """What ended on this site, from accounting: only where policy, placement or estimator learns from it."""

    days: int = Field(30, ge=0, le=3650, description="how far back [days]; 0 = accounting is not asked")
    rows: int = Field(100_000, ge=1, description="most runs kept, the latest")
    interval_s: Positive = Field(3600, description="what ended since is asked for so often [s]")
    per_cycle_s: Positive = Field(5, description="earlier days are asked for until a cycle spent this long on it [s]")


class Leader(Section):
    """Several hosts with slurmsched beside one Slurm, of which one writes. Needs MariaDB or PostgreSQL as ledger."""

    enabled: bool = Field(False, description="write only while holding the lease that the ledger's database gives")
    lease_s: float = Field(30, ge=2, le=3600, description="a leader not heard of for so long is replaced [s]")
    name: str = Field("", max_length=200, description="what this host is called; empty = its host name")


class Metrics(Section):
    """Figures for Prometheus (docs/metrics.md). Needs the extra `metrics`."""

    listen: Address = Field(
        "", description='where the daemon serves /metrics, such as "127.0.0.1:9810"; empty = nowhere'
    )
    textfile: Annotated[str, AfterValidator(_absolute_or_none)] = Field(
        "", description="file for node_exporter's textfile collector, named *.prom; empty = none"
    )

    @model_validator(mode="after")
    def _named(self) -> Metrics:
        if self.textfile and not self.textfile.endswith(".prom"):
            raise ValueError("textfile must end in .prom, or node_exporter passes over it")
        return self

    @property
    def wanted(self) -> bool:
        return bool(self.listen or self.textfile)


class Web(Section):
    """Read-only pages of the daemon (docs/web.md). Whoever reaches them sees what is in the queue."""

    listen: Address = Field(
        "", description='where the daemon serves its pages, such as "127.0.0.1:9811"; empty = nowhere'
    )
    anywhere: bool = Field(False, description="allow an address that other hosts reach; without it only loopback")
    hosts: tuple[str, ...] = Field(
        (), description="names that browsers may call the daemon by, as of a proxy; on loopback, besides localhost"
    )
    asked_jobs: int = Field(
        20,
        ge=0,
        le=1000,
        description="jobs a cycle and host that Slurm is asked about for /job (limits, licences); 0 = none",
    )

    @model_validator(mode="after")
    def _near(self) -> Web:
        if self.listen and not self.anywhere and not is_loopback(self.listen):
            raise ValueError("listen is no loopback address; other hosts get in only with anywhere = true")
        if self.listen and not self.hosts and not is_loopback(self.listen):
            raise ValueError("hosts must name what browsers call the daemon by; without it any page could read ours")
        return self


def is_loopback(listen: str) -> bool:
    """Whether an address HOST:PORT is reached from this host only."""
    host = listen.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


class Log(Section):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    format: Literal["auto", "json", "text"] = Field("auto", description="auto = text on a terminal, else JSON lines")


class Config(Section):
    """The whole tree."""

    mode: Literal["dry-run", "apply"] = Field(
        "dry-run", description="apply: write to Slurm; dry-run: only say what would be written"
    )
    policy: PolicyPlugin = Field(PolicyPlugin(), description="who goes first")
    estimator: Plugin | None = Field(None, description="how long jobs run; default: the hint, else the time limit")
    scope: Scope = Scope()
    placement: Placement = Placement()
    lever: Lever = Lever()
    pace: Pace = Pace()
    cycle: Cycle = Cycle()
    daemon: Daemon = Daemon()
    preemption: Preemption = Preemption()
    gangs: Gangs = Gangs()
    starvation: Starvation = Starvation()
    acts: Acts = Acts()
    slurm: Slurm = Slurm()
    topology: Topology = Topology()
    ledger: Ledger = Ledger()
    past: Past = Past()
    leader: Leader = Leader()
    metrics: Metrics = Metrics()
    web: Web = Web()
    log: Log = Log()

    @model_validator(mode="after")
    def _shareable(self) -> Config:
        if self.leader.enabled and self.ledger.url.startswith("sqlite"):
            raise ValueError("leader.enabled needs a ledger.url that all hosts share: mysql:// or postgresql://")
        see_distinct(self)
        return self


@dataclass(frozen=True, slots=True)
class Settings:
    """The tree, and where its values come from.

    file: dotted keys that the file sets. variables: dotted key -> variable that sets it.
    """

    config: Config
    path: Path | None = None
    file: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)

    def source(self, key: str) -> str:
        """Where the value of a dotted key or section comes from: a variable, the file's path or "default"."""
        for known in (key, key.partition(".")[0]):
            if known in self.variables:
                return self.variables[known]
            if known in self.file:
                return str(self.path)
        parts = (name for known, name in self.variables.items() if known.startswith(f"{key}."))
        in_file = any(known.startswith(f"{key}.") for known in self.file)
        return next(parts, str(self.path) if in_file else "default")


def config_path(given: str | None = None) -> Path | None:
    """The file to read: the one given, $SLURMSCHED_CONFIG, or the system's if it exists; else None."""
    named = given or os.environ.get("SLURMSCHED_CONFIG")
    if named:
        return Path(named)
    return SYSTEM_FILE if SYSTEM_FILE.exists() else None


def load_config(path: Path | None) -> Config:
    """The tree: SLURMSCHED_SECTION__KEY over the TOML file over the defaults.

    Raises ConfigError naming file or variable, key and, for an unknown key, the nearest known one.
    """
    return load_settings(path).config


def load_settings(path: Path | None) -> Settings:
    """As load_config, with the source of each value."""
    tree = {} if path is None else read_toml(path)
    environment, variables = _environment()
    tree = _without_replaced(tree, environment)
    config = parse_config(_merged(tree, environment), source=str(path or ""), variables=variables)
    return Settings(config, path, frozenset(_keys(tree)), variables)


def parse_config(tree: Mapping[str, Any], *, source: str = "", variables: Mapping[str, str] | None = None) -> Config:
    """The tree of the given values over the defaults. Raises ConfigError as load_config does."""
    try:
        return Config.model_validate(dict(tree))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        setters = (name for known, name in (variables or {}).items() if f"{known}.".startswith(f"{key}."))
        raise ConfigError(_message(first), key=key, source=next(setters, source)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tree of a TOML file. Raises ConfigError for a file that cannot be read or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not TOML: {error}", source=str(path)) from error


def _environment() -> tuple[dict[str, Any], dict[str, str]]:
    """The tree that variables give, and dotted key -> variable. pydantic-settings is loaded only where one is set."""
    ours = [name for name in os.environ if name.startswith(PREFIX) and not name.startswith(OTHERS)]
    paths = {name: name.removeprefix(PREFIX).lower().split("__") for name in ours}
    if not paths:
        return {}, {}
    for name, path in paths.items():
        if len(path) == 1 and path[0] not in Config.model_fields:
            raise ConfigError(f"unknown variable{_near(name, _variables())}", source=name)
    from pydantic_settings import EnvSettingsSource, SettingsError

    settings_cls: Any = Config
    try:
        tree = EnvSettingsSource(settings_cls, env_prefix=PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        named = [name for name, path in paths.items() if f'"{path[0]}"' in str(error)]
        raise ConfigError("""a list or a table is written as JSON: '["gpu"]'""", source=", ".join(named)) from error
    for name, path in paths.items():
        _complete(tree, path, os.environ[name])
    return tree, {".".join(path): name for name, path in paths.items()}


def _complete(tree: dict[str, Any], path: list[str], text: str) -> None:
    """Add what the settings source left out (a key it does not know, refused later) and read a plug-in's parameters."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            return
    if isinstance(tree.get(path[-1], text), str):
        try:
            tree[path[-1]] = json.loads(text)
        except ValueError:
            tree[path[-1]] = text


def _variables() -> list[str]:
    """Every variable that sets something, parameters of plug-ins left out."""
    names = []
    for name, field_of in Config.model_fields.items():
        section: Any = field_of.annotation
        keys = section.model_fields if isinstance(section, type) and issubclass(section, Section) else ()
        names += [f"{PREFIX}{name}__{key}".upper() for key in keys] or [f"{PREFIX}{name}".upper()]
    return names


def _without_replaced(tree: dict[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The file's tree without the parameters of a plug-in in whose place a variable names another one."""
    kept = dict(tree)
    for section in ("policy", "estimator"):
        above, below = environment.get(section), tree.get(section)
        if not (isinstance(above, Mapping) and isinstance(below, Mapping) and "name" in above):
            continue
        default = Config.model_fields[section].default
        if above["name"] != below.get("name", default.name if default else None):
            del kept[section]
    return kept


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(below[key], value) for key, value in above.items()
            if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)}  # fmt: skip
    return {**below, **above, **both}


def _keys(tree: Mapping[str, Any], before: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in tree.items():
        keys += _keys(value, f"{before}{key}.") if isinstance(value, Mapping) else [before + key]
    return keys


_WORDS = {
    "tuple_type": "must be a list in brackets",
    "list_type": "must be a list in brackets",
    "string_type": "must be a text in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path in quotes",
    "model_type": "must be a table of keys",
    "model_attributes_type": "must be a table of keys",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must be HOST:PORT",
    "missing": "must be given",
    "greater_than": "must be greater than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
}


def _message(error: Any) -> str:
    """What is wrong, in the words of a person who edits a TOML file."""
    if error["type"] == "extra_forbidden":
        return f"unknown key{_nearest(error['loc'])}"
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] in _WORDS:
        text = _WORDS[error["type"]].format(**error.get("ctx", {}))
    return text if isinstance(error["input"], Mapping) else f"{text}, got {_input(error)}"


def _input(error: Any) -> str:
    """What stood there, without a password."""
    if tuple(error["loc"]) == ("ledger", "password_file"):  # in which somebody wrote the password itself
        return HIDDEN
    if tuple(error["loc"]) in (("ledger",), ("ledger", "url")):
        text = isinstance(error["input"], str)
        return repr(url_without_password(error["input"])) if text else f"a {type(error['input']).__name__}"
    return without_passwords(repr(error["input"]))


def _nearest(loc: tuple[int | str, ...]) -> str:
    section: Any = Config
    for part in loc[:-1]:
        section = get_args(section)[0] if isinstance(part, int) else section.model_fields[part].annotation
    name = str(loc[-1])
    return _near(name, list(section.model_fields)) or _near_elsewhere(name)


def _near_elsewhere(name: str) -> str:
    """The section that has a key of this name: its [header] was forgotten, or another stands above the key."""
    sections = ((above, field_of.annotation) for above, field_of in Config.model_fields.items())
    found = [f"{above}.{name}" for above, of in sections if name in getattr(of, "model_fields", ())]
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def digest(config: Config) -> str:
    """Twelve hex digits that tell one configuration from another; no password of a URL is in it."""
    url = url_without_password(config.ledger.url)
    told = config.model_copy(update={"ledger": config.ledger.model_copy(update={"url": url})})
    return hashlib.blake2b(told.model_dump_json().encode(), digest_size=6).hexdigest()
