"""What the slurmctld model has of each job: CPUs, memory, billing, priority factors, and the jobs it depends on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.kernels.gang_fit import part_of
from slurmsched.kernels.slurmctld_nodes import NodeOrder, NodeRequest, pick_nodes
from slurmsched.model.columns import INF, Bools, Floats, Int64s, Labels, Table, column, text_column
from slurmsched.model.hostlists import expand_or_none
from slurmsched.model.trace import Trace
from slurmsched.placements.gang_walk import equal_parts
from slurmsched.sim.cluster_layout import DEFAULT_PARTITION, ClusterLayout, no_partition_fits, oversized_jobs
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

# A recorded Eligible this soon after Submit is when slurmctld first looked at the job, as at every array: it may start.
FIRST_LOOK_S = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class SubmittedRequests(Table):
    """One row a job of a trace, in its order. All columns are (J,). Zero or empty = not told.

    nodes: 0 = as few as hold the GPUs.
    cpus, memory_mib: of the whole job; 0 CPUs = as many parts of a node's CPUs as of its GPUs.
    array_id: job id of the array that a task belongs to, 0 for other jobs; tasks of one array are one record until they
        start.
    array_limit: how many tasks of it may run at once, 0 = any number.
    dependency: Slurm's text, "afterok:12:13,afterany:14" or "singleton".
    node_list: comma list of nodes the job must run on.
    constraint: features of its nodes (ClusterLayout.with_features).
    licenses: "matlab:2,ansys:1".
    exclusive: it has its nodes alone.
    fixed_priority: set by an operator, 0 = by factors.
    begin_s: not before.
    cancel_s: ended by its user then.
    fails: ends with an error, so that afterok is not satisfied.
    epilog_s: from its end to the return of its nodes, NaN = as the model says.
    epilog_spread_s: so much before the last one the others come back, below 0: the last one is the first by order.
    comment: hints (docs/hints.md) are read from it.
    """

    nodes: Int64s = column(np.int64, 0)
    cpus: Int64s = column(np.int64, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    partition: Labels = text_column()
    user: Labels = text_column("trace")
    account: Labels = text_column("trace")
    qos: Labels = text_column("normal")
    name: Labels = text_column()
    comment: Labels = text_column()
    gpu_type: Labels = text_column()  # "" = any
    constraint: Labels = text_column()
    licenses: Labels = text_column()
    exclusive: Bools = column(np.bool_, False)
    nice: Int64s = column(np.int64, 0)
    fixed_priority: Int64s = column(np.int64, 0)
    array_id: Int64s = column(np.int64, 0)
    array_limit: Int64s = column(np.int64, 0)
    dependency: Labels = text_column()
    node_list: Labels = text_column()
    begin_s: Floats = column(np.float64, 0.0)
    cancel_s: Floats = column(np.float64, INF)
    fails: Bools = column(np.bool_, False)
    epilog_s: Floats = column(np.float64, float("nan"))
    epilog_spread_s: Floats = column(np.float64, 0.0)

    @classmethod
    def plain(cls, rows: int) -> SubmittedRequests:
        """Jobs that ask for GPUs and time only."""
        return cls.build(rows, {})

    @classmethod
    def of_trace(cls, trace: Trace, layout: ClusterLayout, *, cpus_known: bool = False) -> SubmittedRequests:
        """What the trace itself tells; without a user or QOS a job is of one for all.

        Its partitions count only where the cluster has some of its own. Its nodes and CPUs count only where cpus_known
        says that the CPUs of the cluster are real.
        """
        known = ("memory_mib", "name", "comment", *(("nodes", "cpus") if cpus_known else ()))
        columns: dict[str, Any] = {name: getattr(trace, name) for name in known}
        if layout.partitions[0].name != DEFAULT_PARTITION or len(layout.partitions) > 1:
            columns["partition"] = _asked_partitions(trace, layout)
        types = {kind for node in layout.nodes for kind in node.types}
        columns["gpu_type"] = Labels.of([kind if kind in types else "" for kind in trace.gpu_type])
        for name, otherwise in (("user", "trace"), ("account", "trace"), ("qos", "normal")):
            columns[name] = Labels.of([text or otherwise for text in getattr(trace, name)])
        columns["dependency"] = recorded_dependencies(trace)
        columns["node_list"] = _recorded_nodes(trace, layout, columns["gpu_type"])
        held = trace.eligible_s - np.maximum(trace.submit_s, _satisfied_s(trace, columns["dependency"])) > FIRST_LOOK_S
        columns["begin_s"] = np.where(held, trace.eligible_s, 0.0)
        columns["cancel_s"] = np.where(np.isnan(trace.cancel_s), INF, trace.cancel_s)
        columns |= {"array_id": trace.array_id, "array_limit": trace.array_limit, "exclusive": trace.exclusive > 0}
        columns |= {"constraint": trace.constraint, "licenses": trace.licenses}
        return cls.build(len(trace), columns)

    @classmethod
    def of(cls, trace: Trace, job_id: Sequence[int], columns: dict[str, Any]) -> SubmittedRequests:
        """Columns given in the order of job_id, as rows of the trace. Raises InputError where the ids differ."""
        place = {int(job): row for row, job in enumerate(job_id)}
        missing = [job for job in trace.job_id.tolist() if job not in place]
        if missing or len(place) != len(trace):
            which = missing[0] if missing else next(iter(set(place) - set(trace.job_id.tolist())))
            raise InputError(f"job {which} is not in both the trace and its requests; give each job in both")
        order = np.array([place[job] for job in trace.job_id.tolist()], np.int64)
        return cls.build(len(trace), columns).take(order)


def _asked_partitions(trace: Trace, layout: ClusterLayout) -> Labels:
    """The partitions of the cluster that each job asked for, where it ran in one of them; else its partition."""
    if not trace.partitions.any_text:
        return trace.partition
    known = {each.name: (-each.tier, -each.factor) for each in layout.partitions}
    made = list(trace.partition)
    for row in np.flatnonzero(~trace.partitions.isin([""])).tolist():
        parts = [name for name in dict.fromkeys(trace.partitions[row].split(",")) if name in known]
        if made[row] in parts:
            made[row] = ",".join(sorted(parts, key=known.__getitem__))
    return Labels.of(made)


def _recorded_nodes(trace: Trace, layout: ClusterLayout, gpu_type: Labels) -> Labels:
    """The nodes on which the jobs ran that run when the window begins, as comma lists; "" of other jobs, and where they
    do not fit there together, or would not get them now."""
    made, node = [""] * len(trace), {each.name: row for row, each in enumerate(layout.nodes)}
    parts = {each.name: layout.mask(each.nodes) for each in layout.partitions}
    free = np.stack([layout.column("gpus"), layout.column("cpus"), layout.column("memory_mib")]).astype(np.float64)
    free[1:] = np.where(free[1:] > 0, free[1:], np.inf)
    for row in np.flatnonzero(trace.running & ~trace.node_list.isin([""])).tolist():
        names = expand_or_none(trace.node_list[row]) or ()
        if not names or not node.keys() >= set(names) or len(names) != max(int(trace.nodes[row]), 1):
            continue
        at = [node[name] for name in names]
        serves = parts.get(trace.partition[row], np.ones(len(node), np.bool_))
        serves = serves & layout.with_type(gpu_type[row]) & layout.with_features(trace.constraint[row])
        share = np.array([trace.gpus[row], trace.cpus[row], trace.memory_mib[row]]) / len(names)
        if serves[at].all() and (free[:, at] >= np.ceil(share)[:, None]).all():
            free[:, at] -= np.ceil(share)[:, None]
            made[row] = ",".join(names)
    return Labels.of(made)


# What each job takes from each of its nodes.


@dataclass(frozen=True, slots=True, eq=False)
class JobDemands:
    """What each job takes from each of its nodes.

    nodes: (J,) number of nodes.
    need: (J, R) of each node, what ClusterLayout.resources has.
    last: (J, R) of the last node.
    part: (J,) row of the layout's partition; of several the one that Slurm tries first.
    area: (J,) rows of members.
    members: (Q, N) the nodes of a partition or of several.
    pool: (J,) rows of usable.
    usable: (P, N) nodes that the jobs of a pool may use.
    choices: (P, C) rows of usable, for the nodes of one partition alone, in the order in which Slurm tries them. -1
        where there are fewer.
    choice_part: (P, C) the partition of each choice, -1 where there are fewer.
    least_loaded: (J,) LLN.
    bound: (J,) bound to the nodes of its pool.
    factors: (J,) priority points.
    parted: (J,) over how many nodes a placement shares the job out, so that it comes to the same, see part_of.
    qos_priority: (J,) of the QOS.
    never: (J,) bool, jobs that do not count and that these nodes can never hold.
    """

    nodes: Int64s
    need: Int64s
    last: Int64s
    part: Int64s
    area: Int64s
    members: Bools
    pool: Int64s
    usable: Bools
    choices: Int64s
    choice_part: Int64s
    least_loaded: Bools
    bound: Bools
    factors: Floats
    parted: Int64s
    qos_priority: Floats
    never: Bools

    @property
    def several(self) -> bool:
        """Whether any job names several partitions."""
        return self.choices.shape[1] > 1

    @property
    def cpus(self) -> Int64s:
        """CPUs of each job on all its nodes. (J,)."""
        found: Int64s = self.need[:, 1] * (self.nodes - 1) + self.last[:, 1]
        return found

    def billing(self, layout: ClusterLayout, *, largest: bool) -> Floats:
        """What a second of each job costs by its partition's TRESBillingWeights: the sum, or the largest part; CPUs
        where there are none. (J,)."""
        weights = np.array([each.billing or (0.0, 1.0, 0.0) for each in layout.partitions])[self.part]
        parts = (self.need * (self.nodes - 1)[:, None] + self.last)[:, : weights.shape[1]] * weights
        found: Floats = parts.max(axis=1, initial=0.0) if largest else parts.sum(axis=1)
        return found

    @classmethod
    def of(
        cls, trace: Trace, requests: SubmittedRequests, layout: ClusterLayout, model: SlurmctldSettings
    ) -> JobDemands:
        """Raises InputError for a partition or node that is not there, and for a job that could never start."""
        part = layout.partition_rows(requests.partition)
        members, area = _areas(requests.partition, layout, part)
        kinds, kind = _kinds(requests, layout, area, members)
        node_list = requests.node_list
        pair, pool = np.unique(kind * max(len(node_list.names), 1) + node_list.codes, return_inverse=True)
        places = [divmod(code, max(len(node_list.names), 1)) for code in pair.tolist()]
        pins = [tuple(filter(None, text.split(","))) for text in node_list.names]
        usable = np.array([kinds[row] & layout.mask(pins[text]) for row, text in places]).reshape(
            len(places), members.shape[1]
        )
        usable, choices, choice_part = _by_partition(usable, pool, area, _partition_sets(requests.partition, layout),
                                                     members)  # fmt: skip
        fewest = layout.of_partitions("min_nodes")[part]
        nodes, need, last = _node_shares(trace.gpus, requests, layout, kinds, kind, fewest)
        need, last = (_with_caps(each, layout, part) for each in (need, last))
        count = np.array([len(names) for names in pins], np.int64)[node_list.codes] if len(trace) else nodes
        factors = _factors(trace.gpus, requests, layout, model, part, nodes)
        bound = (count > 0) & (count >= nodes)
        unequal = (trace.gpus % np.maximum(nodes, 1) == 0) & (need[:, 0] * nodes != trace.gpus)
        split = np.where(unequal, 1, nodes)
        made = cls(nodes, need, last, part, area, members, pool.astype(np.int64), usable, choices, choice_part,
                   layout.of_partitions("least_loaded")[part] > 0, bound, factors, split,
                   _qos_priority(requests, layout), np.zeros(len(trace), np.bool_))  # fmt: skip
        never = made._impossible(layout)
        made._refuse_impossible(trace, never & trace.counted, layout, requests.gpu_type)
        return replace(made, never=never)

    def alike(self, limit_s: Floats) -> Int64s:
        """A number for each job, the same for jobs that ask for the same for the same time, 0, 1, ... (J,)."""
        limit = np.unique(limit_s, return_inverse=True)[1]
        columns = np.column_stack([self.pool, self.nodes, self.need, self.last, limit])
        return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def _impossible(self, layout: ClusterLayout) -> Bools:
        """Which jobs these nodes can never hold. (J,)."""
        have = layout.resources()
        kinds_of_demand = np.column_stack([self.pool, self.nodes, self.need, self.last])
        _, rows, alike = np.unique(kinds_of_demand, axis=0, return_index=True, return_inverse=True)
        taken, order = np.zeros(have.shape[1], np.int64), NodeOrder(False, np.zeros(have.shape[1], np.int64))
        requests = [NodeRequest(self.nodes[row], self.need[row], self.last[row], False) for row in rows.tolist()]
        choices = self.choices[self.pool[rows]].tolist()
        holds = (any(pick_nodes(have, self.usable[pool], request, order, taken) for pool in pools if pool >= 0)
                 for pools, request in zip(choices, requests, strict=True))  # fmt: skip
        never = ~np.array(list(holds), np.bool_)
        found: Bools = never[alike.reshape(-1)]
        return found

    def _refuse_impossible(self, trace: Trace, never: Bools, layout: ClusterLayout, types: Labels) -> None:
        """Raises InputError if any is among them."""
        if not never.any():
            return
        room = (self.usable * layout.column("gpus")).sum(axis=1)[self.pool]
        large = np.flatnonzero(never & (trace.gpus > room))
        row = int(large[np.argmax(trace.gpus[large])] if len(large) else np.flatnonzero(never)[0])
        if not len(large):
            raise no_partition_fits(
                int(trace.job_id[row]), int(trace.gpus[row]), int(self.nodes[row]), self.need[row], types[row]
            )
        like = large[(self.pool[large] == self.pool[row]) & (types.codes[large] == types.codes[row])]
        raise oversized_jobs(trace.job_id[like], trace.gpus[like], int(room[row]), types[row])


def _partition_sets(asked: Labels, layout: ClusterLayout) -> list[list[int]]:
    """Rows of the layout's partitions: each one alone, then each set of several that jobs ask for, in its order."""
    names = {each.name: row for row, each in enumerate(layout.partitions)}
    several = [text.split(",") for text in asked.names if "," in text]
    return [[row] for row in names.values()] + [[names[name] for name in each if name in names] for each in several]


