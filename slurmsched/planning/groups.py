"""Jobs that never compete need no order among each other, hence no writes for it."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Int64s


def competing(snapshot: Snapshot) -> Int64s:
    """A number for each job, equal for jobs whose partitions share nodes, directly or through others. (N,) int64."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for listed in (*snapshot.nodes.partitions.names, *snapshot.jobs.partition.names):
        first, *others = listed.split(",")
        for other in others:
            root[find(other)] = find(first)
    numbers: dict[str, int] = {}
    return snapshot.jobs.partition.map(
        lambda listed: numbers.setdefault(find(listed.split(",")[0]), len(numbers)), np.int64
    )
