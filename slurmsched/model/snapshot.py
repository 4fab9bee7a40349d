"""The snapshot: all inputs of a cycle, immutable."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import isnan
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats, frozen
from slurmsched.model.gpu_selection import GpuSelection, PlacedJob
from slurmsched.model.gpu_topology import SiteTopology
from slurmsched.model.jobs import NO_PAST, Allocations, Jobs, Past
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.operations import Operation, Reservations
from slurmsched.model.overrides import Override
from slurmsched.model.slurm_text import ENDLESS, INF, setting_s

_NO_TOPOLOGY, _NO_HISTORY = SiteTopology(), frozen([], np.float64)
NO_RESERVATIONS = Reservations.build(0, {})


class Rights(IntEnum):
    """Rights of the user of slurmsched in Slurm."""

    NONE = 0
    USER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3


@dataclass(frozen=True, slots=True)
class Site:
    """A site. settings: every key of slurm.conf as slurmctld prints it."""

    cluster: str = ""
    version: str = ""  # of slurmctld, e.g. "24.11.5"
    rights: Rights = Rights.NONE
    user: str = ""  # user that runs slurmsched
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def multifactor(self) -> bool:
        """Whether priorities are computed from factors, the site factor among them."""
        return self.settings.get("PriorityType", "priority/multifactor").endswith("multifactor")

    @property
    def accounts_in_slurmdbd(self) -> bool:
        """Whether slurmdbd keeps accounts, users and past jobs."""
        return self.settings.get("AccountingStorageType", "").endswith("slurmdbd")

    def accounts_gres(self, kind: str) -> bool:
        """Whether accounting, limits and fair share see gres of this kind, such as "shard": AccountingStorageTRES lists
        it."""
        return f"gres/{kind}" in self.settings.get("AccountingStorageTRES", "").lower().split(",")

    @property
    def preempts(self) -> bool:
        """Whether Slurm's own preemption is on: PreemptType has a plug-in, and PreemptMode is not OFF."""
        kind = self.settings.get("PreemptType", "")
        modes = {word.strip().lower() for word in self.settings.get("PreemptMode", "off").split(",")}
        return kind not in ("", "(null)") and not kind.endswith("/none") and not modes <= {"", "off"}

    def hides(self, *kinds: str) -> bool:
        """Whether PrivateData shows users only their own of one of these, such as "jobs"."""
        names = self.settings.get("PrivateData", "").lower().split(",")
        return any(name.strip() in (*kinds, "all") for name in names)

    @property
    def kill_wait_s(self) -> float:
        """Time between a job's time limit and its forced end [s]."""
        seconds = setting_s(self.settings.get("KillWait", ""))
        return 30.0 if isnan(seconds) else seconds

    @property
    def over_time_s(self) -> float:
        """How long jobs may exceed their time limit [s]; infinity if nothing ends them."""
        text = self.settings.get("OverTimeLimit", "")
        seconds = INF if text in ENDLESS else 60 * setting_s(text.removesuffix(" min"))
        return 0.0 if isnan(seconds) else seconds


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
    operations: tuple[Operation, ...] = ()  # open ones, from the journal
    past_operations: tuple[Operation, ...] = ()  # closed ones that caps and leases still count
    reservations: Reservations = field(default_factory=lambda: NO_RESERVATIONS)  # read where operations may be open
    topology: SiteTopology = field(default_factory=lambda: _NO_TOPOLOGY)  # empty where nothing is known
    past: Past = NO_PAST
    shares: Mapping[str, float] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()  # on record, of jobs that may hold one; without nice and site factor
    gpu_selection: GpuSelection | None = None  # read where jobs may be pinned
    placed: tuple[PlacedJob, ...] = ()  # started since the last snapshot of this process
    tag: str = ""  # which slurmsched this is, where several work beside one Slurm: in the ids of its operations

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


_JOB_MARKS = ("job_id", "state", "nice", "site_factor", "gpus")
_NODE_MARKS = ("state", "gpus", "gpus_used")