def _areas(asked: Labels, layout: ClusterLayout, part: Int64s) -> tuple[Bools, Int64s]:
    """The nodes of each of _partition_sets (Q, N), and the row of each job's. (J,).

    part: (J,) row of its partition in the layout.
    """
    alone, area = [layout.mask(partition.nodes) for partition in layout.partitions], part.copy()
    sets = _partition_sets(asked, layout)
    several = (code for code, text in enumerate(asked.names) if "," in text)
    for row, code in enumerate(several, start=len(alone)):
        area[asked.codes == code] = row
    return np.array([np.any([alone[row] for row in each], axis=0) for each in sets]), area


def _by_partition(
    usable: Bools, pool: Int64s, area: Int64s, sets: list[list[int]], members: Bools
) -> tuple[Bools, Int64s, Int64s]:
    """usable with a row more for each pool and each of its partitions, if it has several; choices and choice_part of
    JobDemands. pool, area: (J,). sets: of _partition_sets."""
    pools, first = np.unique(pool, return_index=True)
    parts = {of: sets[row] for of, row in zip(pools.tolist(), area[first].tolist(), strict=True)}
    most, made = max((len(each) for each in parts.values()), default=1), list(usable)
    choices, choice_part = (np.full((len(usable), most), -1, np.int64) for _ in range(2))
    for of, each in parts.items():
        choice_part[of, : len(each)] = each
        if len(each) == 1:
            choices[of, 0] = of
            continue
        choices[of, : len(each)] = range(len(made), len(made) + len(each))
        made += [usable[of] & members[part] for part in each]
    return np.array(made).reshape(len(made), members.shape[1]), choices, choice_part


