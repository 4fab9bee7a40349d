"""What a workload came to on a real Slurm, as a file, and the same jobs in the model."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson

from slurmsched.config import ScopeConfig
from slurmsched.cycle import run_cycle
from slurmsched.model.trace import Trace
from slurmsched.planning.planner import Planner
from slurmsched.policies.srsf import Srsf
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.cluster_slurm_conf import read_accounts, read_qos
from slurmsched.sim.event_loop import EventKind, replay
from slurmsched.sim.replay_stores import MemoryStore
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings
from tests.twin import limits
from tests.twin.workload import CPUS_PER_GPU, LAYOUT, MIB_PER_NODE

KEPT = (
    "AccountingStorageEnforce",
    "AuthInfo",
    "Epilog",
    "KillWait",
    "MessageTimeout",
    "MinJobAge",
    "Preempt",
    "Priority",
    "SchedulerParameters",
    "SchedulerType",
    "SLURM_VERSION",
)
TOLD = {"backfill": EventKind.BACKFILL, "usage": EventKind.USAGE, "check": EventKind.CHECK}  # all else are main passes
COUNTS = ("usage", "check")
LONGER_S = 3600.0  # that a job would have run on whose user ended it, or Slurm


@dataclass(frozen=True)
class Ran:
    """One job as Slurm ran it; times are Unix seconds, None where it never came to that. cpus: of all its nodes.

    array_id: 0 = no array. end_s: its nodes begin to complete. freed_s: all are done with that; spread_s: the last by
    name so much after the first. ended: by Slurm itself, for a limit.
    """

    job_id: int
    array_id: int
    dependency: str
    user: str
    gpus: int
    nodes: int
    limit_min: int
    partition: str
    qos: str
    submit_s: float
    start_s: float | None
    end_s: float | None
    freed_s: float | None
    cancel_s: float | None
    spread_s: float = 0.0
    account: str = ""
    ended: bool = False
    array_limit: int = 0
    cpus: int = 0
    gpu_type: str = ""
    constraint: str = ""
    licenses: str = ""
    exclusive: bool = False
    node_list: str = ""  # where that was recorded

    @property
    def run_s(self) -> float:
        """How long it would have run if nobody had ended it [s]."""
        if self.start_s is None or self.end_s is None:
            return 1.0
        cut = self.ended or self.end_s == self.cancel_s
        return max(self.end_s - self.start_s, 0.01) + (LONGER_S if cut else 0.0)


@dataclass(frozen=True)
class Recording:
    """settings: of `scontrol show config`. backfill_s, full_pass_s: when the last backfill pass, and the last pass over
    the whole queue, before the first job began.

    passes: when slurmctld looked at the queue, and how: "main", "full" (main, the whole queue) or "backfill"; or when
    it counted usage ("usage") and held running jobs against their limits ("check").
    limited: the jobs are those of tests/twin/limits.py; files: what commands print of the limits, by the names that
    slurmsched.sim.cluster_slurm_conf gives them.
    first_cycle_s, interval_s, lateness_s: of the daemon's cycles, the last from the begin of a cycle to its last
    write; interval_s 0 = no daemon. cycles: when it read the queue, its first and its last write, and how many.
    writes: when each write of these cycles came, as far as that was recorded.
    """

    ran: tuple[Ran, ...]
    settings: Mapping[str, str]
    backfill_s: float
    full_pass_s: float
    first_cycle_s: float = 0.0
    interval_s: float = 0.0
    lateness_s: float = 0.0
    passes: tuple[tuple[float, str], ...] = ()
    cycles: tuple[tuple[float, float, float, int], ...] = ()
    writes: tuple[tuple[float, ...], ...] = ()
    limited: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return self.settings["SLURM_VERSION"]

    def run_s(self, ran: Ran) -> float:
        """How long a job runs from the begin of the pass that started it [s]: its own start is some ms later."""
        before = [at for at, how in self.passes if how not in COUNTS and ran.start_s is not None and at <= ran.start_s]
        return ran.run_s + (ran.start_s - max(before) if before else 0.0)

    @property
    def origin_s(self) -> float:
        """Unix time of the model's 0: a whole second, or with a daemon the begin of a cycle."""
        first_s = min(each.submit_s for each in self.ran)
        step_s = self.interval_s or 1.0
        return float(self.first_cycle_s + step_s * np.floor((first_s - self.first_cycle_s) / step_s))

    def write(self, path: Path) -> None:
        kept = {key: value for key, value in self.settings.items() if key.startswith(KEPT)}
        path.write_bytes(gzip.compress(orjson.dumps(asdict(replace(self, settings=kept))), mtime=0))

    @classmethod
    def read(cls, path: Path) -> Recording:
        made = orjson.loads(gzip.decompress(path.read_bytes()))
        pairs = {name: tuple(map(tuple, made.get(name, ()))) for name in ("passes", "cycles", "writes")}
        return cls(**made | pairs | {"ran": tuple(Ran(**each) for each in made["ran"])})


