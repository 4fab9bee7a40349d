"""The parts of a live cycle. They are opened in the order that starts fastest, and closed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurmsched.config import Config
from slurmsched.protocols import DecidingPlanner, Store
from slurmsched.registry import learns

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import LeaderFiles
    from slurmsched.model import Plan, Snapshot
    from slurmsched.slurm.open_cluster import LiveCluster


@dataclass(frozen=True, slots=True)
class CycleParts:
    """The arguments of run_cycle, and the leader lease if several hosts may write."""

    cluster: LiveCluster
    planner: DecidingPlanner
    store: Store
    lead: LeaderFiles | None = None

    def read(self) -> Snapshot:
        """The cluster now, with what the ledger remembers of its jobs. Nothing is written."""
        return self.store.recall(self.cluster.read())

    def look(self) -> tuple[Snapshot, Plan]:
        """The cluster now, and what a cycle would change. Nothing is written or remembered."""
        snapshot = self.read()
        return snapshot, self.planner.plan(snapshot)

    def need_lease(self) -> None:
        """Check that this host may write. Raises NotLeadingError, which names the leader, and LedgerError."""
        if self.lead is not None and not self.lead.lease.take():
            raise self.lead.lease.lost()


# Over 30 lines: the parts in the order in which they open, a third of it its own arguments and their meaning.
@contextmanager
def open_cycle_parts(
    config: Config, *, apply: bool, read_only: bool = False, indices: bool = False
) -> Iterator[CycleParts]:
    """The parts for the body.

    apply: whether actions are sent.
    read_only: the ledger is not written, and need not exist.
    indices: whether Slurm is asked which GPUs each run holds. That takes requests for every run that this process has
        not seen yet. It is not worth it in a process that ends after one cycle.
    Raises ConfigError, SlurmError or LedgerError after closing all parts.
    """
    # First, since it starts Slurm's commands; they run while Python imports the rest.
    from slurmsched.slurm.open_cluster import open_live

    with ExitStack() as stack:
        lead = stack.enter_context(open_leadership(config))
        cluster = open_live(config, apply=apply, indices=indices, lead=lead)
        stack.callback(cluster.close)
        from slurmsched.db.ledger_store import open_store
        from slurmsched.planning import planner

        earlier_runs = cluster.earlier_runs if config.ledger.sacct else None
        store = open_store(config, earlier_runs, read_only=read_only, lead=lead)
        stack.callback(store.close)
        plans = planner.Planner.from_config(config)
        if config.past.days and config.ledger.sacct and learns(plans):
            from slurmsched.daemon.ended_jobs import open_past

            cluster.learn(open_past(config, keep=not read_only))
        if config.measured_use.every_s and config.measured_use.source != "none":
            cluster.learn(_use_reader(config))
        if config.lever.share and config.measured_use.profiles:
            from slurmsched.observe.gpu_profiles import MeasuredParts

            cluster.learn(MeasuredParts(Path(config.measured_use.profiles), config.lever))
        yield CycleParts(cluster, plans, store, lead)


def _use_reader(config: Config) -> Callable[[Snapshot], Snapshot]:
    """Adds the measured use of running jobs to snapshots."""
    from slurmsched.observe.gpu_use_sources import PeriodicUse
    from slurmsched.slurm.reader import open_commands

    return PeriodicUse.of(config.measured_use, open_commands(config.slurm))


@contextmanager
def open_leadership(config: Config) -> Iterator[LeaderFiles | None]:
    """The leader lease, not taken yet; it is given back after the body. None if there is only one host."""
    if not config.leader.enabled:
        yield None
        return
    from slurmsched.db.leader_lease import open_leader_files

    with closing(open_leader_files(config)) as lead:
        yield lead


def paused(config: Config) -> bool:
    """Whether the administrator's stop file exists."""
    return config.cycle.stop_file.exists()


def restoring_plan(config: Config, snapshot: Snapshot, lead: LeaderFiles | None = None) -> Plan:
    """The plan that restores every field on record and ends every operation. Raises LedgerError for a lost journal."""
    from slurmsched.db.override_log import OverrideLog
    from slurmsched.planning.levers import undo_plan

    log = OverrideLog(config.ledger.journal, shared=lead.journal if lead else None)
    return undo_plan(replace(snapshot, overrides=(*snapshot.overrides, *log.priorities(lenient=True))))


def record_ended_operations(config: Config, cluster: LiveCluster, lead: LeaderFiles | None) -> None:
    """Close the records of operations that Slurm no longer shows, such as a preemption that was cut off at its end."""
    plan = restoring_plan(config, cluster.read(), lead)
    over = tuple(operation for operation in plan.operations if operation.stage == "closed")
    if over:
        cluster.apply(replace(plan, actions=(), operations=over, overrides=()))
