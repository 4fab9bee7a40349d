"""Jobs that train in steps and change their batch size between rounds."""

from __future__ import annotations

import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model.hints import parse_hints
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.adapting_jobs import BatchSizeRule
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession

SETTINGS = {"rounds_follow": True, "round_s": 120.0, "restart_cost_s": 20.0, "adapts": "shockwave"}
LM_PER_S = 133.8379591  # of the table shipped, batch size 5 on one GPU


def trace(*rows: tuple[float, float, str, str]) -> Trace:
    submit_s, duration_s, models, modes = zip(*rows, strict=True)
    return Trace.of(range(len(rows)), [1] * len(rows), submit_s, duration_s, duration_s, model=list(models),
                    name=list(modes))  # fmt: skip


def played(*rows: tuple[float, float, str, str], gpus: int = 1):
    session = ReplaySession(
        trace(*rows), ReplayRequest(cluster=f"1x{gpus}", policy="las:quantum_gpu_s=60", settings=SETTINGS)
    )
    session.run()
    return session.replayed


def test_gns__doubles_at_its_epochs() -> None:
    """ResNet-18 at 64 on one GPU: twice as much from epoch 11 on, four times from 31 on, never more than 256."""
    job = BatchSizeRule("ResNet-18", "gns", 64, 1)
    each = job.steps_an_epoch(64)
    assert [job.wanted(epoch * each, 64) for epoch in (0, 9, 10, 11)] == [64, 64, 128, 128]
    assert job.wanted(40 * job.steps_an_epoch(256), 256) == 256
    assert job.batches(50) == (64, 128, 256)


def test_accordion__is_small_where_it_matters() -> None:
    """ResNet-50: small in the first ten of every thirty epochs, at its largest in the others."""
    job = BatchSizeRule("ResNet-50", "accordion", 32, 1)
    each = job.steps_an_epoch(32)
    assert [job.wanted(epoch * each, 32) for epoch in (0, 9, 10, 29, 30)] == [32, 32, 128, 128, 32]


def test_static__keeps_its_batch_size() -> None:
    """Whatever its epoch."""
    assert BatchSizeRule("LM", "static", 5, 1).wanted(10**7, 5) == 5


def test_adapting__whole_steps_and_the_end_within_a_round() -> None:
    """A job alone that keeps its batch size takes as long as recorded, but for steps that do not fill a round."""
    done = played((0.0, 1_000.0, "LM (batch size 5)", "static")).outcomes
    assert done.jct_s[0] == pytest.approx(1_000.0, abs=9 / LM_PER_S)


def test_adapting__a_larger_batch_ends_sooner() -> None:
    """LM under accordion trains with 80 from epoch 10 on; its time at 5 is far longer than it takes."""
    done = played((0.0, 20_000.0, "LM (batch size 5)", "accordion")).outcomes
    assert done.jct_s[0] < 0.5 * 20_000.0


def test_adapting__who_was_not_in_the_round_before_pays() -> None:
    """Two jobs by turns on one GPU: they take their run times and at most 20 s for each time that one starts anew."""
    done = played(*[(0.0, 600.0, "LM (batch size 5)", "static")] * 2)
    restarts = done.figures["preemptions"]
    assert restarts > 1
    assert 1_200.0 + 2 * 20.0 <= done.outcomes.end_s.max() <= 1_200.0 + 20.0 * (restarts + 1) + 1.0


def test_adapting__policies_see_progress_and_batch() -> None:
    """Hints tell the batch size, those to come, and steps of all."""
    session = ReplaySession(
        trace((0.0, 900.0, "LM (batch size 10)", "gns")),
        ReplayRequest("1x1", "las:quantum_gpu_s=60", settings=SETTINGS),
    )
    cluster = session.replayed.cluster
    cluster.advance(0.0)
    hints = parse_hints(cluster.read().jobs.comment[0])
    assert (hints.model, hints.batch, hints.progress, hints.batches[0]) == ("LM", 10, 0.0, 10)


def test_adapting__needs_rounds() -> None:
    """A ConfigError that names the setting."""
    one = trace((0.0, 9.0, "LM (batch size 5)", "static"))
    with pytest.raises(ConfigError, match="rounds_follow"):
        ReplaySession(one, ReplayRequest("1x1", "las:quantum_gpu_s=60", settings={"adapts": "shockwave"}))


def test_adapting__a_model_that_the_table_lacks_is_refused() -> None:
    """An InputError that names the job."""
    with pytest.raises(InputError, match="job 0: 'GPT'"):
        ReplaySession(
            trace((0.0, 9.0, "GPT (batch size 5)", "static")),
            ReplayRequest("1x1", "las:quantum_gpu_s=60", settings=SETTINGS),
        )
