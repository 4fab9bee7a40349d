"""What a cycle adds to what is on record of preemptions and gang reservations: a row whenever one begins, moves on or
takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from slurmsched.db import schema
from slurmsched.model.operations import Operation, OperationStage
from slurmsched.model.plan import Plan, Receipt, Requeue, Step
from slurmsched.model.snapshot import Snapshot


def operation_rows(snapshot: Snapshot, plan: Plan, receipt: Receipt) -> Iterator[dict[str, Any]]:
    """Rows of the table `operations`. lost_gpu_s: work lost by the requeues of this cycle; in a dry-run, that would be
    lost.

    An operation of which nothing was sent is as before; one that lost a step is being taken back.
    """
    before = {operation.id: operation for operation in snapshot.operations}
    for operation in plan.operations:
        old = before.get(operation.id)
        if receipt.dry_run:
            if old is None:
                lost_gpu_s = sum(victim.lost_gpu_s for victim in operation.victims)
                yield _row(snapshot, operation, operation.stage, operation.note, lost_gpu_s, True)
            continue
        steps = [
            each for each in receipt.outcomes if isinstance(each.action, Step) and each.action.operation == operation.id
        ]
        if not steps and any(isinstance(action, Step) and action.operation == operation.id for action in plan.actions):
            continue
        refused = next((each.message for each in steps if each.status == "refused"), "")
        stage = OperationStage.REVERSING if refused and operation.stage != OperationStage.CLEANING else operation.stage
        gone = {each.action.job_id for each in steps if each.status == "written" and isinstance(each.action, Requeue)}
        lost_gpu_s = sum(victim.lost_gpu_s for victim in operation.victims if victim.job_id in gone)
        if old is None or old.stage != stage or gone:
            yield _row(snapshot, operation, stage, refused or operation.note, lost_gpu_s, False)


def new_rows(connection: Connection, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows to append: of those of a dry-run only what is new, since every cycle would begin the same anew."""
    return [row for row in rows if not (row["dry_run"] and _known(connection, row))]


def _known(connection: Connection, row: dict[str, Any]) -> bool:
    table = schema.operations
    same = [table.c[name] == row[name] for name in ("job_id", "first_submit_s", "purpose", "dry_run")]
    return connection.scalar(sa.select(table.c.id).where(*same).limit(1)) is not None


def _row(
    snapshot: Snapshot, operation: Operation, stage: OperationStage, note: str, lost_gpu_s: float, dry_run: bool
) -> dict[str, Any]:
    jobs = snapshot.jobs
    rows = np.flatnonzero(jobs.job_id == operation.job_id)
    gpus, first_s = (
        (int(jobs.gpus[rows[0]]), float(jobs.first_submit_s[rows[0]])) if len(rows) else (0, operation.submit_s)
    )
    return {
        "seen_s": snapshot.now_s,
        "operation": operation.id,
        "purpose": str(operation.purpose),
        "job_id": operation.job_id,
        "first_submit_s": first_s,
        "user": operation.user,
        "gpus": gpus,
        "nodes": operation.nodes,
        "stage": str(stage),
        "note": note,
        "victims": len(operation.victims),
        "lost_gpu_s": lost_gpu_s,
        "idle_gpu_s": operation.idle_gpu_s,
        "dry_run": dry_run,
    }
