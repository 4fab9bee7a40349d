"""What Slurm picks GPUs by, read where jobs are to be pinned: GPUs and sockets of nodes, free cores, requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan

import numpy as np

from slurmsched.config import Topology
from slurmsched.errors import InputError, UnreadableError
from slurmsched.model.columns import Int64s, frozen
from slurmsched.model.gres import Gres, count_gpus, normal_form, parse_gres
from slurmsched.model.hostlist import fold
from slurmsched.model.pins import Picking, Wish
from slurmsched.model.snapshot import Site, Snapshot
from slurmsched.slurm.commands import Commands, node_batches
from slurmsched.slurm.job_records import JobRecord
from slurmsched.slurm.pick_records import PickRecords
from slurmsched.slurm.picks import NO_FILE, free_cores, known_version, node_of, read_shapes
from slurmsched.slurm.text import MOST_COUNT, count_of, fields, plain, time_s, whole
from slurmsched.slurm.wiring import RELOAD_S, read_gres
from slurmsched.topology.gpu_types import TypedNode
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.site import class_rows
from slurmsched.topology.slurm_node import Form, SlurmNode
from slurmsched.topology.slurm_site import Shape, typed_node

Kinds = tuple[tuple[SlurmNode | TypedNode, ...], Int64s]  # see Picking
Counted = tuple[tuple[str, int], ...]  # GPU Types of a node, and how many
_Key = tuple[int, Shape | None, Counted]  # row of its class, sockets, Types
NO_TYPES = ("placement.retype: no request is rewritten: no node has GPUs of several Types that gres.conf and "
            "`sinfo -o %G` tell in the same order; see `slurmsched topology compile --types`")  # fmt: skip
FORMS = {"TresPerJob": Form.PER_JOB, "TresPerTask": Form.PER_TASK, "TresPerSocket": Form.PER_SOCKET,
         "TresPerNode": Form.PER_NODE}  # fmt: skip
_PLAIN = {"ReqB:S:C:T": ("0:0:*:*",), "NtasksPerN:B:S:C": ("0:0:*:*",), "CoreSpec": ("*",), "Contiguous": ("0",)}
UNFIXED = "a number of nodes that is not fixed"
_BARS = {"Switches": "switches", "SegmentSize": "a segment", "SpreadJob": "spread nodes", "CpusPerTres": "CPUs by GPU",
         "MemPerTres": "memory by GPU", "TresBind": "a binding of GPUs"}  # fmt: skip


class Pickers:
    """Gives snapshots their picking. gres.conf and the nodes' sockets are read at first and again every hour.

    retype: whether requests are to be rewritten; where no node's Types are known a warning says so.
    """

    def __init__(
        self, settings: Topology, commands: Commands, clock: Callable[[], float] = time.monotonic, *,
        retype: bool = False,
    ) -> None:  # fmt: skip
        self._settings, self._commands, self._clock, self._retype = settings, commands, clock, retype
        self._records = PickRecords(commands, read_wish)
        self._read_s = float("-inf")
        self._names: tuple[str, ...] = ()
        self._kinds: Kinds = ((), frozen([], np.int64))
        self._warning = ""

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its picking; without where no job could be pinned. Raises SlurmError."""
        jobs, names = snapshot.jobs, tuple(snapshot.nodes.name)
        if not (jobs.pending & (jobs.gpus > 1)).any():
            return snapshot
        version, why = known_version(snapshot.site)
        if why:
            return replace(snapshot, warnings=(*snapshot.warnings, f"placement: no job is pinned: {why}"))
        if self._clock() - self._read_s > RELOAD_S or names != self._names:
            self._kinds, self._warning = self._shapes(names, snapshot.site)
            self._read_s, self._names = self._clock(), names
        held, wishes = self._records.read(jobs, cores=any(isinstance(kind, SlurmNode) for kind in self._kinds[0]))
        told = (f"placement: no job is pinned: {self._warning}",) if self._warning else self._untyped()
        picking = Picking(*self._kinds, _free_cores(snapshot, held, self._kinds), version, wishes)
        return replace(snapshot, picking=picking, warnings=(*snapshot.warnings, *told))

    def _untyped(self) -> tuple[str, ...]:
        none = self._retype and not any(isinstance(kind, TypedNode) for kind in self._kinds[0])
        return (NO_TYPES,) if none else ()

    def _shapes(self, names: tuple[str, ...], site: Site) -> tuple[Kinds, str]:
        """The nodes as slurmctld has them; and why none is known, "" if one is."""
        try:
            classes = read_gres(self._settings, site).classes
        except InputError as error:
            return ((), frozen(np.full(len(names), -1), np.int64)), str(error)
        shapes, rows = read_shapes(self._commands, names), class_rows(names, classes)
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
    lists = node_batches(fold(names))
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


