"""Opens the live cluster of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from slurmsched import registry
from slurmsched.config import Config
from slurmsched.db.operation_log import HOUR_S, OperationLog
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import PolicyInput, Snapshot
from slurmsched.model.policy_info import policy_info
from slurmsched.slurm.accounting import earlier_runs
from slurmsched.slurm.cluster_state import SprioUse
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_records import ExclusiveJobs, SpreadRequests
from slurmsched.slurm.job_reports import ReportReader, ask_size, forget_job_requests, with_asked_sizes
from slurmsched.slurm.live_cluster import LiveCluster, OperationInputs, SendCheck
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.recorder import OperationRecorder, Recorder
from slurmsched.slurm.scontrol_tables import read_reservations
from slurmsched.slurm.site import installation_tag, read_load
from slurmsched.slurm.topology_sources import SnapshotTopology
from slurmsched.slurm.writer import CommandWriter, WritePacer

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import LeaderFiles


def open_live(
    config: Config, *, apply: bool, heed_stop: bool = True, indices: bool = False, lead: LeaderFiles | None = None
) -> LiveCluster:
    """The Slurm of the configuration. Its first read has been started.

    apply: whether it may be written to. The lock must be held then.
    heed_stop: False for `undo`. It then works in spite of a stop file, of records that cannot be read or written, or of
        a policy or topology that fails.
    indices: see open_reader. They are read in any case if jobs are placed by them.
    lead: the leader lease, if several hosts may write.
    Raises SlurmUnreachableError if Slurm's commands are not found.
    """
    commands = open_commands(config.slurm)
    sprio: SprioUse = "changed" if config.lever.kind == "nice" else "always"  # a site factor may not show in squeue
    reader = open_reader(config.slurm, indices=indices or config.placement.pin != "off", sprio=sprio)
    reader.begin()
    folder = Path(config.job_reports.folder) if config.job_reports.folder else None
    return LiveCluster(
        reader,
        CommandWriter(commands, partial(ask_size, folder)),
        _recorder(config, lead, lenient=not heed_stop),
        WritePacer(config.pace, partial(read_load, commands)),
        apply=apply,
        recheck=Recheck(commands),
        inputs=_operation_inputs(config, commands, restoring=not heed_stop),
        guard=SendCheck(config.cycle.stop_file if heed_stop else None, lead.lease if lead else None),
        earlier_runs=partial(earlier_runs, commands),
        wiring=_tables(config, commands) if heed_stop else _asked(folder),
        forget=partial(forget_job_requests, folder),
    )


def _recorder(config: Config, lead: LeaderFiles | None, *, lenient: bool) -> Recorder:
    """The logs of overrides and operations beside the journal, and those shared by all hosts under a lease."""
    keep_s = max(HOUR_S, config.operations.lease_s)
    overrides = OverrideLog(config.ledger.journal, shared=lead.journal if lead else None, lenient=lenient)
    operations = OperationLog(
        config.ledger.journal, keep_s=keep_s, shared=lead.operations if lead else None, lenient=lenient
    )
    return Recorder(overrides, OperationRecorder(operations))


def _operation_inputs(config: Config, commands: Commands, *, restoring: bool) -> OperationInputs:
    """What operations need from Slurm; reservations only if the configuration has operations, or for `undo`."""
    return OperationInputs(
        partial(read_reservations, commands),
        wanted=config.preemption.enabled or config.gangs.reserve or restoring,
        always=config.placement.places,
        tag=installation_tag(config),
        exclusive=ExclusiveJobs(commands),
        spreads=SpreadRequests(commands),
    )


def _asked(folder: Path | None) -> Callable[[Snapshot], Snapshot]:
    """Adds the sizes that are asked of jobs, for `undo`."""
    return partial(with_asked_sizes, folder) if folder else lambda snapshot: snapshot


def _asks_for_nodes(config: Config) -> bool:
    """Whether a cycle asks which nodes a job may have."""
    return config.preemption.enabled or config.gangs.reserve or config.placement.places or config.lever.size


def _tables(config: Config, commands: Commands) -> Callable[[Snapshot], Snapshot]:
    """Adds the topology to snapshots and, if needed, the shares of accounts and what Slurm selects GPUs by."""
    wiring = SnapshotTopology(config.topology, commands)
    wiring.begin()
    makers: list[Callable[[Snapshot], Snapshot]] = [wiring]
    about = policy_info(registry.load_plugin("policies", config.policy.name))
    if about is not None and PolicyInput.SHARES in about.needed(config.policy.parameters):
        from slurmsched.slurm.accounting import AccountShares

        makers.append(AccountShares(commands))
    if config.job_reports.folder:
        makers.append(ReportReader(Path(config.job_reports.folder)))
    if _asks_for_nodes(config):
        from slurmsched.slurm.site_priorities import LiftedLimits

        makers.append(LiftedLimits(commands))
    if config.policy.tiers:
        from slurmsched.slurm.site_priorities import SitePriorities
        from slurmsched.tier_spec import read_tiers

        makers.append(SitePriorities(commands, read_tiers(config.policy.tiers)))
    if config.placement.pin != "off":
        from slurmsched.slurm.cons_tres import SelectionReader

        makers.append(SelectionReader(config.topology, commands, retype=config.placement.retype))
    elif config.placement.types:
        from slurmsched.slurm.cons_tres import MixedGangRequests

        makers.append(MixedGangRequests(commands))
    return lambda snapshot: reduce(lambda made, maker: maker(made), makers, snapshot)
