"""Jobs of one GPU that would fit into a MIG device, and layouts that offer enough of them. Advice; nothing is cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from slurmsched.allocation.mig_layouts import (
    MEMORY_SIZES,
    MigLayout,
    MigProfile,
    mig_layouts,
    mig_memory_gb,
    mig_profiles,
    smallest_profile,
)
from slurmsched.config import LeverConfig
from slurmsched.errors import InputError
from slurmsched.model import Snapshot
from slurmsched.model.gpu_use import JobGpuUse
from slurmsched.model.gres import parse_gres
from slurmsched.model.hints import parse_hints
from slurmsched.observe.gpu_profiles import MIB_PER_GB, GpuProfile, ProfileKey, profile_of_alike
from slurmsched.observe.queue_rows import JobKeys
from slurmsched.resources.by_type import whole_types
from slurmsched.resources.node_gpus import DRAINED, OPEN, NodeGpus, node_gpus


@dataclass(frozen=True, slots=True)
class MigRules:
    """By what a device is chosen.

    margin: what a device has beyond the measured use, as a share of it. A hint is taken as it is.
    memory_gb: GPU type -> memory [GB], for types whose name does not tell it.
    measured_s: least measured time of jobs alike by which the need of a waiting job is known [s].
    Raises InputError for a value out of range.
    """

    margin: float = 0.25
    memory_gb: Mapping[str, int] | None = None
    measured_s: float = 3600.0

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 10:
            raise InputError(f"margin must be between 0 and 10, got {self.margin!r}")
        for gpu_type, size in (self.memory_gb or {}).items():
            if size not in MEMORY_SIZES:
                sizes = ", ".join(map(str, MEMORY_SIZES))
                raise InputError(f"no GPU with MIG has {size} GB; {gpu_type} must have one of {sizes}")

    @classmethod
    def of(cls, config: LeverConfig, margin: float, memory_gb: Mapping[str, int]) -> MigRules:
        """By the configuration; the given sizes count before those of `lever.gpu_memory_gb`."""
        known = {name: round(size) for name, size in config.gpu_memory_gb.items() if size in MEMORY_SIZES}
        return cls(margin, {**known, **memory_gb}, config.share_measured_s)

    def size_of(self, gpu_type: str) -> int:
        """Memory of a GPU of this type [GB], 0 if it has no MIG or is not known."""
        return (self.memory_gb or {}).get(gpu_type) or mig_memory_gb(gpu_type)


@dataclass(frozen=True, slots=True)
class MeasuredNeeds:
    """What was measured.

    running: use of running jobs, by job id.
    profiles: use of earlier jobs, by what is alike.
    """

    running: Mapping[int, JobGpuUse]
    profiles: Mapping[ProfileKey, GpuProfile]


@dataclass(frozen=True, slots=True)
class MigJob:
    """A job that would fit.

    part: of the GPU's computing that it needs, 0 to 1.
    memory_gb: that it needs [GB], NaN unknown.
    known_by: "hint", "measured" of the job itself, or "jobs alike" as measured.
    """

    job_id: int
    user: str
    running: bool
    part: float
    memory_gb: float
    known_by: str
    profile: str


@dataclass(frozen=True, slots=True)
class MigNode:
    """A node whose GPUs to cut. gpus: how many of them. state: "drained", "idle" or "busy"."""

    name: str
    gpus: int
    state: str


@dataclass(frozen=True, slots=True)
class MigPlan:
    """What the GPUs of one type could be cut into.

    memory_gb: of one GPU. guessed: by its type's name, without knowing more.
    one_gpu_jobs: jobs of one such GPU that run or wait. not_known: those of them whose need is not known.
    layouts: with the names of the profiles.
    nodes: where, those first on which nothing runs.
    """

    gpu_type: str
    memory_gb: int
    guessed: bool
    one_gpu_jobs: int
    not_known: int
    jobs: tuple[MigJob, ...]
    layouts: tuple[tuple[int, dict[str, int]], ...]
    nodes: tuple[MigNode, ...]

    @property
    def gpus(self) -> int:
        """GPUs that the layouts need."""
        return sum(gpus for gpus, _ in self.layouts)


def mig_plans(
    snapshot: Snapshot, use: MeasuredNeeds, rules: MigRules, keeps: Callable[[JobKeys], bool] | None = None
) -> list[MigPlan]:
    """One plan for each GPU type with MIG of which jobs hold or want one GPU, by name.

    keeps: the jobs that are looked at, None = all.
    """
    jobs, parts = snapshot.jobs, node_gpus(snapshot)
    kinds = sorted({part.gpu_type for part in parts if rules.size_of(part.gpu_type)})
    by_type: dict[str, list[int]] = {}
    for row in np.flatnonzero((jobs.gpus == 1) & (jobs.running | jobs.pending)).tolist():
        if keeps is None or keeps(JobKeys.of(jobs, row)):
            by_type.setdefault(_gpu_type_of(snapshot, row, parts), []).append(row)
    made = (_plan(snapshot, kind, by_type[kind], use, rules, parts) for kind in kinds if kind in by_type)
    return [plan for plan in made if plan.jobs or plan.not_known]


def _gpu_type_of(snapshot: Snapshot, row: int, parts: tuple[NodeGpus, ...]) -> str:
    """The type of its GPU: held, or asked for, or of most GPUs of its partitions. "" if there is none."""
    jobs, allocations = snapshot.jobs, snapshot.allocations
    held = np.flatnonzero(allocations.job_id == jobs.job_id[row]).tolist()
    asked = [allocations.gpu_type[at] for at in held] or list(whole_types(jobs.gpu_request[row]))
    if asked and asked[0]:
        return asked[0]
    mine, found = set(jobs.partition[row].split(",")), Counter[str]()
    for part in parts:
        if mine & set(snapshot.nodes.partitions[part.node].split(",")):
            found[part.gpu_type] += part.gpus
    return max(found, key=lambda name: (found[name], name), default="")


def _plan(
    snapshot: Snapshot, gpu_type: str, rows: list[int], use: MeasuredNeeds, rules: MigRules,
    parts: tuple[NodeGpus, ...],
) -> MigPlan:  # fmt: skip
    size = rules.size_of(gpu_type)
    profiles = mig_profiles(size)
    needs = [_need(snapshot, row, size, use, rules) for row in rows]
    jobs = tuple(_fitting(snapshot, profiles, [each for each in needs if each is not None]))
    wanted = [sum(job.profile == each.name for job in jobs) for each in profiles]
    layouts = mig_layouts(profiles, wanted)
    return MigPlan(
        gpu_type, size, gpu_type not in (rules.memory_gb or {}), len(rows), sum(each is None for each in needs), jobs,
        tuple((each.gpus, _named(profiles, each)) for each in layouts),
        tuple(_nodes_for(snapshot, gpu_type, sum(each.gpus for each in layouts), parts)),
    )  # fmt: skip


def _named(profiles: tuple[MigProfile, ...], layout: MigLayout) -> dict[str, int]:
    return {each.name: count for each, count in zip(profiles, layout.devices, strict=True) if count}


def _need(
    snapshot: Snapshot, row: int, size_gb: int, use: MeasuredNeeds, rules: MigRules
) -> tuple[int, float, float, str] | None:
    """The job's row, its part of the computing, its memory [GB], and how they are known; None if they are not."""
    hints = parse_hints(snapshot.jobs.comment[row])
    if hints.share is False:
        return row, 1.0, float(size_gb), "hint"
    if hints.gpu_part is not None:
        memory = float(hints.gpu_mem) if hints.gpu_mem is not None else hints.gpu_part * size_gb
        return row, hints.gpu_part, memory, "hint"
    more, seen = 1 + rules.margin, use.running.get(int(snapshot.jobs.job_id[row]))
    if seen is not None and not math.isnan(seen.use) and not math.isnan(seen.memory_mib):
        return row, min(seen.use * more, 1.0), seen.memory_mib / MIB_PER_GB * more, "measured"
    alike = profile_of_alike(use.profiles, snapshot.jobs, row)
    if alike.use_s < rules.measured_s or math.isnan(alike.memory_mib):
        return None
    part = min(max(alike.use * more, alike.peak_use), 1.0)
    return row, part, alike.memory_mib / MIB_PER_GB * more, "jobs alike"


