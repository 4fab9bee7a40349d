"""What Slurm's own choice of GPUs depends on, read for the nodes of interest: sockets, cores in use, gres.conf."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import numpy as np

from slurmsched.config import Config, TopologyConfig
from slurmsched.errors import InputError, SlurmschedError, UnreadableError
from slurmsched.model.columns import Bools, Int64s, frozen
from slurmsched.model.gpu_selection import GpuSelection, JobGpuRequest
from slurmsched.model.gres import Gres, count_gpus, index_mask, normal_form, parse_gres
from slurmsched.model.hints import hint_column
from slurmsched.model.hostlists import fold_hostlist
from slurmsched.model.jobs import Jobs
from slurmsched.model.nodes import Nodes
from slurmsched.model.slurm_text import MOST_COUNT, parse_count, record_fields, text_or_empty, time_s, whole_number
from slurmsched.model.snapshot import Site, Snapshot
from slurmsched.model.states import ON_NODES
from slurmsched.slurm.commands import Commands, node_batches
from slurmsched.slurm.job_records import MOST_SINGLY, NODE_DETAIL, JobRecord, ask_jobs
from slurmsched.slurm.job_tables import expand_hosts
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.topology_sources import RELOAD_S, read_gres
from slurmsched.topology.gres_nodes import NodeShape, TypedNode, slurm_node, typed_node
from slurmsched.topology.site_topology import class_rows
from slurmsched.topology.slurm_selection import (
    UNKNOWN_SELECTION,
    GpuOption,
    NodeGpuRequest,
    SlurmNode,
    SlurmVersion,
    read_version,
    select_gpus,
)
from slurmsched.topology.topology_files import NodeClass

FIRST, LAST = (21, 8), (26, 5)  # releases whose choice is known


@dataclass(frozen=True, slots=True)
class KnownSelection:
    """Slurm's choice on the nodes it is known for. why: what keeps it from being known, "" = nothing does."""

    version: SlurmVersion
    nodes: Mapping[str, SlurmNode]
    free_cores: Mapping[str, Sequence[int]]
    why: str = ""

    def __call__(self, request: NodeGpuRequest) -> Callable[[str, int, int], int]:
        """The picker of one request: node, mask of free GPUs, GPUs -> mask or UNKNOWN."""

        def of(name: str, free: int, gpus: int) -> int:
            node, cores = self.nodes.get(name), self.free_cores.get(name)
            if node is None or cores is None:
                return UNKNOWN_SELECTION
            return select_gpus(node, replace(request, count=gpus), free, cores, self.version)

        return of


def read_known_selection(config: Config, snapshot: Snapshot, names: Sequence[str]) -> KnownSelection:
    """What is known of these nodes; never raises: where something cannot be read, Slurm's choice is not known."""
    version, why = known_version(snapshot.site)
    if why or not names:
        return KnownSelection(version, {}, {}, why)
    try:
        commands = open_commands(config.slurm)
        shapes = shapes_of(commands, snapshot.nodes, names)
        classes = read_gres(config.topology, snapshot.site).classes
        nodes = {name: node for name in names if (node := node_of(name, classes, shapes.get(name))) is not None}
        return KnownSelection(version, nodes, _free(commands, snapshot, nodes), "" if nodes else NO_FILE)
    except SlurmschedError as error:
        return KnownSelection(version, {}, {}, str(error))


NO_FILE = "no gres.conf with a File line for each GPU can be read here"


def known_version(site: Site) -> tuple[SlurmVersion, str]:
    """Slurm's version, and why its choice of GPUs is not known; "" if it is."""
    version = read_version(site.version)
    if not FIRST <= version[:2] <= LAST:
        return version, f"how Slurm {site.version} picks GPUs is not known"
    chosen = site.settings.get("SelectTypeParameters", "CR_CORE").upper()
    return version, "" if "CR_CORE" in chosen else f"not known with SelectTypeParameters={chosen}"