def _kinds(
    requests: SubmittedRequests, layout: ClusterLayout, area: Int64s, members: Bools
) -> tuple[list[Bools], Int64s]:
    """Which nodes serve each set of partition, GPU type and features that jobs ask for, (N,) each; row of each job's.
    (J,).

    How many GPUs of a type a node has is not looked at: it counts as having all of its own.
    """
    types, wanted = requests.gpu_type, requests.constraint
    asked = np.stack([area, types.codes, wanted.codes])
    places, kind = np.unique(asked, axis=1, return_inverse=True)
    masks = [
        members[row] & layout.with_type(types.names[text]) & layout.with_features(wanted.names[features])
        for row, text, features in places.T.tolist()
    ]
    return masks, kind.reshape(-1).astype(np.int64)


# Over 30 lines: each line needs the one before; parts would pass all arrays on.
def _node_shares(
    gpus: Int64s, requests: SubmittedRequests, layout: ClusterLayout, kinds: list[Bools], kind: Int64s, fewest: Floats
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
    asked = equal_parts(
        gpus, asked, kind, np.array(kinds).reshape(len(kinds), len(layout.nodes)), layout.column("gpus")
    )
    part = np.minimum(gpus, _parts_of(gpus, asked, size))
    nodes = np.where(part * (nodes - 1) > gpus, -(-gpus // np.maximum(part, 1)), nodes)
    rest = (gpus - part * (nodes - 1)).astype(np.int64)
    memory = np.ceil(requests.memory_mib / nodes)

    cpus_asked = -(-requests.cpus // nodes)
    alone, whole_cpus = _exclusive_jobs(requests, layout, kinds, kind, part, cpus_asked)

    def share(of_gpus: Int64s) -> Int64s:
        cpus = np.where(requests.cpus > 0, cpus_asked, of_gpus * cpus_per_gpu)
        return np.column_stack([of_gpus, np.where(alone, whole_cpus, cpus), memory]).astype(np.int64)

    return nodes.astype(np.int64), share(part), share(rest)


def _with_caps(need: Int64s, layout: ClusterLayout, part: Int64s) -> Int64s:
    """GPUs, CPUs and MiB (J, 3), and what of each partition's MaxCPUsPerNode a job takes: all there is of it where it
    asks for more. (J, R)."""
    most = [(row, layout.partitions[row].max_cpus_per_node) for row in layout.capped]
    return np.column_stack([need, *(np.where(part == row, np.minimum(need[:, 1], cap), 0) for row, cap in most)])


def _exclusive_jobs(
    requests: SubmittedRequests, layout: ClusterLayout, kinds: list[Bools], kind: Int64s, gpus: Int64s, asked: Int64s
) -> tuple[Bools, Int64s]:
    """Which jobs have their nodes to themselves, and the CPUs of the smallest node that holds them. If none does, those
    that they ask for. (J,), (J,).

    kinds, kind: of _kinds. gpus, asked: (J,) GPUs and CPUs of each node, 0 CPUs = any.
    """
    rows = layout.partition_rows(requests.partition)
    alone = requests.exclusive | np.array([each.exclusive for each in layout.partitions], np.bool_)[rows]
    cpus, have, found = layout.column("cpus"), layout.column("gpus"), asked.astype(np.int64)
    shapes, shape = np.unique(np.stack([kind, gpus, asked])[:, alone], axis=1, return_inverse=True)
    whole = list[int]()
    for wanted, least, least_cpus in shapes.astype(np.int64).T.tolist():
        holds = kinds[wanted] & (have >= least) & (cpus >= least_cpus)
        whole.append(int(cpus[holds].min()) if holds.any() else least_cpus)
    found[alone] = np.array(whole, np.int64)[shape.reshape(-1)]
    return alone, found


def _parts_of(gpus: Int64s, nodes: Int64s, size: Int64s) -> Int64s:
    """part_of, for each job. (J,)."""
    kinds, place = np.unique(np.stack([gpus, nodes, size]), axis=1, return_inverse=True)
    parts = [part_of(*kind) for kind in kinds.T.tolist()]
    return np.array(parts, np.int64)[place.reshape(-1)]


def _qos_priority(requests: SubmittedRequests, layout: ClusterLayout) -> Floats:
    """Priority of each job's QOS, 0 of one that is not known. (J,)."""
    ranks = {limits.name: limits.priority for limits in layout.qos}
    return requests.qos.map(lambda name: ranks.get(name, 0), np.float64)


def _factors(
    gpus: Int64s,
    requests: SubmittedRequests,
    layout: ClusterLayout,
    model: SlurmctldSettings,
    part: Int64s,
    nodes: Int64s,
) -> Floats:
    """Job size, partition, QOS and TRES factors of priority/multifactor, weighted. (J,)."""
    total = {name: max(float(layout.column(name).sum()), 1.0) for name in ("gpus", "cpus", "memory_mib")}
    size = (nodes / max(len(layout.nodes), 1) + requests.cpus / total["cpus"]) / 2
    tiers = np.array([partition.factor for partition in layout.partitions], np.float64)
    qos, most = _qos_priority(requests, layout), max((limits.priority for limits in layout.qos), default=1)
    tres = np.stack([gpus / total["gpus"], requests.cpus / total["cpus"], requests.memory_mib / total["memory_mib"]])
    points: Floats = model.weight_job_size * (1 - size if model.favor_small else size)
    points = points + model.weight_partition * tiers[part] / max(tiers.max(initial=0), 1)
    points = points + model.weight_qos * qos / max(most, 1)
    return points + np.array(model.weight_tres) @ tres


# Dependencies between jobs of a trace.

KINDS = ("after", "afterany", "afterok", "afternotok")
SINGLETON = "singleton"
_JOB = re.compile(r"\d{1,18}", re.ASCII)


def recorded_dependencies(trace: Trace) -> Labels:
    """What each job of a history waits for, of the jobs that are in the trace; "" where that is not known.

    A job that started had what it waited for, however that ended: afterok and afternotok count as afterany. One that
    started before that end, by the record, no longer depended on it. Forms that name tasks, times or alternatives are
    left out, and so are jobs that are not in the trace: sacct's Eligible tells of those.
    """
    if not trace.dependency.any_text:
        return trace.dependency
    last_s, made = _last_s(trace, trace.start_s + trace.duration_s), [""] * len(trace)
    for row in np.flatnonzero(~trace.dependency.isin([""])).tolist():
        own, at_s = {int(trace.job_id[row]), int(trace.array_id[row])}, float(trace.start_s[row])
        made[row] = ",".join(_satisfied_parts(trace.dependency[row], own, last_s, at_s))
    return Labels.of(made)


def _last_s(trace: Trace, each_s: Floats) -> dict[int, float]:
    """The last of the times of the rows of each job id or array, 0 where none is known. each_s: (J,)."""
    last_s = dict[int, float]()
    for job, array, at_s in zip(trace.job_id.tolist(), trace.array_id.tolist(), each_s.tolist(), strict=True):
        for key in {job, array} - {0}:
            last_s[key] = max(last_s.get(key, 0.0), np.nan_to_num(at_s))
    return last_s


def _satisfied_s(trace: Trace, dependency: Labels) -> Floats:
    """When the record had all that each job waits for; -infinity of a job that waits for none, infinity where it waits
    for namesakes. (J,). dependency: as recorded_dependencies gives it."""
    made = np.full(len(trace), -INF)
    if not dependency.any_text:
        return made
    begun_s, ended_s = _last_s(trace, trace.start_s), _last_s(trace, trace.start_s + trace.duration_s)
    for row in np.flatnonzero(~dependency.isin([""])).tolist():
        for part in dependency[row].split(","):
            kind, _, job = part.partition(":")
            at_s = INF if kind == SINGLETON else (begun_s if kind == "after" else ended_s)[int(job)]
            made[row] = max(made[row], at_s)
    return made


def _satisfied_parts(text: str, own: set[int], last_s: dict[int, float], start_s: float) -> list[str]:
    """The parts of a dependency that were satisfied at start_s, of jobs of last_s, the end of each; [] of a text that
    is not read. own: ids of the job itself."""
    found = list[str]()
    for part in text.split(","):
        kind, *targets = part.split(":")
        if part == SINGLETON:
            found.append(part)
            continue
        if kind not in KINDS or not all(map(_JOB.fullmatch, targets)):
            return []
        kind = kind if kind == "after" else "afterany"
        known = [job for job in map(int, targets) if job in last_s and job not in own]
        ended = [job for job in known if kind == "after" or not last_s[job] > start_s + FIRST_LOOK_S]
        found += [f"{kind}:{job}" for job in ended]
    return found


class Dependencies:
    """What is still open. Rows are those of the trace; a dependency on an array is one on each of its tasks.

    open: (J,) int64, jobs that each row waits for. Raises InputError for a text that is not Slurm's, or that uses "?",
    or names a job that is not in the trace.
    """

    def __init__(self, trace: Trace, requests: SubmittedRequests) -> None:
        self.open = np.zeros(len(trace), np.int64)
        self._waiting: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._rows: dict[int, list[int]] = defaultdict(list)
        if not requests.dependency.isin([""]).all():
            self._link(trace, requests)

    def ended(self, row: int, ok: bool) -> tuple[list[int], list[int]]:
        """The row ended, with or without success. Returns rows now free, and rows that can never start any more."""
        return self._settle(row, {"afterok": ok, "afternotok": not ok, "after": None})

    def started(self, row: int) -> list[int]:
        """The row started; returns rows now free."""
        return self._settle(row, {"after": True}, only="after")[0]

    def _settle(self, row: int, verdict: dict[str, bool | None], only: str = "") -> tuple[list[int], list[int]]:
        free, dead, kept = [], [], []
        for waiter, kind in self._waiting.pop(row, ()):
            if only and kind != only:
                kept.append((waiter, kind))
            elif verdict.get(kind, True) is False:
                dead.append(waiter)
            else:
                self.open[waiter] -= 1
                free += [waiter] if self.open[waiter] == 0 else []
        if kept:
            self._waiting[row] = kept
        return free, dead

    def _link(self, trace: Trace, requests: SubmittedRequests) -> None:
        for row, (job, array) in enumerate(zip(trace.job_id.tolist(), requests.array_id.tolist(), strict=True)):
            for key in {job, array} - {0}:
                self._rows[key].append(row)
        earlier: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row, text in enumerate(requests.dependency):
            namesakes = earlier[requests.user[row], requests.name[row]]
            for kind, target in self._parsed(text, int(trace.job_id[row]), namesakes):
                self._waiting[target].append((row, kind))
                self.open[row] += 1
            namesakes.append(row)

    def _parsed(self, text: str, job_id: int, namesakes: Sequence[int]) -> Iterator[tuple[str, int]]:
        for part in filter(None, text.split(",")):
            kind, *targets = part.split(":")
            if kind == SINGLETON:
                yield from ((SINGLETON, row) for row in namesakes)
            elif kind in KINDS and targets and all(map(_JOB.fullmatch, targets)):
                for target in targets:
                    if int(target) not in self._rows:
                        raise InputError(f"job {job_id} depends on job {target}, which is not in the trace")
                    yield from ((kind, row) for row in self._rows[int(target)])
            else:
                known = ", ".join((*KINDS, SINGLETON))
                raise InputError(f"job {job_id} has the dependency {part!r}; replayed are {known} with job ids")
