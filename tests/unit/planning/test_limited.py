"""Nodes of a preemption do not stand idle for a job that a limit keeps from starting."""

from __future__ import annotations

import pytest

from slurmsched.config import Acts
from slurmsched.model import Act, Purpose, Reservations, Snapshot, Stage
from slurmsched.model.jobs import Jobs
from slurmsched.planning.acts import advance
from slurmsched.planning.limited import limited
from slurmsched.testing import snapshot

NOW_S = 1_000.0


def at(act: Act, reason: str) -> Snapshot:
    """Everybody has left, and the job waits with the act's reservation."""
    job = {"job_id": 1, "reason": reason, "reservation": act.reservation}
    kept = {"name": [act.reservation], "node_list": ["n1"], "start_s": [0.0], "end_s": [9_000.0], "to_come": [False]}
    return snapshot([job], [{"name": "n1", "gpus": 8}], now_s=NOW_S, reservations=Reservations.build(1, kept))


def act(opens_s: float = 0.0) -> Act:
    stage = Stage.PROMISED if opens_s > NOW_S else Stage.REQUEUED
    return Act("1-7", Purpose.PREEMPT, 1, 0.0, "ann", "n1", 600.0, NOW_S - 5, (), stage=stage, stage_s=NOW_S - 5,
               opens_s=opens_s, promised_s=opens_s, sure=True)  # fmt: skip


def test_advance__a_job_that_waits_for_a_limit_gives_its_nodes_back():
    """Slurm tells of the limit at its first look only, when others may have left already: no ten idle minutes too."""
    one = act()
    move = advance(one, at(one, "QOSMaxGRESPerUser"), Acts())
    assert (move.act.stage, move.act.note) == (
        Stage.REVERSING, "its job waits for a limit, not for GPUs (QOSMaxGRESPerUser)",
    )  # fmt: skip
    assert [(step.kind, getattr(step, "name", "")) for step in move.steps] == [
        ("join", ""), ("unreserve", one.reservation),
    ]  # fmt: skip


@pytest.mark.parametrize(("opens_s", "reason"), [(0.0, "Resources"), (0.0, "None"), (NOW_S + 900, "AssocGrpGRES")])
def test_advance__goes_on_before_any_node_stands_idle_for_a_limit(opens_s, reason):
    """The user's other jobs may have ended when the nodes are free."""
    one = act(opens_s)
    assert advance(one, at(one, reason), Acts()).act.stage == one.stage


def test_limited__counts_pending_jobs_only():
    """A running job keeps the reason of its last wait in some releases."""
    jobs: Jobs = snapshot([
        {"job_id": 1, "reason": "Licenses"}, {"job_id": 2, "reason": "Priority"},
        {"job_id": 3, "reason": "QOSGrpGRES", "state": "RUNNING"},
    ]).jobs  # fmt: skip
    assert limited(jobs).tolist() == [True, False, False]
