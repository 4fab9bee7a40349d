"""Jobs that a cluster can never start, in words: which, why, and what to do."""

from __future__ import annotations

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Int64s
from slurmsched.words import some

NAMED = 5


def too_large(ids: Int64s, gpus: Int64s, have: int, kind: str = "") -> InputError:
    """Jobs that ask for more GPUs than there are, the largest first. ids, gpus: (J,), J >= 1. have: GPUs of the nodes
    that may serve them. kind: the GPU type that they ask for."""
    order = np.lexsort((ids, -gpus))
    most, others = int(gpus[order[0]]), ids[order[1:]].tolist()
    of = f" of type {kind}" if kind else ""
    named = ", ".join(map(str, others[:NAMED])) + (", ..." if len(others) > NAMED else "")
    also = f", too few for {some(len(others), 'other job')} as well ({named})" if others else ""
    return InputError(
        f"job {ids[order[0]]} asks for {some(most, 'GPU')}{of}, and the nodes that it may have hold {have:,}{also}; "
        f"give a larger --cluster, with at least {some(most, 'GPU')}{of}, or leave {'them' if others else 'it'} out"
    )


def unparted(job_id: int, gpus: int, capacity: Int64s) -> InputError:
    """A gang for which there are GPUs enough, but not on nodes such as it needs. capacity: (N,) GPUs of each node."""
    sizes, counts = np.unique(capacity, return_counts=True)
    nodes = "+".join(f"{count}x{size}" for size, count in zip(sizes.tolist(), counts.tolist(), strict=True))
    return InputError(
        f"job {job_id} asks for {some(gpus, 'GPU')}: whole nodes of the largest size and one for the rest, which "
        f"nodes of {nodes} GPUs never give; give a larger --cluster, or leave it out"
    )


def misfit(job_id: int, gpus: int, nodes: int, need: Int64s, kind: str = "") -> InputError:
    """A job for which there are GPUs enough, but never so that its nodes hold all it asks for.

    need: (3,) GPUs, CPUs and MiB of each node.
    """
    of = f" of type {kind}" if kind else ""
    each = f"{some(int(need[0]), 'GPU')}, {some(int(need[1]), 'CPU')}" + (f", {need[2]:,} MiB" if need[2] else "")
    return InputError(
        f"job {job_id} asks for {some(gpus, 'GPU')}{of} on {some(nodes, 'node')} with {each} each, which no nodes that "
        "it may have ever hold; give a larger --cluster, or the job fewer nodes, CPUs or memory"
    )
