"""What to replay, as texts, and what they mean."""

from __future__ import annotations

import gzip
import re
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from slurmsched import registry
from slurmsched.errors import ConfigError, InputError
from slurmsched.model.columns import Floats
from slurmsched.model.trace import Trace
from slurmsched.protocols import Placement, knows_gpu_parts
from slurmsched.sim.ideal.ideal_planner import FILLINGS, Filling
from slurmsched.sim.traces.trace_io import SHIPPED

UNRANKED_POLICIES = ("slurm", "easy")  # Slurm alone: they rank no jobs, so no job can lose its GPUs to another
SAMPLES = "tiresias_samples"
TOKENS = re.compile(r"(?<=[=,\[{\s])(?:\"(?:\\.|[^\"\\])*\"|'[^']*')|.", re.DOTALL)  # a text in quotes, or a character
RECORDED_PHYSICS = "recorded"  # the physics without any
# name on the command line -> policy, its parameters, who gets GPUs that the first waiting job cannot use
POLICY_ALIASES: Mapping[str, tuple[str, Mapping[str, Any], Filling | None]] = {
    "easy": ("fifo", {}, "easy"),
    "conservative": ("fifo", {}, "conservative"),
    "fjf": ("fifo", {}, "skip"),
}


class NamedPolicy(NamedTuple):
    """A policy by its word on the command line, with its parameters. filling: None if the word does not say."""

    word: str
    policy: str
    parameters: dict[str, Any]
    filling: Filling | None


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay, as text. Policy, placement and physics are NAME[:PARAMETER=VALUE,...].

    cluster: As cluster_files.cluster_of takes it.
    topology: How GPUs are wired, see cluster_hardware.topology_of. "": unknown.
    backfill: "": as the policy's name says.
    history: A CSV column of GPU s that completed jobs needed. "": the samples of the Tiresias release.
    round_s, restart_cost_s: Of the ideal cluster [s].
    settings: Any other field of PublishedSettings or SlurmctldSettings, by name.
    requeue: On slurmctld's model, a preemptive policy may requeue jobs. Otherwise it sets nice values only.
    parameters: Of the policy, over those of its text.
    preempt: On slurmctld's model, the sections `preemption`, `operations` and `gangs` of a configuration, by which the
        daemon's own preemption works. None: a policy that preempts does so by requeue alone (RequeuePlanner).
    hints: Comment of every job (docs/hints.md).
    moldable: Waiting jobs with the hint `moldable` may start with fewer GPUs, as by `lever.moldable`.
    tiers: On slurmctld's model, keys that go before the policy, as policy.tiers.
    age_cap_s: Likewise, as starvation.age_cap_s.
    origin_s: Unix time of the trace's 0, for outages of the cluster. None: not known.
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
    physics: str = RECORDED_PHYSICS
    topology: str = ""
    preempt: Mapping[str, Any] | None = None
    hints: str = ""
    moldable: bool = False
    tiers: tuple[str, ...] = ()
    age_cap_s: float = 0.0
    origin_s: float | None = None

    @property
    def discipline(self) -> NamedPolicy:
        """What --policy names. Raises ConfigError for a text that is none."""
        word, parameters = parse_policy(self.policy)
        policy, preset, filling = POLICY_ALIASES.get(word, (word, {}, None))
        return NamedPolicy(word, policy, {**preset, **parameters, **self.parameters}, filling)


def parse_policy(text: str, key: str = "policy") -> tuple[str, dict[str, Any]]:
    """Name and parameters of NAME[:PARAMETER=VALUE,...]; values as in the configuration file, lists in brackets, tables
    in braces.

    key: what it is, for errors. Raises ConfigError for a part that is not PARAMETER=VALUE.
    """
    name, *parts = _parts(text)
    parameters: dict[str, Any] = {}
    for part in parts:
        parameter, equals, value = part.partition("=")
        if not equals or not parameter:
            another = f"; give each {key} by itself" if part and ":" not in text else ""  # such as fifo,srtf
            raise ConfigError(f"{part!r} is not PARAMETER=VALUE, for example {name}:PARAMETER=VALUE{another}", key=key)
        parameters[parameter.strip()] = toml_value(value)
    return name, parameters


def _parts(text: str) -> list[str]:
    """A text cut at colons and commas, but not within brackets, braces or quotes."""
    parts, depth = [""], 0
    for token in TOKENS.findall(text):
        depth += (token in "[{") - (token in "]}")
        if token in ":," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def toml_value(text: str) -> Any:
    """The value that a text stands for in a configuration file: a number, a list in brackets, a table in braces; else
    the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def read_history(path: str) -> Floats:
    """Service that completed jobs needed [GPU s], from a CSV file with one column and a heading; "" = our samples.

    Raises InputError.
    """
    source = Path(path) if path else SHIPPED / f"{SAMPLES}.csv.gz"
    try:
        raw = source.read_bytes()
        lines = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode().split()
        return np.array(lines[1:], np.float64)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        message = f"is no column of numbers ({error}): write a heading, then one number a line"
        raise InputError(message, source=str(source)) from error


def make_placement(request: ReplayRequest) -> Placement:
    """The placement that --placement names. Raises ConfigError."""
    made: Placement = registry.make_plugin("placements", *parse_policy(request.placement, "placement"), key="placement")
    return made


def rounded_up(trace: Trace, request: ReplayRequest) -> int:
    """Jobs that ask for parts of GPUs and get whole ones.

    Parts are only placed on the ideal cluster, by a placement that knows them, without physics; and a job of several
    GPUs gets whole ones in any case. Raises ConfigError for a placement that is none.
    """
    whole = request.model != "ideal" or bool(request.topology) or request.physics != RECORDED_PHYSICS
    whole = whole or not knows_gpu_parts(make_placement(request))
    return int(((trace.gpu_share < 1) & (whole | (trace.gpus > 1))).sum())


def parse_backfill(backfill: str) -> Filling | None:
    """The filling that --backfill names, None if it names none. Raises ConfigError."""
    if backfill in ("", "none"):
        return "block" if backfill else None
    found: Filling | None = next((name for name in FILLINGS if name == backfill != "block"), None)
    if found is None:
        raise ConfigError(f"must be none, easy, conservative or skip, got {backfill!r}", key="backfill")
    return found
