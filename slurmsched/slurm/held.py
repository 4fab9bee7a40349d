"""What runs hold by what squeue tells: counts of GPUs, without their indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.gres import Gres, normal_form, parse_gres
from slurmsched.slurm.job_table import Parts, expand_hosts
from slurmsched.slurm.requests import KINDS


def told(columns: Mapping[str, Any], tres: Labels, holds: Bools) -> dict[int, Parts]:
    """By job the hostlists it holds and the gres text of each of these nodes, for the rows of `holds`.

    tres: (N,) AllocTRES of each row, its GPUs and shards only. A job on several nodes is taken to hold as many GPUs on
    each; where they do not divide the first nodes have one more. A text outside the grammar is passed on as it is.
    """
    return {
        int(columns["job_id"][row]): _parts(columns["node_list"][row], tres[row], columns["gpu_request"][row])
        for row in np.flatnonzero(holds).tolist()
    }


@lru_cache(maxsize=1 << 14)
def _parts(hosts: str, tres: str, request: str) -> Parts:
    try:
        entries = _held(parse_gres(tres), parse_gres(request))
        nodes = expand_hosts(hosts)
    except UnreadableError:
        return ((hosts, tres),)
    if len(nodes) == 1:
        return ((hosts, normal_form(entries)),)
    return tuple((node, normal_form(_share(entries, len(nodes), at))) for at, node in enumerate(nodes))


def _held(tres: tuple[Gres, ...], request: tuple[Gres, ...]) -> tuple[Gres, ...]:
    """AllocTRES is what is held, but it may not name GPUs or their types (AccountingStorageTRES); the request may."""
    if not tres or (not any(entry.type for entry in tres) and _counts(tres) == _counts(request)):
        return request
    return tres


def _counts(entries: Iterable[Gres]) -> dict[str, int]:
    return {kind: sum(entry.count for entry in entries if entry.kind == kind) for kind in KINDS}


def _share(entries: Iterable[Gres], nodes: int, at: int) -> list[Gres]:
    """What the node of this place has of the entries."""
    shares = ((entry, divmod(entry.count, nodes)) for entry in entries)
    return [Gres(entry.kind, entry.type, each + (at < more)) for entry, (each, more) in shares]
