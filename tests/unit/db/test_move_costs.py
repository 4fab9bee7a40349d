"""What moves of jobs cost: measured from the wait after one until the job is further than before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.config_file import parse_config
from slurmsched.db import move_costs
from slurmsched.db.ledger_store import LedgerStore, open_store
from slurmsched.db.move_costs import (
    GROUPS,
    KEPT,
    LEAST,
    MoveCosts,
    MovedJob,
    decode_moves,
    encode_moves,
    move_columns,
    observe_moves,
)
from slurmsched.model import Operation, OperationStage, Plan, Purpose, Receipt, Snapshot, Victim
from slurmsched.testing import snapshot

HALF = "slurmsched: preempt=yes ckpt=USR1@60 progress=50/100"
MORE = HALF.replace("50/", "51/")
LESS = HALF.replace("50/", "40/")


def operation(
    restarts: int = 0,
    signal: str = "USR1",
    job: int = 5,
    stage: OperationStage = OperationStage.REQUEUED,
    note: str = "",
) -> Operation:
    victim = Victim(job, 10.0, restarts, 8, signal, 60.0)
    return Operation("9-1", Purpose.PREEMPT, 9, 0.0, "bob", "n1", 60.0, 900.0, (victim,), stage=stage, note=note)


def at(state: str, comment: str = HALF, *operations: Operation, **columns: Any) -> Snapshot:
    """Job 5 of ann, called train, as one look shows it after its first move."""
    row = {"job_id": 5, "user": "ann", "name": "train", "state": state, "restarts": 1, "gpus": 8, "comment": comment,
           "first_submit_s": 10.0, "submit_s": 10.0, **columns}  # fmt: skip
    return snapshot([row], now_s=1_000.0, operations=operations)


def followed(*looks: Snapshot) -> MoveCosts:
    found = MoveCosts()
    for each in looks:
        found = observe_moves(found, each)
    return found


def test_look__measures_until_the_job_is_further_than_before() -> None:
    """The run time at the first look that shows more progress than the job had while it waited; not at one that shows
    as much, or less, since it began from an older checkpoint. The operation may be forgotten meanwhile."""
    waits = at("PENDING", HALF, operation())
    same, less = at("RUNNING", run_s=40.0), at("RUNNING", LESS, run_s=70.0)
    assert followed(waits, same, less).open == {5: MovedJob(10.0, 1, 0.5)}
    assert followed(waits, same, less, at("RUNNING", MORE, run_s=100.0)) == MoveCosts({}, {("ann", "train"): (100.0,)})
    once = followed(waits, at("RUNNING", MORE, run_s=100.0))
    assert observe_moves(once, at("RUNNING", MORE, run_s=160.0)) is once


@pytest.mark.parametrize("stage", [OperationStage.CLEANING, OperationStage.CLOSED])
def test_look__a_move_is_measured_after_the_operation_has_ended_well(stage: OperationStage) -> None:
    """Its job runs: the victims were told to go."""
    assert followed(at("PENDING", HALF, operation(stage=stage))).open == {5: MovedJob(10.0, 1, 0.5)}


def test_look__what_a_job_tells_while_it_waits_counts_last() -> None:
    """It may write its progress right before it leaves; the next look sees that."""
    found = followed(at("PENDING", LESS, operation()), at("PENDING", HALF), at("RUNNING", HALF, run_s=30.0))
    assert found == MoveCosts({5: MovedJob(10.0, 1, 0.5)})


@pytest.mark.parametrize(
    "looks",
    [
        [at("PENDING"), at("RUNNING", MORE, run_s=9.0)],  # we did not move it
        [at("PENDING", HALF, operation(signal="")), at("RUNNING", MORE, run_s=9.0)],  # it was not asked to save itself
        [at("PENDING", HALF, operation(restarts=1)), at("RUNNING", MORE, run_s=9.0)],  # of another run
        # It was not told to go yet.
        [
            at("PENDING", HALF, operation(stage=OperationStage.WARNED)),
            at("RUNNING", MORE, run_s=9.0),
        ],
        # And is not now.
        [
            at("PENDING", HALF, operation(stage=OperationStage.REVERSING, note="x")),
            at("RUNNING", MORE, run_s=9.0),
        ],
        [
            at("PENDING", HALF, operation(stage=OperationStage.CLOSED, note="its job left the queue")),
            at("RUNNING", MORE, run_s=9.0),
        ],
        [at("PENDING", HALF, operation(job=6)), at("RUNNING", MORE, run_s=9.0)],  # of another job
        # Nobody saw it wait.
        [
            at("PENDING,COMPLETING", HALF, operation()),
            at("RUNNING", MORE, operation(), run_s=9.0),
        ],
        [at("PENDING", "", operation()), at("RUNNING", MORE, run_s=9.0)],  # it tells no progress
        [at("PENDING", HALF, operation()), at("RUNNING", "", run_s=9.0), at("RUNNING", MORE, run_s=9.0)],
        [at("PENDING", HALF, operation()), at("COMPLETED", MORE, run_s=9.0)],  # it ended before anybody looked
        # Requeued again by somebody else.
        [
            at("PENDING", HALF, operation()),
            at("RUNNING", MORE, run_s=9.0, restarts=2),
        ],
        # Its id is used again.
        [
            at("PENDING", HALF, operation()),
            at("RUNNING", MORE, run_s=9.0, first_submit_s=500.0),
        ],
        [at("PENDING", HALF, operation()), snapshot([], now_s=1_100.0), at("RUNNING", MORE, run_s=9.0)],  # it vanished
        [at("PENDING", HALF, operation(), first_submit_s=float("nan")), at("RUNNING", MORE, run_s=9.0)],
    ],
)
def test_look__measures_nothing_on_doubt(looks: list[Snapshot]) -> None:
    """Nothing is on record of any of these, and nothing stays open but what may still tell."""
    assert followed(*looks).costs == {}
    assert followed(*looks, snapshot([], now_s=2_000.0)) == MoveCosts()


def test_look__keeps_the_latest_few_of_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last KEPT of a group, and the groups that were measured last."""
    found = MoveCosts()
    for cost_s in range(10, 10 + KEPT + 2):
        found = observe_moves(
            observe_moves(found, at("PENDING", HALF, operation())), at("RUNNING", MORE, run_s=float(cost_s))
        )
    assert found.costs == {("ann", "train"): tuple(float(12 + more) for more in range(KEPT))}
    monkeypatch.setattr(move_costs, "GROUPS", 2)
    for user in ("bob", "ann", "carl"):
        waits = at("PENDING", HALF, operation(), user=user)
        found = observe_moves(observe_moves(found, waits), at("RUNNING", MORE, run_s=1.0, user=user))
    assert [user for user, _ in found.costs] == ["ann", "carl"]
    assert GROUPS > 2


