"""What each job takes from each of its nodes, where it may run, and the part of its priority that never changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.gang import part_of
from slurmsched.kernels.nodes import pick_nodes
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.placements.candidates import parted
from slurmsched.replay.layout import Layout
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.too_large import misfit, too_large
from slurmsched.replay.traces import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """nodes: (J,). need, last: (J, 3) GPUs, CPUs, MiB of each node and of the last one. part, pool: (J,) rows of
    members (Q, N) and usable (P, N). pinned: (J,) bound to the nodes of its pool. factors: (J,) priority points.
    parted: (J,) over how many nodes a placement shares the job out, so that it comes to the same, see part_of."""

    nodes: Int64s
    need: Int64s
    last: Int64s
    part: Int64s
    members: Bools
    pool: Int64s
    usable: Bools
    pinned: Bools
    factors: Floats
    parted: Int64s

    @property
    def cpus(self) -> Int64s:
        """CPUs of each job on all its nodes. (J,)."""
        found: Int64s = self.need[:, 1] * (self.nodes - 1) + self.last[:, 1]
        return found

    def billing(self, layout: Layout, *, largest: bool) -> Floats:
        """What a second of each job costs by its partition's TRESBillingWeights: the sum, or the largest part; CPUs
        where there are none. (J,)."""
        weights = np.array([each.billing or (0.0, 1.0, 0.0) for each in layout.partitions])[self.part]
        parts = (self.need * (self.nodes - 1)[:, None] + self.last) * weights
        found: Floats = parts.max(axis=1, initial=0.0) if largest else parts.sum(axis=1)
        return found

    @classmethod
    def of(cls, trace: Trace, requests: Requests, layout: Layout, model: SlurmModel) -> Demand:
        """Raises InputError for a partition or node that is not there, and for a job that could never start."""
        part = layout.partition_rows(requests.partition)
        members = np.array([layout.mask(partition.nodes) for partition in layout.partitions])
        kinds, kind = _kinds(requests, layout, part, members)
        pin = requests.pin
        pair, pool = np.unique(kind * max(len(pin.names), 1) + pin.codes, return_inverse=True)
        places = [divmod(code, max(len(pin.names), 1)) for code in pair.tolist()]
        pins = [tuple(filter(None, text.split(","))) for text in pin.names]
        usable = np.array([kinds[row] & layout.mask(pins[text]) for row, text in places]).reshape(len(places), -1)
        fewest = layout.of_partitions("min_nodes")[part]
        nodes, need, last = _shares(trace.gpus, requests, layout, kinds, kind, fewest)
        count = np.array([len(names) for names in pins], np.int64)[pin.codes] if len(trace) else nodes
        factors = _factors(trace.gpus, requests, layout, model, part, nodes)
        pinned = (count > 0) & (count >= nodes)
        unequal = (trace.gpus % np.maximum(nodes, 1) == 0) & (need[:, 0] * nodes != trace.gpus)
        split = np.where(unequal, 1, nodes)
        made = cls(nodes, need, last, part, members, pool.astype(np.int64), usable, pinned, factors, split)
        made._refuse_impossible(trace, layout, requests.gpu_type)
        return made

    def _refuse_impossible(self, trace: Trace, layout: Layout, types: Labels) -> None:
        have = np.stack([layout.column(name) for name in ("gpus", "cpus", "memory_mib")])
        have[2] = np.where(have[2] > 0, have[2], np.iinfo(np.int64).max)
        wants = np.column_stack([self.pool, self.nodes, self.need, self.last])
        _, rows, alike = np.unique(wants, axis=0, return_index=True, return_inverse=True)
        taken = np.zeros(have.shape[1], np.int64)
        never = np.array([not pick_nodes(have, self.usable[self.pool[row]], self.nodes[row], self.need[row],
                                         self.last[row], False, taken) for row in rows.tolist()], np.bool_)  # fmt: skip
        if not never.any():
            return
        never, room = never[alike.reshape(-1)], (self.usable * have[0]).sum(axis=1)[self.pool]
        large = np.flatnonzero(never & (trace.gpus > room))
        row = int(large[np.argmax(trace.gpus[large])] if len(large) else np.flatnonzero(never)[0])
        if not len(large):
            raise misfit(int(trace.job_id[row]), int(trace.gpus[row]), int(self.nodes[row]), self.need[row], types[row])
        like = large[(self.pool[large] == self.pool[row]) & (types.codes[large] == types.codes[row])]
        raise too_large(trace.job_id[like], trace.gpus[like], int(room[row]), types[row])


def _kinds(requests: Requests, layout: Layout, part: Int64s, members: Bools) -> tuple[list[Bools], Int64s]:
    """Which nodes serve each pair of partition and GPU type that jobs ask for, (N,) each; row of each job's. (J,).

    How many GPUs of a type a node has is not looked at: it counts as having all of its own.
    """
    types = requests.gpu_type
    pair, kind = np.unique(part * max(len(types.names), 1) + types.codes, return_inverse=True)
    places = [divmod(code, max(len(types.names), 1)) for code in pair.tolist()]
    return [members[row] & layout.with_type(types.names[text]) for row, text in places], kind.astype(np.int64)


def _shares(
    gpus: Int64s, requests: Requests, layout: Layout, kinds: list[Bools], kind: Int64s, fewest: Floats
) -> tuple[Int64s, Int64s, Int64s]:
    """Nodes, and what each and the last one give: see part_of; a job that tells no nodes asks for none.

    Nodes for which such parts leave no GPU are not counted: what all give together is what the job asks for.
    kinds, kind: of _kinds. fewest: (J,) MinNodes of a job that tells none.
    The size of a node is that of the largest that serves the job.
    """
    sizes = {
        name: np.array([layout.column(name)[mask].max(initial=1) for mask in kinds], np.int64)
        for name in ("gpus", "cpus")
    }
    size = np.maximum(sizes["gpus"], 1)[kind]
    cpus_per_gpu = np.maximum(sizes["cpus"][kind] // size, 1)
    least = np.maximum(-(-gpus // size), 1)
    nodes = np.where(requests.nodes > 0, requests.nodes, np.maximum(least, fewest)).astype(np.int64)
    asked = np.where((requests.nodes > 0) | (nodes > least), nodes, 1)
    asked = parted(gpus, asked, kind, np.array(kinds).reshape(len(kinds), len(layout.nodes)), layout.column("gpus"))
    part = np.minimum(gpus, _parts(gpus, asked, size))
    nodes = np.where(part * (nodes - 1) > gpus, -(-gpus // np.maximum(part, 1)), nodes)
    rest = (gpus - part * (nodes - 1)).astype(np.int64)
    memory = np.ceil(requests.memory_mib / nodes)

    def share(of_gpus: Int64s) -> Int64s:
        cpus = np.where(requests.cpus > 0, -(-requests.cpus // nodes), of_gpus * cpus_per_gpu)
        return np.column_stack([of_gpus, cpus, memory]).astype(np.int64)

    return nodes.astype(np.int64), share(part), share(rest)


def _parts(gpus: Int64s, nodes: Int64s, size: Int64s) -> Int64s:
    """part_of, for each job. (J,)."""
    kinds, place = np.unique(np.stack([gpus, nodes, size]), axis=1, return_inverse=True)
    parts = [part_of.plain(*kind) for kind in kinds.T.tolist()]  # type: ignore[attr-defined]  # of few kinds
    return np.array(parts, np.int64)[place.reshape(-1)]


def _factors(
    gpus: Int64s, requests: Requests, layout: Layout, model: SlurmModel, part: Int64s, nodes: Int64s
) -> Floats:
    """Job size, partition, QOS and TRES factors of priority/multifactor, weighted. (J,)."""
    total = {name: max(float(layout.column(name).sum()), 1.0) for name in ("gpus", "cpus", "memory_mib")}
    size = (nodes / max(len(layout.nodes), 1) + requests.cpus / total["cpus"]) / 2
    tiers = np.array([partition.factor for partition in layout.partitions], np.float64)
    ranks = {limits.name: limits.priority for limits in layout.qos}
    qos = requests.qos.map(lambda name: ranks.get(name, 0), np.float64)
    tres = np.stack([gpus / total["gpus"], requests.cpus / total["cpus"], requests.memory_mib / total["memory_mib"]])
    points: Floats = model.weight_job_size * (1 - size if model.favor_small else size)
    points = points + model.weight_partition * tiers[part] / max(tiers.max(initial=0), 1)
    points = points + model.weight_qos * qos / max(*ranks.values(), 1, 1)
    return points + np.array(model.weight_tres) @ tres
