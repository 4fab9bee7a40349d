"""The conformance check of placements finds what it promises to find: one bad placement a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from slurmsched.model import Assignments, Ranking, Snapshot, frozen
from slurmsched.placements.baselines import BestFit
from slurmsched.placements.count import Count
from slurmsched.testing import NonconformingError, check_placement, snapshot
from slurmsched.testing.placement_conformance import busy_snapshot

Spoil = Callable[[Snapshot, Assignments], Assignments]


@dataclass(frozen=True)
class Spoiled:
    """Best fit, and then something is wrong with it."""

    spoil: Spoil

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        made = BestFit().place(snapshot, ranking)
        return self.spoil(snapshot, made) if len(made.rows) > 2 else made


def backwards(_: Snapshot, made: Assignments) -> Assignments:
    columns = (made.rows, made.first, made.count)
    return Assignments(*(column[::-1] for column in columns), made.node, made.gpus, made.gpu_mask)


def changed(column: str, change: Callable[[Any], Any]) -> Spoil:
    return lambda _, made: replace(made, **{column: frozen(change(getattr(made, column).copy()), np.int64)})


def short(snapshot: Snapshot, made: Assignments) -> Assignments:
    """The last job, a waiting one, gets one GPU less."""
    gpus, mask = made.gpus.copy(), made.gpu_mask.copy()
    gpus[-1], mask[-1] = gpus[-1] - 1, int(mask[-1]) & (int(mask[-1]) - 1)
    return replace(made, gpus=gpus, gpu_mask=mask)


def by_row(snapshot: Snapshot, made: Assignments) -> Assignments:
    """Whoever has row 0 gets nothing."""
    kept = made.rows != 0
    entries = np.repeat(kept, made.count)
    count = made.count[kept]
    return Assignments(made.rows[kept], np.cumsum(count) - count, count, made.node[entries], made.gpus[entries],
                       made.gpu_mask[entries])  # fmt: skip


def before_noon(snapshot: Snapshot, made: Assignments) -> Assignments:
    """Nobody who waits is placed in the second half of a day."""
    return by_row(snapshot, made) if snapshot.now_s % 86_400.0 > 43_200.0 else made


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("order", backwards),
        ("gangs", short),
        ("masks", changed("gpu_mask", lambda mask: mask[1:])),
        ("masks", changed("gpu_mask", lambda mask: mask | (1 << 9))),
        ("capacity", changed("gpu_mask", lambda mask: (1 << np.array([int(m).bit_count() for m in mask])) - 1)),
        ("capacity", changed("node", lambda node: node * 0)),
        ("row order", by_row),
        ("clock", before_noon),
    ],
)
def test_check_placement__names_the_broken_rule(rule: str, spoil: Spoil) -> None:
    """Each spoiled placement breaks the rule that is named."""
    with pytest.raises(NonconformingError) as caught:
        check_placement(Spoiled(spoil), [busy_snapshot(6, seed=4)])
    assert caught.value.rule == rule


def test_check_placement__finds_jobs_that_move() -> None:
    """A running job on other GPUs of its node, which are idle."""
    rows = [{"job_id": job_id, "state": "RUNNING"} for job_id in (1, 2, 3)]
    held = [{"job_id": job_id, "node": "n1", "gpus": 1, "gpu_mask": 1 << job_id} for job_id in (1, 2, 3)]
    moved = changed("gpu_mask", lambda mask: np.append(mask[:-1], 0b10000))
    with pytest.raises(NonconformingError, match="stays: running job 3 is moved on n1"):
        check_placement(Spoiled(moved), [snapshot(rows, "1x8", allocations=held)])


def test_check_placement__is_not_for_a_pile_without_nodes() -> None:
    """`count` names node 0 for all, which a cluster of several nodes does not have GPUs for."""
    with pytest.raises(NonconformingError, match="capacity"):
        check_placement(Count())
