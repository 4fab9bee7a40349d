"""The snapshot: all that a cycle may know, and nothing that can change under it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np

from slurmsched.model.acts import Act, Reservations
from slurmsched.model.columns import Floats, frozen
from slurmsched.model.deferrals import Deferral
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.past import NO_PAST, Past
from slurmsched.model.pins import Picking, Pin, Placed
from slurmsched.model.quick import quickly
from slurmsched.model.topology import SiteTopology

_NO_TOPOLOGY, _NO_HISTORY = SiteTopology(), frozen([], np.float64)
_NO_RESERVATIONS = Reservations.build(0, {})


class Rights(IntEnum):
    """What Slurm lets the user of slurmsched do."""

    NONE = 0
    USER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3


@dataclass(frozen=True, slots=True)
class Site:
    """What of slurm.conf decides which levers work. `settings` holds every key as printed."""

    cluster: str = ""
    version: str = ""  # of slurmctld, e.g. "24.11.5"
    rights: Rights = Rights.NONE
    user: str = ""  # whom slurmsched runs as
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def multifactor(self) -> bool:
        """Whether priorities are computed from factors (and the site factor is heard)."""
        return self.settings.get("PriorityType", "priority/multifactor").endswith("multifactor")

    @property
    def kill_wait_s(self) -> float:
        """From a job's time limit to its end by force [s]."""
        return _number(self.settings.get("KillWait", ""), 30.0)

    @property
    def over_time_s(self) -> float:
        """How long jobs may exceed their time limit [s], infinity where nothing ends them."""
        return 60 * _number(self.settings.get("OverTimeLimit", ""), 0.0)

    @property
    def priority_weights(self) -> float:
        """Sum of all priority weights: the span that factors alone can move a job by."""
        plain = [text for name, text in self.settings.items() if name.startswith("PriorityWeight")]
        tres = [part.partition("=")[2] for part in self.settings.get("PriorityWeightTRES", "").split(",")]
        weights = [_number(text, 0.0) for text in (*plain, *tres)]
        return sum(weight for weight in weights if weight < _MOST_WEIGHT)  # a larger one is none that Slurm has


_MOST_WEIGHT = 2.0**32


def _number(text: str, default: float) -> float:
    """The number that a setting such as "30 sec" begins with; infinity for UNLIMITED."""
    word = text.partition(" ")[0]
    plain = word.isascii() and word.isdigit() and len(word) < 16
    return inf if word == "UNLIMITED" else float(word) if plain else default


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The cluster at now_s, whole. Pure code takes everything from here: clock, chance and memory too.

    history_gpu_s: (H,) ascending attained service [GPU s] of jobs that completed, from the ledger.
    past: jobs that ended, for plug-ins that learn from them (`learns = True`); else empty.
    shares: what each account is entitled to, in Slurm's own shares; an account not named has 1.
    carry: what the policy returned as Ranking.carry last time.
    """

    now_s: float
    jobs: Jobs
    nodes: Nodes
    partitions: Partitions
    allocations: Allocations
    site: Site = field(default_factory=Site)
    seed: int = 0
    history_gpu_s: Floats = field(default_factory=lambda: _NO_HISTORY)
    carry: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # what could not be read or understood
    acts: tuple[Act, ...] = ()  # open ones, from the journal
    past_acts: tuple[Act, ...] = ()  # closed ones that caps and leases still count
    reservations: Reservations = field(default_factory=lambda: _NO_RESERVATIONS)  # read where acts may be open
    topology: SiteTopology = field(default_factory=lambda: _NO_TOPOLOGY)  # empty where nothing is known
    past: Past = NO_PAST
    shares: Mapping[str, float] = field(default_factory=dict)
    pins: tuple[Pin, ...] = ()  # on record, of jobs that may hold one
    deferrals: tuple[Deferral, ...] = ()  # on record, of jobs that may have one
    picking: Picking | None = None  # read where jobs may be pinned
    placed: tuple[Placed, ...] = ()  # started since the last snapshot of this process
    tag: str = ""  # which slurmsched this is, where several work beside one Slurm: in the ids of its acts

    def remembering(self, history_gpu_s: Floats, carry: Mapping[str, Any]) -> Snapshot:
        """This snapshot with history and carry; the same as dataclasses.replace, which costs a replay's cycle more."""
        values = list(_values(self))
        values[_HISTORY], values[_CARRY] = history_gpu_s, carry
        return Snapshot(*values)

    @property
    def digest(self) -> str:
        """16 hex digits: the name of this snapshot in ledger and logs.

        They differ when clock, seed, cluster, the id, state, levers or GPUs of a job, or the state or GPUs of a node
        differ. Texts are left out: at 100,000 jobs they would cost most of the time.
        """
        hasher = hashlib.blake2b(repr((self.now_s, self.seed, self.site.cluster)).encode(), digest_size=8)
        for table, names in ((self.jobs, _JOB_MARKS), (self.nodes, _NODE_MARKS)):
            for name in names:
                hasher.update(np.ascontiguousarray(getattr(table, name)).view(np.uint8).data)
        return hasher.hexdigest()


_NAMES = [spec.name for spec in fields(Snapshot)]
_values = attrgetter(*_NAMES)
_HISTORY, _CARRY = _NAMES.index("history_gpu_s"), _NAMES.index("carry")
_JOB_MARKS = ("job_id", "state", "nice", "site_factor", "gpus")
_NODE_MARKS = ("state", "gpus", "gpus_used")
