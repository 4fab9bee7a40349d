"""What to replay, in words, and what the words stand for."""

from __future__ import annotations

import gzip
import re
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from slurmsched import registry
from slurmsched.errors import ConfigError, InputError
from slurmsched.model.columns import Floats
from slurmsched.planning.direct import FILLINGS, Filling
from slurmsched.protocols import Placement

SAMPLES = "tiresias_samples.csv.gz"
RECORDED = "recorded"  # the physics without any
# name on the command line -> policy, its parameters, who gets GPUs that the first waiting job cannot use
DISCIPLINES: Mapping[str, tuple[str, Mapping[str, Any], Filling | None]] = {
    "easy": ("fifo", {}, "easy"),
    "conservative": ("fifo", {}, "conservative"),
    "fjf": ("fifo", {}, "skip"),
    "gittins": ("gittins", {"index": "released"}, None),
}


class Discipline(NamedTuple):
    """A policy by its word on the command line, with its parameters. filling: None if the word does not say."""

    word: str
    policy: str
    parameters: dict[str, Any]
    filling: Filling | None


@dataclass(frozen=True, slots=True)
class Request:
    """What to replay, in words. cluster: as clusters.cluster_of takes it. policy, placement, physics:
    NAME[:PARAMETER=VALUE,...]. topology: how GPUs are wired, see hardware.topology_of; "" = unknown.

    backfill: "" = as the policy's name says. history: a CSV column of GPU s that completed jobs needed; "" = the
    samples of the Tiresias release. round_s, restart_cost_s: of the ideal model [s]. settings: any other field of
    IdealModel or SlurmModel, by name. requeue: of the slurm model, a preemptive policy may requeue; else nice only.
    parameters: of the policy, over those of its text. preempt: of the slurm model, the sections `preemption`, `acts`
    and `gangs` of a configuration, by which the daemon's own preemption works; None: it does not, and a policy that
    preempts does so by requeue alone (bare_requeue). hints: comment of every job (docs/hints.md).
    """

    cluster: str = "auto"
    policy: str = "fifo"
    model: Literal["ideal", "slurm"] = "ideal"
    placement: str = "count"
    backfill: str = ""
    history: str = ""
    past: str = ""
    round_s: float = 0.0
    restart_cost_s: float = 0.0
    requeue: bool = True
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    physics: str = RECORDED
    topology: str = ""
    preempt: Mapping[str, Any] | None = None
    hints: str = ""

    @property
    def discipline(self) -> Discipline:
        """What --policy names. Raises ConfigError for a text that is none."""
        word, parameters = parse_policy(self.policy)
        policy, preset, filling = DISCIPLINES.get(word, (word, {}, None))
        return Discipline(word, policy, {**preset, **parameters, **self.parameters}, filling)


def parse_policy(text: str, key: str = "policy") -> tuple[str, dict[str, Any]]:
    """Name and parameters of NAME[:PARAMETER=VALUE,...]; values as in the configuration file, lists in brackets.

    key: what it is, for errors. Raises ConfigError for a part that is not PARAMETER=VALUE.
    """
    name, *parts = re.split(r"[:,](?![^\[]*\])", text)
    parameters: dict[str, Any] = {}
    for part in parts:
        parameter, equals, value = part.partition("=")
        if not equals or not parameter:
            another = f"; give each {key} by itself" if part and ":" not in text else ""  # such as fifo,srtf
            raise ConfigError(f"{part!r} is not PARAMETER=VALUE, for example {name}:PARAMETER=VALUE{another}", key=key)
        parameters[parameter.strip()] = value_of(value)
    return name, parameters


def value_of(text: str) -> Any:
    """The value that a text stands for in a configuration file: a number, a list in brackets, ...; else the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def history_of(path: str) -> Floats:
    """Service that completed jobs needed [GPU s], from a CSV file with one column and a heading; "" = our samples.

    Raises InputError.
    """
    source = files("slurmsched.replay") / "traces" / SAMPLES if not path else Path(path)
    try:
        raw = source.read_bytes()
        lines = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode().split()
        return np.array(lines[1:], np.float64)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"is no column of numbers: {error}", source=str(source)) from error


def placement_of(request: Request) -> Placement:
    """The placement that --placement names. Raises ConfigError."""
    made: Placement = registry.make("placements", *parse_policy(request.placement, "placement"), key="placement")
    return made


def filling_of(backfill: str) -> Filling | None:
    """The filling that --backfill names, None if it names none. Raises ConfigError."""
    if backfill in ("", "none"):
        return "block" if backfill else None
    found: Filling | None = next((name for name in FILLINGS if name == backfill != "block"), None)
    if found is None:
        raise ConfigError(f"must be none, easy, conservative or skip, got {backfill!r}", key="backfill")
    return found