def read_wish(job_id: int, record: JobRecord) -> Wish | None:
    """A pending job's request; None where it cannot be read."""
    found, options = fields(record.facts), record.options
    if options is None:
        return None
    forms = [(form, entries) for key, form in FORMS.items() if (entries := _gpus(options.get(key, "")))]
    try:
        tasks, cpus = count_of(found["NumTasks"]), count_of(found["CPUs/Task"])
        wish = Wish(job_id, time_s(found["SubmitTime"]), "", 0, tasks, cpus,
                    _number(found.get("Socks/Node", "")), options.get("GresEnforceBind") == "Yes")  # fmt: skip
    except (KeyError, ValueError, UnreadableError):
        return None
    if not forms or isnan(wish.submit_s):
        return None
    told = found | fields(record.texts.partition(" Licenses=")[0])
    nodes = _fixed_nodes(found.get("NumNodes", ""), wish.tasks, found.get("ReqTRES") or found.get("TRES", ""))
    bars = (*_bars(told, options, nodes), *(["GPUs in several ways"] if len(forms) > 1 else []))
    form, entries = forms[0]
    wish = replace(wish, nodes=nodes, whole=_exclusive(told) != "", even=_even(str(form), told, nodes))
    gpus = [entry for entry in entries if entry.kind == "gpu"]
    alone = len(gpus) == len(entries) and not any("gres" in options.get(key, "") for key in FORMS if FORMS[key] != form)
    return replace(wish, form=str(form), count=count_gpus(gpus), bars=bars, asks=normal_form(gpus), alone=alone)


def _fixed_nodes(text: str, tasks: int, least: str) -> int:
    """How many nodes a job gets, "2-2" -> 2; 0 = it may be more than the least: a list could then shrink it.

    least: what it asks for as TRES, with its least nodes. `--nodes=2-3` may show as "3-3" while it waits; where `least`
    does not tell, only one node is sure.
    """
    low, _, high = text.partition("-")
    told = re.search(r"\bnode=(\d+)", least)
    fixed = low == (high or "1") and (high or tasks < 2) and low == (told[1] if told else "1")
    return _number(low) if fixed else 0


def _bars(told: Mapping[str, str], options: Mapping[str, str], nodes: int) -> Iterator[str]:
    yield from (word for key, word in _BARS.items() if key in options and not _own_binding(key, options))
    if any(told.get(key, values[0]) not in values for key, values in _PLAIN.items() if not _by_node(key, told, nodes)):
        yield "a layout of its tasks"
    if (exclusive := _exclusive(told)) and (nodes < 2 or exclusive == "TOPO"):
        yield "a node of its own"
    if not nodes:
        yield UNFIXED


def _exclusive(told: Mapping[str, str]) -> str:
    """In which way nobody else may be on its nodes, "" = others may. Newer versions have a field of its own."""
    exclusive = told.get("Exclusive")
    if exclusive is None:
        exclusive = told["OverSubscribe"] if told.get("OverSubscribe") in ("NO", "USER", "MCS", "TOPO") else ""
        return "NODE" if exclusive == "NO" else exclusive
    return "" if exclusive == "NO" else exclusive


def _by_node(key: str, told: Mapping[str, str], nodes: int) -> bool:
    """Whether the layout of a gang is but a number of tasks for each node, which any of them can keep to."""
    tasks, _, rest = told.get(key, "").partition(":")
    spread = key == "NtasksPerN:B:S:C" and rest == "0:*:*" and nodes > 1
    return spread and _number(tasks) * nodes == _number(told.get("NumTasks", ""))


def _even(form: str, told: Mapping[str, str], nodes: int) -> bool:
    """Whether every node of a gang gets as many GPUs by the request: Slurm gives `--gpus=8` on two as seven and one."""
    return form == Form.PER_NODE or (form == Form.PER_TASK and _by_node("NtasksPerN:B:S:C", told, nodes))


def _own_binding(key: str, options: Mapping[str, str]) -> bool:
    """Whether a binding is what --gpus-per-task says by itself."""
    return key == "TresBind" and "gpu" in options.get("TresPerTask", "")


def _gpus(text: str) -> list[Gres]:
    """The entries of a request that has GPUs among them; none of any other."""
    try:
        entries = [entry for entry in parse_gres(plain(text)) if entry.count]
    except UnreadableError:
        return []
    return entries if count_gpus(entries) else []


def _number(text: str) -> int:
    return whole(text, 0, MOST_COUNT)
