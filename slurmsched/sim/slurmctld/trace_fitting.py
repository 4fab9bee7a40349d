"""Fits a history to the cluster that the slurmctld model replays it on: what the cluster does not have is left out."""

from __future__ import annotations

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.slurm_text import license_counts
from slurmsched.model.trace import Trace
from slurmsched.plain_text import pluralize
from slurmsched.sim.cluster_description import ClusterDescription
from slurmsched.sim.cluster_layout import DEFAULT_PARTITION, ClusterLayout

NAMES_SHOWN = 3


def fitted_trace(trace: Trace, described: ClusterDescription) -> tuple[Trace, tuple[str, ...]]:
    """The jobs that the cluster may hold, and what was left out, in words.

    Left out are jobs that do not count and that have no partition here or, where the CPUs are not known, no GPUs; and
    constraints that no node of the cluster satisfies.
    """
    trace, dropped = _without_strangers(trace, described)
    trace, ignored = _without_unknown_features(trace, described.layout)
    return trace, (*dropped, *ignored, *_strange_licenses(trace, described.layout), *_spread(trace, described.layout))


def _strange_licenses(trace: Trace, layout: ClusterLayout) -> list[str]:
    """What to tell of licences that the cluster lacks."""
    missing = {text: sorted(license_counts(text).keys() - layout.licenses.keys()) for text in trace.licenses.names}
    jobs = int(trace.licenses.isin([text for text, names in missing.items() if names]).sum())
    shown = ", ".join(list(dict.fromkeys(name for names in missing.values() for name in names))[:NAMES_SHOWN])
    return [
        f"the cluster has no licences {shown}: those of {pluralize(jobs, 'job')} do not count; they may start too early"
    ] if jobs else []  # fmt: skip


def _spread(trace: Trace, layout: ClusterLayout) -> list[str]:
    """What to tell of jobs of several nodes that asked for several partitions of the cluster."""
    known = {partition.name for partition in layout.partitions}
    names = [text for text in trace.partitions.names if len(known & set(text.split(","))) > 1]
    jobs = int((trace.partitions.isin(names) & (trace.nodes > 1)).sum())
    return [
        f"{pluralize(jobs, 'job')} of several nodes asked for several partitions: in the model their nodes may be of "
        "more than one, and they wait too short"
    ] if jobs else []  # fmt: skip


def _without_strangers(trace: Trace, described: ClusterDescription) -> tuple[Trace, list[str]]:
    warnings = list[str]()
    strange = ~trace.counted & (trace.gpus == 0) & (not described.cpus_known)
    if strange.any():
        jobs = pluralize(int(strange.sum()), "job")
        warnings.append(f"the cluster has no CPUs given: {jobs} without GPUs left out")
    missing = _missing_partitions(trace, described.layout)
    elsewhere = ~trace.counted & ~strange & trace.partition.isin(missing)
    if elsewhere.any():
        shown = ", ".join(missing[:NAMES_SHOWN])
        jobs = pluralize(int(elsewhere.sum()), "job that does not count", "jobs that do not count")
        lacking = f"no partition {shown} in this cluster: {jobs} left out"
        warnings.append(f"{lacking}; --map {missing[0]}=NAME renames it")
    dropped = strange | elsewhere
    return (trace.take(~dropped) if dropped.any() else trace), warnings


def _missing_partitions(trace: Trace, layout: ClusterLayout) -> list[str]:
    """Partitions of jobs that do not count which the cluster lacks; none where it has no partitions of its own."""
    known = {partition.name for partition in layout.partitions} | {""}
    if layout.partitions[0].name == DEFAULT_PARTITION and len(layout.partitions) == 1:
        return []
    names = trace.partition.take(~trace.counted).names
    return [name for name in names if name.partition(",")[0] not in known]


def _without_unknown_features(trace: Trace, layout: ClusterLayout) -> tuple[Trace, list[str]]:
    rows = _unsatisfied(trace, layout)
    if not rows.any():
        return trace, []
    kept = Labels.of(["" if gone else text for text, gone in zip(trace.constraint, rows.tolist(), strict=True)])
    shown = ", ".join(trace.constraint.take(rows).names[:NAMES_SHOWN])
    warning = (f"no node here has the features {shown}: the constraints of {pluralize(int(rows.sum()), 'job')} do not "
               "count; they may start on other nodes, too early")  # fmt: skip
    return trace.with_columns(constraint=kept), [warning]


def _unsatisfied(trace: Trace, layout: ClusterLayout) -> Bools:
    """Jobs whose constraint no node of their partition satisfies. (J,)."""
    wanted, parts = trace.constraint, trace.partition
    if not wanted.any_text:
        return np.zeros(len(trace), np.bool_)
    masks = {partition.name: layout.mask(partition.nodes) for partition in layout.partitions}
    pairs, place = np.unique(np.stack([wanted.codes, parts.codes]), axis=1, return_inverse=True)
    unmet = [not _satisfied(layout, wanted.names[text], masks.get(parts.names[part].partition(",")[0]))
             for text, part in pairs.T.tolist()]  # fmt: skip
    return np.array(unmet, np.bool_)[place.reshape(-1)]


def _satisfied(layout: ClusterLayout, text: str, members: Bools | None) -> bool:
    """Whether a node has the features. members: the nodes that count, None = all."""
    try:
        found = layout.with_features(text)
    except InputError:
        return False
    return bool((found if members is None else found & members).any())
