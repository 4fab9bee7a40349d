"""hint and time-limit: where an expected run time comes from."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.estimators.requested_time import Hint, TimeLimit
from slurmsched.model import Estimates
from slurmsched.protocols import Estimator
from slurmsched.testing import check_estimator, snapshot

JOBS = snapshot(
    [
        {"comment": "slurmsched: dur=90m", "time_limit_s": 86_400.0},
        {"comment": "slurmsched: dur=soon", "time_limit_s": 7_200.0},
        {"comment": "", "time_limit_s": 3_600.0},
        {"comment": "slurmsched: dur=5s", "time_limit_s": np.inf},
        {"comment": "", "time_limit_s": np.inf},
    ]
)


def told(estimates: Estimates) -> list[tuple[float, str]]:
    """(expected run time, where from) by job."""
    named = (estimates.sources[source] for source in estimates.source)
    return list(zip(estimates.total_s.tolist(), named, strict=True))


def test_hint__comes_before_the_time_limit() -> None:
    """A hint that is understood counts; else the limit; an unlimited job without one has no estimate."""
    *known, unknown = told(Hint().estimate(JOBS))
    assert known == [(5_400.0, "hint"), (7_200.0, "time-limit"), (3_600.0, "time-limit"), (5.0, "hint")]
    assert (np.isnan(unknown[0]), unknown[1]) == (True, "none")


def test_time_limit__ignores_hints() -> None:
    """Only the limit counts; unlimited is no estimate."""
    estimates = told(TimeLimit().estimate(JOBS))
    assert estimates[:3] == [(86_400.0, "time-limit"), (7_200.0, "time-limit"), (3_600.0, "time-limit")]
    assert [source for _, source in estimates[3:]] == ["none", "none"]


@pytest.mark.parametrize("name", ["hint", "time-limit"])
def test_estimator__is_registered_and_conforms(name: str) -> None:
    """Every estimator of ours is found by name and keeps every rule of check_estimator."""
    estimator = registry.make_plugin("estimators", name)
    assert isinstance(estimator, Estimator)
    assert check_estimator(estimator) is None