def _fitting(
    snapshot: Snapshot, profiles: tuple[MigProfile, ...], needs: list[tuple[int, float, float, str]]
) -> Iterator[MigJob]:
    """The jobs that fit into less than the whole GPU."""
    jobs = snapshot.jobs
    for row, part, memory_gb, known_by in needs:
        place = smallest_profile(profiles, part, memory_gb)
        if 0 <= place < len(profiles) - 1:
            yield MigJob(int(jobs.job_id[row]), jobs.user[row], bool(jobs.running[row]), round(part, 3),
                         round(memory_gb, 1), known_by, profiles[place].name)  # fmt: skip


def _nodes_for(snapshot: Snapshot, gpu_type: str, gpus: int, parts: tuple[NodeGpus, ...]) -> Iterator[MigNode]:
    """Nodes with that many GPUs together: those first that are drained and empty, then idle ones, then the emptiest.

    Only nodes of one GPU type and without MIG devices: of others it is not known which numbers these GPUs have.
    """

    def state(part: NodeGpus) -> str:
        return "busy" if part.used else "drained" if part.standing == DRAINED else "idle"

    order = ("drained", "idle", "busy")
    alike = snapshot.nodes.gpu_types.map(lambda text: len(parse_gres(text)) == 1, np.bool_)
    mine = [
        part for part in parts if part.gpu_type == gpu_type and part.standing in (OPEN, DRAINED) and alike[part.node]
    ]
    for part in sorted(mine, key=lambda part: (order.index(state(part)), part.used, part.node)):
        if gpus <= 0:
            return
        yield MigNode(snapshot.nodes.name[part.node], min(gpus, part.gpus), state(part))
        gpus -= part.gpus


def layout_commands(plan: MigPlan) -> list[tuple[str, list[str]]]:
    """For each node the commands by which an admin cuts its GPUs, once no job runs there.

    GPUs are counted from 0 on each node.
    """
    cuts = [devices for gpus, devices in plan.layouts for _ in range(gpus)]
    made: list[tuple[str, list[str]]] = []
    for node in plan.nodes:
        here, cuts = cuts[: node.gpus], cuts[node.gpus :]
        numbers = ",".join(map(str, range(len(here))))
        made.append((node.name, [f"nvidia-smi -i {numbers} -mig 1"] + [
            f"nvidia-smi mig -i {gpu} -cgi {_devices_text(devices)} -C" for gpu, devices in enumerate(here)
        ]))  # fmt: skip
    return made


def _devices_text(devices: Mapping[str, int]) -> str:
    """The largest first: so each finds a place."""
    names = [name for name, count in devices.items() for _ in range(count)]
    return ",".join(reversed(names))