def replayed(recording: Recording) -> SimulatedSlurmctld:
    """The model after the same jobs, alone or under srsf."""
    cluster = twin(recording)
    if recording.interval_s:
        planner = Planner(Srsf(), "srsf", ScopeConfig(partitions=("*",)))
        if recording.cycles:
            _cycle(cluster, planner, recording)
        else:
            replay(cluster, planner, MemoryStore(), interval_s=recording.interval_s)
    else:
        replay(cluster)
    return cluster


class Twin(SimulatedSlurmctld):
    """Writes come as late as they were seen to, where that was recorded."""

    writes_s: Sequence[float] = ()  # of the last cycle, since it read the queue

    def late_s(self, place: int) -> float:
        return self.writes_s[place] if place < len(self.writes_s) else super().late_s(place)


def _cycle(cluster: Twin, planner: Planner, recording: Recording) -> None:
    """The daemon's cycles at the times at which they were."""
    store = MemoryStore()
    for (read_s, first_s, last_s, writes), each_s in zip_longest(recording.cycles, recording.writes, fillvalue=()):
        cluster.advance(read_s - recording.origin_s)
        cluster.writes_s = [at - read_s for at in each_s]
        pace = (writes - 1) / (last_s - first_s) if last_s > first_s else 0.0
        cluster.model = replace(cluster.model, rpc_latency_s=first_s - read_s, writes_per_s=pace)
        run_cycle(cluster, planner, store)
    replay(cluster)


def twin(recording: Recording) -> Twin:
    """The model of this very Slurm with the same jobs, nothing run yet."""
    origin_s, ran = recording.origin_s, recording.ran
    model = SlurmctldSettings.from_settings(
        recording.settings, epoch_s=origin_s, rpc_latency_s=recording.lateness_s,
        sched_phase_s=recording.full_pass_s - origin_s, submit_late_s=0.0,
    )  # fmt: skip
    model = replace(model, bf_phase_s=recording.backfill_s - origin_s + model.bf_interval_s)
    ids = [each.job_id for each in ran]
    limit_s = [60.0 * each.limit_min for each in ran]
    submit_s = [each.submit_s - origin_s for each in ran]
    trace = Trace.of(ids, [each.gpus for each in ran], submit_s, [recording.run_s(each) for each in ran], limit_s)
    told = [(at - origin_s, TOLD.get(how, EventKind.SCHEDULE), how == "full")
            for at, how in recording.passes if at >= origin_s]  # fmt: skip
    requests = _requests(trace, ran, origin_s)
    made = Twin(trace, _layout(recording), model, requests=requests, recorded_passes=told)
    if counts_s := [
        at_s for at_s, kind, _ in told if kind == EventKind.USAGE
    ]:  # what came before fades from the last on
        made.budgets.counted_s = float(model.whole_ticks(min(counts_s) - model.calc_period_s))
    return made


def _layout(recording: Recording) -> ClusterLayout:
    """The lab, with its limits as Slurm's own commands print them; or the cluster of a slurm.conf."""
    if not recording.files:
        return LAYOUT
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in recording.files.items():
            (folder / file).write_text(text)
        if not recording.limited:
            return cluster_of(name, Trace.of([1], [1], [0.0], [1.0])).layout
        return replace(limits.LAYOUT, qos=read_qos(folder), accounts=read_accounts(folder))


def _requests(trace: Trace, ran: Sequence[Ran], origin_s: float) -> SubmittedRequests:
    return SubmittedRequests.of(trace, [each.job_id for each in ran], {
        "nodes": [each.nodes for each in ran],
        "cpus": [each.cpus or each.gpus * CPUS_PER_GPU for each in ran],
        "memory_mib": [each.nodes * MIB_PER_NODE for each in ran],
        "partition": [each.partition for each in ran],
        "user": [each.user for each in ran],
        "account": [each.account for each in ran],
        "qos": [each.qos for each in ran],
        "array_id": [each.array_id for each in ran],
        "array_limit": [each.array_limit for each in ran],
        "dependency": [each.dependency for each in ran],
        **{name: [getattr(each, name) for each in ran]
           for name in ("gpu_type", "constraint", "licenses", "exclusive")},
        "epilog_s": [max((each.freed_s or 0.0) - (each.end_s or 0.0), 0.0) for each in ran],
        "epilog_spread_s": [each.spread_s for each in ran],
        "cancel_s": [np.inf if each.cancel_s is None else each.cancel_s - origin_s for each in ran],
    })  # fmt: skip
