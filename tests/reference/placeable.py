"""Naive twin of PlaceableGpus.of: sets of GPUs by node, job after job by id."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.gres import is_mig
from slurmsched.resources.allocated import holding


def placeable(snapshot: Snapshot, whole: list[int]) -> tuple[list[int], list[bool], dict[tuple[int, int], Any]]:
    """GPUs to place as masks, which nodes are blind, and mask, GPUs, CPUs and memory by job row and node row.

    whole: mask of all GPUs of each node.
    """
    nodes, jobs, held = snapshot.nodes, snapshot.jobs, snapshot.allocations
    row_of = {int(jobs.job_id[row]): row for row in np.flatnonzero(holding(jobs)).tolist()}
    columns = (column.tolist() for column in (held.job_id, held.gpus, held.gpu_mask))
    entries = [(row_of.get(job, -1), nodes.name.rows().get(name, -1), gpus, 0 if is_mig(kind) else gpus, mask)
               for job, gpus, mask, name, kind in zip(*columns, held.node, held.gpu_type, strict=True)]  # fmt: skip
    capacity, blind = [], []
    for n in range(len(nodes)):
        here = [entry for entry in entries if entry[1] == n]
        shown, used = 0, int(nodes.gpu_mask_used[n])
        for entry in here:
            shown |= entry[4]
        blind.append(used.bit_count() != nodes.gpus_used[n] or bool((used | shown) & ~whole[n])
                     or any(mask.bit_count() != gpus for _, _, gpus, _, mask in here))  # fmt: skip
        seen = sum(entry[3] for entry in here)
        count = seen if nodes.closed[n] else int(nodes.gpus[n]) - max(int(nodes.gpus_used[n]) - seen, 0)
        known = shown if nodes.closed[n] else whole[n] & ~(used & ~shown)
        capacity.append((1 << count) - 1 if blind[n] else known)
    found: dict[tuple[int, int], Any] = {}
    for row, n, gpus, _, mask in entries:
        if row >= 0 and n >= 0:
            before = found.get((row, n), (0, 0))
            found[row, n] = (before[0] | mask, before[1] + gpus)
    dealt: dict[int, int] = defaultdict(int)
    for row, n in sorted(found, key=lambda entry: (int(jobs.job_id[entry[0]]), entry[1])):
        mask, gpus = found[row, n]
        if blind[n]:
            mask = ((1 << gpus) - 1) << dealt[n]
            dealt[n] += gpus
        share = gpus / max(int(jobs.gpus[row]), 1)
        found[row, n] = (mask, gpus, jobs.cpus[row] * share, jobs.memory_mib[row] * share)
    return capacity, blind, dict(sorted(found.items()))