def read_shapes(commands: Commands, names: Sequence[str]) -> dict[str, NodeShape]:
    """Sockets, cores of each and threads of each core, by node; other rows are left out. Raises SlurmError."""
    lists = node_batches(fold_hostlist(names))
    text = "\n".join(commands.run("sinfo", "-h", "-N", "-n", listed, "-o", "%N %X %Y %Z") for listed in lists)
    found: dict[str, NodeShape] = {}
    for name, *words in filter(None, (line.split() for line in text.splitlines())):
        counts = [whole_number(word, most=MOST_COUNT) for word in words]
        if len(counts) == 3 and all(counts):
            found[name] = (counts[0], counts[1], counts[2])
    return found


def shapes_of(commands: Commands, nodes: Nodes, names: Sequence[str]) -> dict[str, NodeShape]:
    """As read_shapes, without nodes with RestrictedCoresPerGPU: how Slurm selects cores there is not modelled."""
    restricted = {nodes.name[row] for row in np.flatnonzero(nodes.cpus_per_gpu_kept).tolist()}
    return {name: shape for name, shape in read_shapes(commands, names).items() if name not in restricted}


def node_of(name: str, classes: Sequence[NodeClass], shape: NodeShape | None) -> SlurmNode | None:
    """The node as slurmctld has it, by the first class that names it; None where that is not known."""
    one = next((one for one in classes if not one.nodes or name in one.nodes), None)
    try:
        return None if one is None or shape is None else slurm_node(one, shape)
    except SlurmschedError:
        return None  # it detects its GPUs, or has several types: another rule picks


def _free(commands: Commands, snapshot: Snapshot, nodes: Mapping[str, SlurmNode]) -> dict[str, list[int]]:
    """Free cores of each socket, of nodes where jobs show as many CPUs as Slurm counts. Raises SlurmError."""
    used = dict(zip(snapshot.nodes.name, snapshot.nodes.cpus_used.tolist(), strict=True))
    held = held_cpus(commands, snapshot.jobs) if any(used[name] for name in nodes) else {}
    found = {}
    for name, node in nodes.items():
        cpus = held.get(name, 0)
        if cpus.bit_count() == used[name]:
            found[name] = free_cores(node, cpus)
    return found


def held_cpus(commands: Commands, jobs: Jobs) -> dict[str, int]:
    """By node the CPUs that jobs hold, as a mask; a job whose record is in doubt shows none. Raises SlurmError."""
    rows = np.flatnonzero(jobs.is_state(ON_NODES)).tolist()
    answer = ask_jobs(commands, {int(jobs.job_id[row]): jobs.name[row] for row in rows}, len(jobs)) if rows else None
    return union(cpus_of(record) for record in answer.records.values()) if answer else {}


def cpus_of(record: JobRecord) -> dict[str, int]:
    """By node the CPUs that one job's record shows, as a mask; none where it names other nodes than it has."""
    found: dict[str, int] = {}
    try:
        nodes = frozenset(expand_hosts(record.node_list))
        for hosts, cpus, _ in NODE_DETAIL.findall(record.record_text):
            for name in expand_hosts(hosts, len(nodes)):
                if name not in nodes or name in found:
                    return {}
                found[name] = index_mask(cpus)
    except UnreadableError:
        return {}
    return found


