"""Made-up traces."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.sim.traces.trace_generator import (
    MONDAY_S,
    SyntheticWorkload,
    WorkloadLaw,
    diurnal,
    fitted_workload,
    generate_trace,
    parametric_workload,
)
from slurmsched.sim.traces.trace_io import sample_trace
from tests.unit.sim.traces.test_public_kinds import same


def test_generate__is_named_by_its_seed() -> None:
    """The same seed gives the same trace, another seed another."""
    assert same(generate_trace(SyntheticWorkload(), 50, 1), generate_trace(SyntheticWorkload(), 50, 1))
    assert not same(generate_trace(SyntheticWorkload(), 50, 1), generate_trace(SyntheticWorkload(), 50, 2))


@pytest.mark.parametrize(
    ("law", "median_s"),
    [(WorkloadLaw("lognormal", 600.0, 1.0), 600.0), (WorkloadLaw("weibull", 600.0, 2.0), 600.0 * np.log(2) ** 0.5)],
)
def test_law__has_its_median(law: WorkloadLaw, median_s: float) -> None:
    """Within 3 % of the closed form over 20,000 draws."""
    drawn = law.draw(np.random.default_rng(0), 20_000)
    assert np.median(drawn) == pytest.approx(median_s, rel=0.03)
    assert drawn.min() >= 1


def test_generate__keeps_rate_and_sizes() -> None:
    """20,000 jobs at 480 a day take 41.7 days; three quarters have 1 GPU; gaps are exponential (deviation = mean)."""
    trace = generate_trace(SyntheticWorkload(480.0, sizes={1: 3, 8: 1}), 20_000).trace
    gaps = np.diff(trace.submit_s)
    assert np.ptp(trace.submit_s) / 86_400 == pytest.approx(20_000 / 480, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert (trace.gpus == 1).mean() == pytest.approx(0.75, abs=0.01)


def test_generate__follows_the_hours_of_the_week() -> None:
    """All submissions fall into the one hour that has a rate."""
    hourly = np.zeros(168)
    hourly[30] = 1.0
    submit_s = generate_trace(SyntheticWorkload(50.0, hourly), 500).trace.submit_s
    assert set((submit_s // 3600 % 168).tolist()) == {30.0}


def test_diurnal__is_highest_in_the_afternoon_and_on_weekdays() -> None:
    """15 h of a working day; Sunday at 3 h is the least."""
    rate = diurnal()
    assert (int(rate[:24].argmax()), int(rate[144:].argmin())) == (15, 3)
    assert rate[120:].max() < rate[:120].max()


def test_fitted__looks_like_its_trace() -> None:
    """Rate, share of single GPUs, median run time by size and GPU time of the shipped sample within 10 %."""
    sample = sample_trace()
    like = generate_trace(fitted_workload(RecordedTrace(sample, "csv", MONDAY_S)), 20_000).trace
    for ours, theirs in (
        ((like.gpus == 1).mean(), (sample.gpus == 1).mean()),
        (np.median(like.duration_s[like.gpus == 1]), np.median(sample.duration_s[sample.gpus == 1])),
        (len(like) / np.ptp(like.submit_s), len(sample) / np.ptp(sample.submit_s)),
        (like.gpu_s.mean(), sample.gpu_s.mean()),
    ):
        assert ours == pytest.approx(theirs, rel=0.1)


def test_fitted__needs_times() -> None:
    """All jobs at one moment have no rate."""
    with pytest.raises(InputError, match="at one time"):
        fitted_workload(RecordedTrace(Trace.of([1, 2], [1, 1], [0, 0], [5, 5])))


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"sizes": "1"}, "sizes"), ({"sizes": "0=1"}, "sizes"), ({"scale": "soon"}, "scale"),
        ({"shape": -1.0}, "durations"), ({"users": 0}, "users"), ({"jobs_per_day": 0.0}, "jobs_per_day"),
    ],
)  # fmt: skip
def test_parametric__names_the_bad_parameter(changed: dict[str, object], key: str) -> None:
    """Each parameter out of its range."""
    good = {"jobs_per_day": 10.0, "arrivals": "poisson", "durations": "lognormal", "scale": "30m", "shape": 1.0,
            "sizes": "1=1", "users": 1}  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        parametric_workload(**(good | changed))  # type: ignore[arg-type]
    assert caught.value.key == key
