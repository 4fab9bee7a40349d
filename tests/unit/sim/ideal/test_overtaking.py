"""When waiting jobs overtake running ones, by the policies of which that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slurmsched.estimators.past_run_times import Histogram
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.gittins import Gittins
from slurmsched.policies.las import Las
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Policy
from slurmsched.sim.ideal.overtaking import overtaking_of
from slurmsched.testing import snapshot


@pytest.mark.parametrize(("waiting_gpu_s", "change_s"), [(300.0, 1_030.0), (600.0, 1_060.0)])
def test_las__changes_when_a_job_may_fall_behind_one_that_waits(waiting_gpu_s: float, change_s: float) -> None:
    """A job at 60 GPU s runs on 8 GPUs. It meets one that waits at 300 after 30 s; minutes before that do not count.

    One that waits at 600, on one GPU, would leave its minute after 60 s if it were let in at once.
    """
    given = snapshot([{"executed_s": 7.5, "gpus": 8}, {"executed_s": waiting_gpu_s, "gpus": 1}], now_s=1_000.0)
    known = overtaking_of(Las(quantum_gpu_s=60.0))
    assert known is not None
    assert known.next_s(given, np.array([True, False])) == change_s


def test_discretized_las__changes_when_a_job_drops_below_one_that_waits() -> None:
    """A job at 60 GPU s runs on 8 GPUs. One waits in the third queue, which the first enters at 100, not at 70."""
    given = snapshot([{"executed_s": 7.5, "gpus": 8}, {"executed_s": 300.0, "gpus": 1}], now_s=1_000.0)
    known = overtaking_of(DiscretizedLas((70.0, 100.0, 400.0)))
    assert known is not None
    assert (known.next_s(given, np.array([True, False])), known.keeps_gpu_s) == (1_005.0, 70.0)


def test_srtf__is_never_overtaken() -> None:
    """The remaining time of a waiting job does not shrink."""
    known = overtaking_of(Srtf())
    assert known is not None
    assert (known.next_s(snapshot([{}, {}]), np.array([True, False])), known.keeps_gpu_s) == (math.inf, math.inf)


class OwnSrtf(Srtf):
    """A site's variant, which may order in another way."""


@pytest.mark.parametrize(
    "policy",
    [Gittins(), Las(quantum_gpu_s=0), DiscretizedLas((100.0,), promote_knob=2.0), OwnSrtf(), Srtf(Histogram())],
    ids=lambda policy: type(policy).__name__,
)
def test_overtaking__is_unknown_of_any_other_policy(policy: Policy) -> None:
    """Exact LAS, promotions, an estimator that learns, a class of its own: asked at each event."""
    assert overtaking_of(policy) is None
