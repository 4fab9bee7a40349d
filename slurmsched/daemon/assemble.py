"""The parts of a live cycle, opened in the order that starts soonest and closed together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmsched.config import Config
from slurmsched.protocols import Planner, Store

if TYPE_CHECKING:
    from slurmsched.model import Plan, Snapshot
    from slurmsched.slurm.open import LiveCluster


@dataclass(frozen=True, slots=True)
class Parts:
    """What run_cycle takes."""

    cluster: LiveCluster
    planner: Planner
    store: Store

    def look(self) -> tuple[Snapshot, Plan]:
        """The cluster now, and what a cycle would change. Nothing is written, nothing remembered."""
        snapshot = self.store.recall(self.cluster.read())
        return snapshot, self.planner.plan(snapshot)


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
        cluster = open_live(config, apply=apply, indices=indices)
        stack.callback(cluster.close)
        from slurmsched.db.store import open_store
        from slurmsched.planning import planner

        store = open_store(config, cluster.earlier_runs if config.ledger.sacct else None, read_only=read_only)
        stack.callback(store.close)
        yield Parts(cluster, planner.Planner.from_config(config), store)


def paused(config: Config) -> bool:
    """Whether the administrator's stop file is there."""
    return config.cycle.stop_file.exists()