def union(held: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The masks of several jobs as one."""
    found: dict[str, int] = {}
    for job in held:
        for name, cpus in job.items():
            found[name] = found.get(name, 0) | cpus
    return found


def free_cores(node: SlurmNode, held: int) -> list[int]:
    """Cores of each socket of which no CPU is held. held: mask of CPUs, numbered core by core."""
    threads, each = node.cpus_per_core, node.cores_per_socket
    taken = [bool(held >> core * threads & (1 << threads) - 1) for core in range(node.sockets * each)]
    return [each - sum(taken[s * each : (s + 1) * each]) for s in range(node.sockets)]


# What Slurm's picks of GPUs depend on of each job, asked once: cores that runs hold, requests of jobs that wait.

_Mark = tuple[Any, ...]
_Cpus = Mapping[str, int]  # node -> mask of CPUs


class SelectionRecords:
    """Remembers what each job told, so that a cycle asks for jobs that are new or look otherwise than before.

    read_request: of a job's id and record.

    A job whose record is in doubt has no request, and no CPUs. squeue does not show some changes, such as another
    switch count. Recheck finds these, when it reads the job again right before it is written.
    """

    def __init__(self, commands: Commands, read_request: Callable[[int, JobRecord], JobGpuRequest | None]) -> None:
        self._commands, self._read_wish = commands, read_request
        self._runs: dict[int, tuple[_Mark, _Cpus]] = {}
        self._waits: dict[int, tuple[_Mark, JobGpuRequest | None]] = {}

    def read(
        self, jobs: Jobs, *, cores: bool, among: Bools | None = None
    ) -> tuple[dict[str, int], tuple[JobGpuRequest, ...]]:  # fmt: skip
        """CPUs that are held on each node, and the requests of pending jobs of several GPUs. Raises SlurmError.

        cores: whether anybody asks for the CPUs; none are told else. among: (N,) bool, the only jobs whose requests
        anybody asks for; None = all.
        """
        runs = _run_marks(jobs, np.flatnonzero(jobs.is_state(ON_NODES) & cores))
        asked = jobs.pending & (jobs.gpus > 1)
        waits = _wait_marks(jobs, np.flatnonzero(asked if among is None else asked & among))
        new_runs, new_waits = _news(self._runs, runs), _news(self._waits, waits)
        if missing := [*new_runs, *new_waits]:
            names = dict(zip(jobs.job_id.tolist(), jobs.name, strict=True))
            answer = ask_jobs(self._commands, {job: names[job] for job in missing}, len(jobs))
            for job, record in answer.records.items():
                if job in new_runs:
                    self._runs[job] = (runs[job], cpus_of(record))
                if job in new_waits:
                    self._waits[job] = (waits[job], self._read_wish(job, record))
            if len(answer.doubtful) <= MOST_SINGLY:  # each was asked for alone: it stays in doubt while it looks so
                self._runs |= {job: (runs[job], {}) for job in answer.doubtful & new_runs}
                self._waits |= {job: (waits[job], None) for job in answer.doubtful & new_waits}
        self._runs = {job: self._runs[job] for job in runs if job in self._runs}
        self._waits = {job: self._waits[job] for job in waits if job in self._waits}
        return union(cpus for _, cpus in self._runs.values()), tuple(
            gpu_request for _, gpu_request in self._waits.values() if gpu_request
        )

    def forget(self, jobs: Iterable[int]) -> None:
        """Ask for these anew."""
        for job in jobs:
            self._runs.pop(job, None)
            self._waits.pop(job, None)


def _news(known: Mapping[int, tuple[_Mark, Any]], marks: Mapping[int, _Mark]) -> frozenset[int]:
    return frozenset(job for job, mark in marks.items() if job not in known or known[job][0] != mark)


def _run_marks(jobs: Jobs, rows: Int64s) -> dict[int, _Mark]:
    """By job what changes when it runs anew, is resized or ends."""
    columns = (jobs.start_s, jobs.cpus, jobs.state)
    return _marks(jobs, rows, [*(column[rows].tolist() for column in columns), jobs.node_list.take(rows)])


def _wait_marks(jobs: Jobs, rows: Int64s) -> dict[int, _Mark]:
    """By job what squeue shows of its request, and its name, by which its record is read."""
    columns = (jobs.submit_s, jobs.memory_mib, jobs.nodes, jobs.cpus)
    texts = (jobs.gpu_request, jobs.features_asked, jobs.name)
    return _marks(jobs, rows, [*(column[rows].tolist() for column in columns), *(text.take(rows) for text in texts)])


def _marks(jobs: Jobs, rows: Int64s, columns: Iterable[Iterable[Any]]) -> dict[int, _Mark]:
    return dict(zip(jobs.job_id[rows].tolist(), zip(*columns, strict=True), strict=True))


# What Slurm picks GPUs by.

Kinds = tuple[tuple[SlurmNode | TypedNode, ...], Int64s]  # see Picking
Counted = tuple[tuple[str, int], ...]  # GPU Types of a node, and how many
_Key = tuple[int, NodeShape | None, Counted]  # row of its class, sockets, Types
NO_TYPES = ("placement.retype: no request is rewritten: no node has GPUs of several Types that gres.conf and "
            "`sinfo -o %G` list in the same order; see `slurmsched topology compile --types`")  # fmt: skip
FORMS = {"TresPerJob": GpuOption.PER_JOB, "TresPerTask": GpuOption.PER_TASK, "TresPerSocket": GpuOption.PER_SOCKET,
         "TresPerNode": GpuOption.PER_NODE}  # fmt: skip
_PLAIN = {"ReqB:S:C:T": ("0:0:*:*",), "NtasksPerN:B:S:C": ("0:0:*:*",), "CoreSpec": ("*",), "Contiguous": ("0",)}
UNFIXED = "a number of nodes that is not fixed"
OWN_NODE = "a node of its own"
_BARS = {"Switches": "switches", "SegmentSize": "a segment", "SpreadJob": "spread nodes", "CpusPerTres": "CPUs by GPU",
         "MemPerTres": "memory by GPU", "TresBind": "a binding of GPUs"}  # fmt: skip


class SelectionReader:
    """Gives snapshots their gpu_selection. gres.conf and the nodes' sockets are read at first and again every hour.

    retype: whether requests are to be rewritten; where no node's Types are known a warning says so.
    """

    def __init__(
        self, settings: TopologyConfig, commands: Commands, clock: Callable[[], float] = time.monotonic, *,
        retype: bool = False,
    ) -> None:  # fmt: skip
        self._settings, self._commands, self._clock, self._retype = settings, commands, clock, retype
        self._records = SelectionRecords(commands, read_gpu_request)
        self._read_s = float("-inf")
        self._names: tuple[str, ...] = ()
        self._kinds: Kinds = ((), frozen([], np.int64))
        self._warning = ""

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its gpu_selection; without where no job could be pinned. Raises SlurmError."""
        jobs, names = snapshot.jobs, tuple(snapshot.nodes.name)
        if not (jobs.pending & (jobs.gpus > 1)).any():
            return snapshot
        version, why = known_version(snapshot.site)
        if why:
            return replace(snapshot, warnings=(*snapshot.warnings, f"placement: no job is pinned: {why}"))
        if self._clock() - self._read_s > RELOAD_S or names != self._names:
            self._kinds, self._warning = self._shapes(snapshot.nodes, snapshot.site)
            self._read_s, self._names = self._clock(), names
        held, gpu_requests = self._records.read(jobs, cores=any(isinstance(kind, SlurmNode) for kind in self._kinds[0]))
        more = (f"placement: no job is pinned: {self._warning}",) if self._warning else self._untyped()
        gpu_selection = GpuSelection(*self._kinds, _free_cores(snapshot, held, self._kinds), version, gpu_requests)
        return replace(snapshot, gpu_selection=gpu_selection, warnings=(*snapshot.warnings, *more))

    def _untyped(self) -> tuple[str, ...]:
        none = self._retype and not any(isinstance(kind, TypedNode) for kind in self._kinds[0])
        return (NO_TYPES,) if none else ()

    def _shapes(self, nodes: Nodes, site: Site) -> tuple[Kinds, str]:
        """The nodes as slurmctld has them; and why none is known, "" if one is."""
        names = tuple(nodes.name)
        try:
            classes = read_gres(self._settings, site).classes
        except InputError as error:
            return ((), frozen(np.full(len(names), -1), np.int64)), str(error)
        shapes, rows = shapes_of(self._commands, nodes, names), class_rows(names, classes)
        several = any(len({device.type for device in one.devices}) > 1 for one in classes)
        counted = read_types(self._commands, names) if several else {}
        made: dict[_Key, SlurmNode | TypedNode | None] = {}
        of = [(rows.get(name, -1), shapes.get(name), counted.get(name, ())) for name in names]
        for name, key in zip(names, of, strict=True):
            if key not in made:
                made[key] = node_of(name, classes, key[1]) or _typed(key, classes)
        known = [key for key, node in made.items() if node is not None]
        kinds = tuple(node for node in made.values() if node is not None)
        return (kinds, frozen([known.index(key) if key in known else -1 for key in of], np.int64)), (
            "" if kinds else NO_FILE
        )


def _free_cores(snapshot: Snapshot, held: Mapping[str, int], kinds: Kinds) -> tuple[tuple[int, ...], ...]:
    """Of each node. Where jobs show other CPUs than Slurm counts they are not known: a job came or went meanwhile."""
    rows = zip(snapshot.nodes.name, snapshot.nodes.cpus_used.tolist(), kinds[1].tolist(), strict=True)
    return tuple(_cores(kinds[0][kind], held.get(name, 0), used) if kind >= 0 else () for name, used, kind in rows)


def read_types(commands: Commands, names: Sequence[str]) -> dict[str, Counted]:
    """GPU Types of each node and how many of each, in Slurm's order. Raises SlurmError."""
    lists = node_batches(fold_hostlist(names))
    text = "\n".join(commands.run("sinfo", "-h", "-N", "-n", listed, "-o", "%N %G") for listed in lists)
    rows = (line.split(maxsplit=1) for line in text.splitlines())
    return {row[0]: tuple((entry.type, entry.count) for entry in _gpus(row[1])) for row in rows if len(row) > 1}


def _typed(key: _Key, classes: Sequence[NodeClass]) -> TypedNode | None:
    row, _, counted = key
    return typed_node(classes[row], counted) if row >= 0 else None


def _cores(node: SlurmNode | TypedNode, held: int, used: int) -> tuple[int, ...]:
    if isinstance(node, TypedNode):
        return (0,)  # which GPUs a request by Type gets does not depend on them
    return tuple(free_cores(node, held)) if held.bit_count() == used else ()


def read_gpu_request(job_id: int, record: JobRecord) -> JobGpuRequest | None:
    """A pending job's request; None where it cannot be read."""
    found, options = record_fields(record.record_text), record.options
    if options is None:
        return None
    forms = [(form, entries) for key, form in FORMS.items() if (entries := _gpus(options.get(key, "")))]
    try:
        tasks, cpus = parse_count(found["NumTasks"]), parse_count(found["CPUs/Task"])
        gpu_request = JobGpuRequest(job_id, time_s(found["SubmitTime"]), "", 0, tasks, cpus,
                    _number(found.get("Socks/Node", "")), options.get("GresEnforceBind") == "Yes")  # fmt: skip
    except (KeyError, ValueError, UnreadableError):
        return None
    if not forms or isnan(gpu_request.submit_s):
        return None
    fields = found | record_fields(record.texts.partition(" Licenses=")[0])
    nodes = _fixed_nodes(found.get("NumNodes", ""), gpu_request.tasks, found.get("ReqTRES") or found.get("TRES", ""))
    bars = (*_bars(fields, options, nodes), *(["GPUs in several ways"] if len(forms) > 1 else []))
    form, entries = forms[0]
    gpu_request = replace(
        gpu_request, nodes=nodes, whole=_exclusive(fields) != "", even=_even(str(form), fields, nodes)
    )
    gpus = [entry for entry in entries if entry.kind == "gpu"]
    alone = len(gpus) == sum(entry.kind != "cpu" for entry in entries)
    alone &= not any("gres" in options.get(key, "") for key in FORMS if FORMS[key] != form)
    return replace(gpu_request, form=str(form), count=count_gpus(gpus), bars=bars, asks=normal_form(gpus), alone=alone)


def _fixed_nodes(text: str, tasks: int, least: str) -> int:
    """How many nodes a job gets, "2-2" -> 2; 0 = it may be more than the least: a list could then shrink it.

    least: what it asks for as TRES, with its least nodes. `--nodes=2-3` may show as "3-3" while it waits; where `least`
    does not tell, only one node is sure.
    """
    low, _, high = text.partition("-")
    given = re.search(r"\bnode=(\d+)", least)
    fixed = low == (high or "1") and (high or tasks < 2) and low == (given[1] if given else "1")
    return _number(low) if fixed else 0


def _bars(fields: Mapping[str, str], options: Mapping[str, str], nodes: int) -> Iterator[str]:
    yield from (word for key, word in _BARS.items() if key in options and not _own_binding(key, options))
    if any(
        fields.get(key, values[0]) not in values for key, values in _PLAIN.items() if not _by_node(key, fields, nodes)
    ):
        yield "a layout of its tasks"
    if (exclusive := _exclusive(fields)) and (nodes < 2 or exclusive == "TOPO"):
        yield OWN_NODE
    if not nodes:
        yield UNFIXED


def _exclusive(fields: Mapping[str, str]) -> str:
    """In which way nobody else may be on its nodes, "" = others may. Newer versions have a field of its own."""
    exclusive = fields.get("Exclusive")
    if exclusive is None:
        exclusive = fields["OverSubscribe"] if fields.get("OverSubscribe") in ("NO", "USER", "MCS", "TOPO") else ""
        return "NODE" if exclusive == "NO" else exclusive
    return "" if exclusive == "NO" else exclusive


def _by_node(key: str, fields: Mapping[str, str], nodes: int) -> bool:
    """Whether the layout of a gang is but a number of tasks for each node, which any of them can keep to."""
    tasks, _, rest = fields.get(key, "").partition(":")
    spread = key == "NtasksPerN:B:S:C" and rest == "0:*:*" and nodes > 1
    return spread and _number(tasks) * nodes == _number(fields.get("NumTasks", ""))


def _even(form: str, fields: Mapping[str, str], nodes: int) -> bool:
    """Whether every node of a gang gets as many GPUs by the request: Slurm gives `--gpus=8` on two as seven and one."""
    return form == GpuOption.PER_NODE or (form == GpuOption.PER_TASK and _by_node("NtasksPerN:B:S:C", fields, nodes))


def _own_binding(key: str, options: Mapping[str, str]) -> bool:
    """Whether a binding is what --gpus-per-task says by itself."""
    return key == "TresBind" and "gpu" in options.get("TresPerTask", "")


def _gpus(text: str) -> list[Gres]:
    """The entries of a request that has GPUs among them; none of any other."""
    try:
        entries = [entry for entry in parse_gres(text_or_empty(text)) if entry.count]
    except UnreadableError:
        return []
    return entries if count_gpus(entries) else []


def _number(text: str) -> int:
    return whole_number(text, 0, MOST_COUNT)


# Requests of gangs on several GPU types.


class MixedGangRequests:
    """Gives snapshots a gpu_selection without nodes: only the requests of such gangs that a node list might break."""

    def __init__(self, commands: Commands) -> None:
        self._records = SelectionRecords(commands, read_gpu_request)

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as it is where no such gang waits. Raises SlurmError."""
        jobs, nodes = snapshot.jobs, len(snapshot.nodes)
        gangs = jobs.pending & (jobs.nodes > 1) & (hint_column(jobs, "mixed") == 1)
        if not gangs.any():
            return snapshot
        _, gpu_requests = self._records.read(jobs, cores=False, among=gangs)
        unknown = frozen(np.full(nodes, -1), np.int64)
        return replace(
            snapshot,
            gpu_selection=GpuSelection((), unknown, ((),) * nodes, known_version(snapshot.site)[0], gpu_requests),
        )
