"""The parts of a live cycle, opened in the order that starts soonest and closed together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmsched.config import Config
from slurmsched.protocols import Planner, Store
from slurmsched.registry import learns

if TYPE_CHECKING:
    from slurmsched.db.lead import Lead
    from slurmsched.model import Plan, Snapshot
    from slurmsched.slurm.open import LiveCluster


@dataclass(frozen=True, slots=True)
class Parts:
    """What run_cycle takes."""

    cluster: LiveCluster
    planner: Planner
    store: Store
    lead: Lead | None = None

    def look(self) -> tuple[Snapshot, Plan]:
        """The cluster now, and what a cycle would change. Nothing is written, nothing remembered."""
        snapshot = self.store.recall(self.cluster.read())
        return snapshot, self.planner.plan(snapshot)

    def need_lease(self) -> None:
        """See that we may write and remember. Raises NotLeadingError, naming who may; LedgerError."""
        if self.lead is not None and not self.lead.lease.take():
            raise self.lead.lease.lost()


@contextmanager
def assembled(config: Config, *, apply: bool, read_only: bool = False, indices: bool = False) -> Iterator[Parts]:
    """The parts for the body. apply: actions are sent. read_only: the ledger is not written, and not needed.

    indices: whether Slurm is asked which GPUs each run holds. That takes requests for every run this process has
    not seen: nothing for one that ends after a cycle.
    Raises ConfigError, SlurmError or LedgerError; what was open by then is closed.
    """
    # First: it starts Slurm's commands, which run while Python imports the rest.
    from slurmsched.slurm.open import open_live

    with ExitStack() as stack:
        lead = stack.enter_context(opened_lead(config))
        cluster = open_live(config, apply=apply, indices=indices, lead=lead)
        stack.callback(cluster.close)
        from slurmsched.db.store import open_store
        from slurmsched.planning import planner

        earlier_runs = cluster.earlier_runs if config.ledger.sacct else None
        store = open_store(config, earlier_runs, read_only=read_only, lead=lead)
        stack.callback(store.close)
        plans = planner.Planner.from_config(config)
        if config.past.days and config.ledger.sacct and learns(plans):
            from slurmsched.daemon.past import open_past

            cluster.learn(open_past(config, keep=not read_only))
        yield Parts(cluster, plans, store, lead)


@contextmanager
def opened_lead(config: Config) -> Iterator[Lead | None]:
    """The leader lease, not taken yet, and given back after the body; None where there is one host only."""
    if not config.leader.enabled:
        yield None
        return
    from slurmsched.db.lead import open_lead

    with closing(open_lead(config)) as lead:
        yield lead


def paused(config: Config) -> bool:
    """Whether the administrator's stop file is there."""
    return config.cycle.stop_file.exists()
