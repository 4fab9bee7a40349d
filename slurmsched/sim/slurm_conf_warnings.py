"""What of a site's slurm.conf and of its limits the slurmctld model leaves out, and what that does to its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from slurmsched.plain_text import pluralize


class UnmodelledSetting(NamedTuple):
    """A setting that the model does not obey.

    key: of slurm.conf, in lower case.
    given: whether a value of it matters.
    effect: on the answer, as text.
    """

    key: str
    given: Callable[[str], bool]
    effect: str


def _any(*words: str) -> Callable[[str], bool]:
    """Whether one of the words is in a comma list; those of SchedulerParameters may have a value."""
    wanted = {word.lower() for word in words}
    return lambda text: bool(wanted & {part.partition("=")[0].strip().lower() for part in text.split(",")})


def _differs(*values: str) -> Callable[[str], bool]:
    """Whether the value is another one than these."""
    return lambda text: text.strip().lower() not in ("", *values)


def _number_above(least: float) -> Callable[[str], bool]:
    return lambda text: any(float(part) > least for part in re.findall(r"\d+(?:\.\d+)?", text))


# The first column is also the first column of the table of docs/fidelity.md.
OF_CLUSTER: tuple[UnmodelledSetting, ...] = (
    UnmodelledSetting("preemptmode", _any("suspend", "gang", "priority", "within"),
                      "jobs that may preempt wait too long, jobs that may be preempted too short"),
    UnmodelledSetting("topologyplugin", _any("topology/block"),
                      "jobs of several nodes may be spread over more blocks: they wait too short"),
    UnmodelledSetting("topologyplugin", _differs("topology/flat", "topology/default", "topology/none",
                                                 "topology/block"),
                      "jobs of several nodes get other nodes, so that single starts differ; those with --switches "
                      "wait too short"),
    UnmodelledSetting("suspendprogram", _differs("(null)", "none"), "nodes need no time to boot: waits are too short"),
    UnmodelledSetting("prioritysitefactorplugin", _differs("(null)", "none"),
                      "the order of jobs lacks the site factor"),
    UnmodelledSetting("priorityweightassoc", _number_above(0), "the order of jobs lacks the association's priority"),
    UnmodelledSetting("priorityflags", _any("DEPTH_OBLIVIOUS", "SMALL_RELATIVE_TO_TIME", "NO_NORMAL_ALL",
                                            "NO_NORMAL_ASSOC",
                                            "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES", "INCR_ONLY"),
                      "the order of jobs may differ"),
    UnmodelledSetting("schedulerparameters", _any("bf_licenses"),
                      "backfill keeps no licences for a job that waits for some: it may wait too long"),
    UnmodelledSetting("schedulerparameters", _any("bf_running_job_reserve", "bf_busy_nodes", "bf_window_linear",
                                                  "bf_job_part_count_reserve", "bf_max_job_assoc", "bf_topopt_enable"),
                      "backfill plans otherwise: single starts differ"),
    UnmodelledSetting("schedulerparameters", _any("bf_max_time", "bf_yield_interval", "max_rpc_cnt", "max_sched_time"),
                      "a pass takes no time in the model: on a busy slurmctld waits are too short"),
    UnmodelledSetting("schedulerparameters", _any("partition_job_depth", "assoc_limit_stop", "sched_max_job_start",
                                                  "delay_boot", "preempt_youngest_first"),
                      "the main scheduler looks at other jobs"),
)  # fmt: skip
OF_PARTITION: tuple[UnmodelledSetting, ...] = (
    UnmodelledSetting("state", _differs("up"), "its jobs start as if it were up"),
    UnmodelledSetting("oversubscribe", lambda text: text.lower().startswith(("force", "yes")),
                      "jobs share no CPUs in the model: they wait too long"),
    UnmodelledSetting("maxcpuspersocket", _differs("unlimited", "infinite"),
                      "its jobs may take more CPUs of a node: jobs of other partitions there wait too long"),
    UnmodelledSetting("maxmempernode", _differs("unlimited", "infinite", "0"),
                      "its jobs may take more memory of a node: jobs of other partitions there wait too long"),
    UnmodelledSetting("exclusiveuser", _differs("no"), "users share nodes in the model: waits are too short"),
    UnmodelledSetting("exclusivetopo", _differs("no"), "jobs share blocks in the model: waits are too short"),
)  # fmt: skip
# Columns of qos.txt, and those of assoc.txt, whose limits do not count.
LIMIT_COLUMNS = (
    "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MaxTRESPerNode", "MaxSubmitPA", "MinTRES",
    "GrpJobsAccrue", "MaxJobsAccruePU", "MaxJobsAccruePA", "MinPrioThres", "LimitFactor",
)  # fmt: skip
_OTHER_TRES = re.compile(r"^(?!gres/gpu|billing)[a-z/:_]+=", re.IGNORECASE)


def cluster_warnings(source: str, settings: Mapping[str, str]) -> Iterator[str]:
    """A text for each setting of the whole cluster that is not modelled. settings: by key in lower case."""
    for each in OF_CLUSTER:
        text = settings.get(each.key, "")
        if text and each.given(text):
            parts = ",".join(part for part in text.split(",") if each.given(part))
            yield f"{source}: {_manual_key(each.key)}={parts or text} is not modelled: {each.effect}"


def partition_warnings(source: str, partitions: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """A text for each setting of partitions that is not modelled, once for all of them. partitions: name, values."""
    for each in OF_PARTITION:
        names = [name for name, values in partitions if values.get(each.key) and each.given(values[each.key])]
        if names:
            of = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
            yield f"{source}: {_manual_key(each.key)} of {_partitions(len(names))} {of} is not modelled: {each.effect}"


def _partitions(count: int) -> str:
    return "partition" if count == 1 else "partitions"


def limit_warnings(source: str, rows: Sequence[Mapping[str, str | None]], tres_columns: Sequence[str]) -> Iterator[str]:
    """A text for the limits of a table of sacctmgr that do not count. rows: by heading."""
    for column in LIMIT_COLUMNS:
        given = [row for row in rows if (row.get(column) or "").strip() not in ("", "0", "0.000000", "-1.000000")]
        if given:
            yield f"{source}: {column} in {pluralize(len(given), 'row')} is not modelled: jobs under it wait too short"
    parts = [part for row in rows for column in tres_columns for part in (row.get(column) or "").split(",")]
    if others := [part for part in parts if _OTHER_TRES.match(part)]:
        of = f"{pluralize(len(others), 'limit')} on CPUs, memory, nodes or others left out, {others[0]} first"
        yield f"{source}: {of}: jobs under it wait too short"


_SHOWN = {
    "preemptmode": "PreemptMode",
    "topologyplugin": "TopologyPlugin", "suspendprogram": "SuspendProgram", "priorityflags": "PriorityFlags",
    "prioritysitefactorplugin": "PrioritySiteFactorPlugin", "priorityweightassoc": "PriorityWeightAssoc",
    "schedulerparameters": "SchedulerParameters", "state": "State", "oversubscribe": "OverSubscribe",
    "maxcpuspersocket": "MaxCPUsPerSocket", "maxmempernode": "MaxMemPerNode",
    "exclusiveuser": "ExclusiveUser", "exclusivetopo": "ExclusiveTopo",
}  # fmt: skip


def _manual_key(key: str) -> str:
    """The key as the manual has it."""
    return _SHOWN[key]
