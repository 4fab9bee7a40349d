"""What is free on each node, for whom."""

from __future__ import annotations

from functools import lru_cache
from math import inf

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.model.hostlist import expand
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.resources.eligibility import shares_cpus
from slurmsched.resources.job_request import JobRequest


def partition_cpus(snapshot: Snapshot, request: JobRequest) -> Floats:
    """CPUs of each node that its partitions still give to their jobs (MaxCPUsPerNode), infinity = as many as are free.

    Of several partitions the one that gives most. (N,).
    """
    table, found = snapshot.partitions, np.full(len(snapshot.nodes), -inf)
    rows = {name: row for row, name in enumerate(table.name)}
    for name in request.partitions:
        limit = float(table.max_cpus_per_node[rows[name]]) if name in rows else inf
        found = np.maximum(found, inf if limit == inf else limit - _cpus_of(snapshot, name))
    return found


def partition_memory_mib(snapshot: Snapshot, request: JobRequest) -> Floats:
    """Memory of each node that a partition gives one job at most (MaxMemPerNode) [MiB]. (N,)."""
    table = snapshot.partitions
    limits = table.max_memory_mib[table.name.isin(request.partitions)]
    return np.full(len(snapshot.nodes), limits.max() if len(limits) else inf)


def shares(snapshot: Snapshot, request: JobRequest) -> bool:
    """Whether it shares CPUs with others whatever they do (OverSubscribe=FORCE), so that none need be free."""
    table = snapshot.partitions
    return any(shares_cpus(table, row) for row in np.flatnonzero(table.name.isin(request.partitions)).tolist())


@lru_cache(maxsize=1 << 4)
def _cpus_of(snapshot: Snapshot, partition: str) -> Floats:
    """CPUs that jobs of a partition hold on each node, as spread evenly over theirs. (N,)."""
    jobs, found = snapshot.jobs, np.zeros(len(snapshot.nodes))
    at = {name: row for row, name in enumerate(snapshot.nodes.name)}
    runs = jobs.is_state(JobState.RUNNING | JobState.COMPLETING) & jobs.partition.isin([partition])
    for row in np.flatnonzero(runs).tolist():
        try:
            held = [at[name] for name in expand(jobs.node_list[row]) if name in at]
        except ValueError:
            continue
        found[held] += float(jobs.cpus[row]) / max(len(held), 1)
    return found