def test_columns__the_median_of_enough_moves() -> None:
    """Of the user's jobs of that name only; too few moves, other users and other names have none."""
    known = MoveCosts({}, {("ann", "train"): (10.0, 500.0, 30.0), ("bob", "eval"): (5.0,) * (LEAST - 1)})
    rows = [
        {"job_id": job, "user": user, "name": name}
        for job, (user, name) in enumerate([("ann", "train"), ("ann", "eval"), ("bob", "train"), ("bob", "eval")])
    ]
    made = move_columns(known, snapshot(rows).jobs)
    np.testing.assert_array_equal(made["moved_cost_s"], [30.0, np.nan, np.nan, np.nan])
    assert made["moves_seen"].tolist() == [3, 0, 0, 0]
    assert move_columns(known, snapshot([]).jobs)["moved_cost_s"].tolist() == []


@pytest.mark.parametrize(
    "found", [MoveCosts(), MoveCosts({5: MovedJob(1.5, 2, 0.25)}, {("a\n\0é", "n"): (1.0, 2.5), ("b", ""): ()})]
)
def test_decoded__gives_back_what_was_encoded(found: MoveCosts) -> None:
    """Whatever users call their jobs."""
    assert decode_moves(encode_moves(found)) == found


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"open": 1, "costs": []}', '{"open": [[1]], "costs": []}'])
def test_decoded__what_cannot_be_read_is_measured_anew(text: str) -> None:
    """A damaged record costs one more measurement, no error."""
    assert decode_moves(text) == MoveCosts()


def remembered(store: LedgerStore, each: Snapshot) -> Snapshot:
    recalled = store.recall(each)
    store.append(recalled, Plan(), Receipt())
    return recalled


def test_store__remembers_moves_between_processes(tmp_path: Path) -> None:
    """Each look by a process of its own, as by the timer: three moves give a cost, in the same cycle; one that was not
    remembered, as by `plan`, adds nothing."""
    config = parse_config({"ledger": {"url": f"sqlite:///{tmp_path}/l.db", "journal": f"{tmp_path}/j.jsonl"}})
    for move in range(1, LEAST + 1):
        runs = at("RUNNING", MORE, run_s=60.0 + move, restarts=move, start_s=900.0)
        for each in (at("PENDING", HALF, operation(move - 1), restarts=move), runs):
            open_store(config, read_only=True).recall(each)
            recalled = remembered(open_store(config), each)
    assert (recalled.jobs.moved_cost_s.tolist(), recalled.jobs.moves_seen.tolist()) == ([62.0], [3])
