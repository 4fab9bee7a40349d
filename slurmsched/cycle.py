"""One quantum: read, decide, apply, remember. Live and replay run this one function."""

from __future__ import annotations

from slurmsched.logs import get_logger
from slurmsched.model.plan import Receipt
from slurmsched.protocols import Cluster, Planner, Store

log = get_logger()


def run_cycle(cluster: Cluster, planner: Planner, store: Store) -> Receipt:
    """One quantum. Raises what reading or the store raises; then nothing was sent to Slurm."""
    snapshot = store.recall(cluster.read())
    plan = planner.plan(snapshot)  # pure: the same snapshot gives the same plan
    receipt = cluster.apply(plan)
    store.append(snapshot, plan, receipt)
    log.info(
        "cycle.done",
        jobs=len(snapshot.jobs),
        planned=len(plan.actions),
        written=len(receipt.written),
        refused=len(receipt.refused),
    )
    return receipt
