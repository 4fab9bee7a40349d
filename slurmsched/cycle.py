"""One quantum: read, decide, apply, remember. Live and replay run this one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slurmsched.errors import ConfigError
from slurmsched.logs import get_logger
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.job_scope import ON_BASIC
from slurmsched.protocols import Cluster, DecidingPlanner, Store

log = get_logger()


def run_cycle(
    cluster: Cluster,
    planner: DecidingPlanner,
    store: Store,
    observe: Callable[[Snapshot, Plan, Receipt], None] | None = None,
) -> Receipt:
    """One quantum. observe: is called with what was read, planned and done, once it is remembered.

    Raises what reading or planning raises, or the store before anything was sent to Slurm; and what Store.append
    raises.
    """
    snapshot = store.recall(cluster.read())
    plan = planner.plan(snapshot)  # pure: the same snapshot gives the same plan
    receipt = cluster.apply(plan)
    if not (snapshot.site.multifactor or receipt.stopped):
        receipt = replace(receipt, stopped=ON_BASIC, exit_code=ConfigError.exit_code)
    store.append(snapshot, plan, receipt)
    if observe is not None:
        observe(snapshot, plan, receipt)
    if log.hears("info"):
        _log(snapshot, plan, receipt)
    return receipt


def _log(snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
    log.info(
        "cycle.done",
        jobs=len(snapshot.jobs),
        planned=len(plan.actions),
        deferred=plan.deferred,
        written=len(receipt.written),
        refused=len(receipt.refused),
        stopped=bool(receipt.stopped),
        warnings=len(snapshot.warnings),
        notes=len(plan.notes),
    )
