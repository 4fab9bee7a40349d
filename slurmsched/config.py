"""The configuration: one frozen tree, read from one TOML file and SLURMSCHED_* variables.

Every field carries its unit and meaning; `slurmsched config defaults` prints them from here.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurmsched.errors import ConfigError

SYSTEM_FILE = Path("/etc/slurmsched/slurmsched.toml")
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


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


class Pace(Section):
    """Least load on slurmctld."""

    writes_per_cycle: int = Field(500, ge=1, description="most jobs written in a cycle; the rest waits for the next")
    writes_per_s: Positive = Field(100, description="most jobs written in a second")
    busy_threads: int = Field(50, ge=1, description="slurmctld threads (sdiag) above which nothing is written")
    busy_dbd_queue: int = Field(5000, ge=1, description="slurmdbd messages waiting (sdiag) above which nothing is written")


class Cycle(Section):
    """When the daemon works."""

    interval_s: Positive = Field(60, description="time between two cycles of the daemon [s]")
    seed: int = Field(0, description="seed of policies that use chance")


class Slurm(Section):
    """How to speak to Slurm."""

    adapter: Literal["auto", "pyslurm", "cli"] = Field("auto", description="auto = pyslurm where it works, else the commands")
    bin_dir: str = Field("", description="folder of squeue, scontrol ...; empty = PATH")
    conf: str = Field("", description="slurm.conf; empty = SLURM_CONF or Slurm's own default")
    timeout_s: Positive = Field(60, description="longest wait for one answer of Slurm [s]")


class Ledger(Section):
    """What is remembered, and where."""

    url: str = Field("sqlite:////var/lib/slurmsched/ledger.db", description="SQLAlchemy URL of the database")
    journal: Path = Field(Path("/var/lib/slurmsched/journal.jsonl"), description="every write, on disk before it is sent")
    lock: Path = Field(Path("/var/lib/slurmsched/lock"), description="held by the daemon or tick that works on the cluster")
    keep_days: int = Field(180, ge=1, description="facts older than this are dropped [days]")
    sacct: bool = Field(True, description="ask sacct for earlier runs of jobs seen for the first time")


class Log(Section):
    """What is logged."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    format: Literal["auto", "json", "text"] = Field("auto", description="auto = text on a terminal, else JSON lines")


class Config(Section):
    """The whole tree."""

    mode: Literal["dry-run", "apply"] = Field("dry-run", description="apply = write to Slurm; dry-run = only say what would be written")
    policy: Plugin = Field(Plugin(name="discretized-las"), description="who goes first")
    estimator: Plugin | None = Field(None, description="how long jobs run; default: the hint, else the time limit")
    scope: Scope = Scope()
    lever: Lever = Lever()
    pace: Pace = Pace()
    cycle: Cycle = Cycle()
    slurm: Slurm = Slurm()
    ledger: Ledger = Ledger()
    log: Log = Log()


def config_path(given: str | None = None) -> Path | None:
    """The file to read: the one given, $SLURMSCHED_CONFIG, or the system's if it exists; else None."""
    named = given or os.environ.get("SLURMSCHED_CONFIG")
    if named:
        return Path(named)
    return SYSTEM_FILE if SYSTEM_FILE.exists() else None


def load_config(path: Path | None) -> Config:
    """The tree from a TOML file over the defaults.

    Raises ConfigError naming file, key and, for an unknown key, the nearest known one.
    """
    if path is None:
        return Config()
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not TOML: {error}", source=str(path)) from error
    return parse_config(tree, source=str(path))


def parse_config(tree: Mapping[str, Any], *, source: str = "") -> Config:
    """The tree of the given values over the defaults. Raises ConfigError as load_config does."""
    try:
        return Config.model_validate(dict(tree))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"unknown key{_nearest(first['loc'])}", key=key, source=source) from None
        raise ConfigError(f"{first['msg']}, got {first['input']!r}", key=key, source=source) from None


def _nearest(loc: tuple[int | str, ...]) -> str:
    section: Any = Config
    for part in loc[:-1]:
        annotation = section.model_fields[str(part)].annotation
        section = annotation
    near = difflib.get_close_matches(str(loc[-1]), list(section.model_fields), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
