"""Whether a policy changes Slurm's order at all: said, with the reason."""

from __future__ import annotations

import pytest

from slurmsched.config import ScopeConfig
from slurmsched.model import Rights, Site
from slurmsched.observe.queue_rows import as_slurm
from slurmsched.planning.planner import Planner
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.smallest import Smallest
from slurmsched.testing import snapshot


def why(rows, policy, **parts):
    at = snapshot([{"priority": 1_000, "base_priority": 1_000.0, **row} for row in rows], now_s=1e5,
                  site=Site(rights=Rights.OPERATOR))  # fmt: skip
    plan = Planner(policy, scope=ScopeConfig(partitions=("*",)), **parts).plan(at)
    return as_slurm(at, plan, "nice")


FRESH = [{"job_id": i, "submit_s": 60.0 * i} for i in (1, 2, 3)]


def test_as_slurm__a_policy_by_attained_service_sees_no_difference_between_jobs_that_never_ran():
    """By nice alone no waiting job has run, so that discretized-las leaves all as they are."""
    text = why(FRESH, DiscretizedLas())
    assert text.startswith(
        "the policy's order of the 3 waiting jobs is Slurm's own: it sees no difference between them"
    )
    assert "queue 0, used 0 GPU s" in text


def test_as_slurm__criteria_that_agree_with_the_priority_are_named_as_such():
    """Fewest GPUs first, and they came in that order."""
    text = why([row | {"gpus": row["job_id"]} for row in FRESH], Smallest())
    assert text.endswith("its criteria and Slurm's priority agree for these jobs")


@pytest.mark.parametrize(
    "rows",
    [
        [row | {"gpus": 4 - row["job_id"]} for row in FRESH],
        [row | {"base_priority": 1_000.0 * row["job_id"]} for row in FRESH],
        FRESH[:1],
    ],
    ids=["another order", "Slurm has another order", "one job"],
)
def test_as_slurm__says_nothing_where_the_order_differs_or_nobody_waits_behind(rows):
    """A lever that slurmsched wrote before does not count as Slurm's own order."""
    assert why(rows, Smallest()) == ""


def test_as_slurm__what_slurmsched_wrote_is_not_slurms_own_order():
    """The nice of ours is taken off again."""
    rows = [row | {"gpus": 4 - row["job_id"], "nice": -1_000 * row["job_id"], "written": True} for row in FRESH]
    assert why(rows, Smallest()) == ""
