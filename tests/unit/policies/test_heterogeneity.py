"""AlloX, OSSP and max-sum-throughput on the examples of their pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.policies.allox import Allox, first_of_queues
from slurmsched.policies.gavel import MaxSumThroughput, Ossp
from slurmsched.testing import snapshot


def six(*hours: int) -> list[dict[str, object]]:
    return [{"job_id": number, "comment": f"slurmsched: dur={h}h"} for number, h in enumerate(hours, 1)]


def in_round(policy, given) -> list[int]:
    return given.jobs.job_id[policy.rank(given).why["in_round"] > 0].tolist()


def test_allox__the_example_of_the_page() -> None:
    """Two GPUs, jobs of 1 to 6 hours: the two shortest are first in the queues."""
    assert in_round(Allox(alpha=1.0), snapshot(six(6, 5, 4, 3, 2, 1), "1x2")) == [5, 6]


def test_allox__who_is_first_stays_first() -> None:
    """A shorter job that comes later does not take the GPU of one that has it."""
    policy = Allox(alpha=1.0, reset_s=0.0)
    first = snapshot(six(2, 3), "1x1")
    rows = [{**six(2)[0], "state": "RUNNING", "start_s": 0.0}, *six(2, 3, 1)[1:]]
    later = snapshot(rows, "1x1", now_s=360.0, carry=policy.rank(first).carry)
    assert (in_round(policy, first), in_round(policy, later)) == ([1], [1])


def test_allox__looks_at_the_earliest_only() -> None:
    """With `alpha` 0 as many jobs as GPUs are looked at, though a later one is shorter."""
    assert in_round(Allox(alpha=0.0), snapshot(six(6, 5, 1), "1x1"))[:1] == [1]


def test_first_of_queues__each_goes_where_it_costs_least() -> None:
    """4 h and 1.1 h on the slow type, 1 h each on the fast one: the first has the fast one."""
    rows, column = first_of_queues(np.array([[4.0, 1.0], [1.1, 1.0]]), np.array([1, 1]))
    assert dict(zip(rows.tolist(), column.tolist(), strict=True)) == {0: 1, 1: 0}


@pytest.mark.parametrize("jobs", [1, 2, 3, 5, 7])
def test_first_of_queues__is_best_by_trying_all(jobs: int) -> None:
    """On one GPU the shortest job is first, whatever their number; on two the sum is that of shortest first."""
    cost_s = np.random.default_rng(jobs).uniform(1, 9, (jobs, 1))
    alone, _ = first_of_queues(cost_s, np.array([1]))
    pair, _ = first_of_queues(cost_s, np.array([2]))
    assert alone.tolist() == [int(np.argmin(cost_s))]
    assert int(np.argmin(cost_s)) in pair.tolist()


def test_ossp__the_example_of_the_page() -> None:
    """12 hours of work on two GPUs: each job has its run time over 6 hours."""
    share = Ossp().rank(snapshot(six(4, 2, 2, 2, 1, 1), "1x2")).changes.share  # type: ignore[union-attr]
    assert share == pytest.approx(np.array([4, 2, 2, 2, 1, 1]) / 6, abs=1e-4)


def test_max_sum_throughput__the_example_of_the_page(tmp_path: Path) -> None:
    """Counted in steps, the two jobs that do most of them have both GPUs."""
    rows = [f"m{n},0,1,v100,{10 * n}" for n in range(1, 7)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["model,batch,gpus,gpu_type,steps_per_s", *rows]) + "\n")
    jobs = [{"job_id": n, "comment": f"slurmsched: model=m{n}"} for n in range(1, 7)]
    nodes = [{"name": "n1", "gpus": 2, "gpu_types": "gpu:v100:2"}]
    policy = MaxSumThroughput(speeds=Throughputs(str(table), unit="steps"))
    share = policy.rank(snapshot(jobs, nodes)).changes.share  # type: ignore[union-attr]
    assert share.round(6).tolist() == [0, 0, 0, 0, 1, 1]


def test_throughputs__unit_is_checked() -> None:
    """A ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Throughputs("gavel", unit="epochs")
    assert caught.value.key == "policy.speeds.unit"


@pytest.mark.parametrize(
    ("make", "key"),
    [(lambda: Allox(alpha=-1.0), "policy.alpha"), (lambda: Ossp(round_s=0.0), "policy.round_s"),
     (lambda: MaxSumThroughput(most_jobs=0), "policy.most_jobs"), (lambda: Allox(reset_s=-1.0), "policy.reset_s")],
)  # fmt: skip
def test_parameters__out_of_range_name_the_setting(make, key: str) -> None:
    """A ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
