"""POP: a policy on parts of the jobs and of the GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.allocation import programmes
from slurmsched.allocation.programmes import AllocationProblem, solve_in_groups
from slurmsched.allocation.water_filling import max_min
from slurmsched.errors import ConfigError
from slurmsched.model import JobChanges, Labels, Ranking, Snapshot
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.gavel import Gavel
from slurmsched.policies.genie import Genie
from slurmsched.policies.pop import Pop
from slurmsched.policies.shockwave import Shockwave
from slurmsched.policies.themis import Themis
from slurmsched.testing import check_policy, mixed_snapshot, snapshot

NODES = [
    {"name": "n1", "gpus": 4, "gpu_types": "gpu:k80:4"}, {"name": "n2", "gpus": 4, "gpu_types": "gpu:v100:4"},
]  # fmt: skip
SIX = snapshot([{"job_id": n} for n in range(1, 7)], NODES)


def test_pop__the_example_of_the_page() -> None:
    """Two parts with two GPUs of each type: no part is given more than its own, and all six run."""
    ranking = Pop(Gavel(), k=2).rank(SIX)
    part, runs = ranking.why["part"], ranking.why["in_round"] > 0
    assert sorted(set(part.tolist())) == [0, 1]
    assert all(np.count_nonzero(runs & (part == p)) == min(np.count_nonzero(part == p), 4) for p in (0, 1))


def test_pop__one_part_is_the_policy_itself() -> None:
    """k = 1: the same order and the same wants."""
    split, whole = Pop(Gavel(), k=1).rank(SIX), Gavel().rank(SIX)
    assert (split.order.tolist(), list(split.changes.gpu_type)) == (
        whole.order.tolist(),
        list(whole.changes.gpu_type),
    )


class Both(Fifo):
    """FIFO in which each job is to have GPUs of both types, as many as its id."""

    def rank(self, snapshot: Snapshot) -> Ranking:
        both = Labels.of([f"gpu:k80:{job},gpu:v100:{job}" for job in snapshot.jobs.job_id.tolist()])
        return Ranking(super().rank(snapshot).order, changes=JobChanges(gpus_by_type=both))


def test_pop__hands_on_gpus_of_several_types() -> None:
    """Each job's own, whatever its part."""
    wants = Pop(Both(), k=2).rank(SIX).changes
    assert wants is not None
    assert wants.gpus_by_type is not None
    assert list(wants.gpus_by_type) == [f"gpu:k80:{job},gpu:v100:{job}" for job in range(1, 7)]


def test_pop__a_job_stays_in_its_part_and_is_remembered() -> None:
    """At the next look, with a job more, every job is where it was, and the round goes on."""
    policy = Pop(Gavel(), k=2)
    first = policy.rank(SIX)
    more = snapshot([{"job_id": n} for n in range(1, 8)], NODES, now_s=60.0)
    later = policy.rank(replace(more, carry=first.carry))
    assert later.why["part"][:6].tolist() == first.why["part"].tolist()
    assert later.why["in_round"][:6].tolist() == first.why["in_round"].tolist()


def test_pop__fewer_parts_where_a_gang_would_not_fit() -> None:
    """A gang of all 8 GPUs: one part."""
    given = snapshot([{"gpus": 8}, {"gpus": 1}], NODES)
    assert "part" not in Pop(Fifo(), k=8).rank(given).why


def test_pop__most_jobs_makes_more_parts() -> None:
    """Six jobs, two a part at most, but for the lots: four parts."""
    assert set(Pop(Fifo(), k=1, most_jobs=2).rank(SIX).why["part"].tolist()) <= {0, 1, 2, 3}


def test_pop__orders_are_merged_by_gpus_counted_out() -> None:
    """The first job of each part goes before the second of any."""
    ranking = Pop(Fifo(), k=2).rank(SIX)
    part = ranking.why["part"][ranking.order].tolist()
    assert set(part[:2]) == {0, 1}


def test_pop__next_change_is_the_first_of_any_part() -> None:
    """Rounds of both parts end after 360 s; a policy that never changes gives none."""
    ranking = Pop(Gavel(), k=2).rank(SIX)
    assert Pop(Gavel(), k=2).next_change_s(SIX, ranking, np.ones(6, np.bool_)) == 360.0
    assert Pop(Fifo(), k=2).next_change_s(SIX, Pop(Fifo(), k=2).rank(SIX), np.ones(6, np.bool_)) == np.inf


def test_pop__from_a_configuration() -> None:
    """`of` is a name, or a table with parameters."""
    assert registry.make_plugin("policies", "pop", {"of": "shockwave", "k": 4}) == Pop(Shockwave(), 4)
    assert registry.make_plugin("policies", "pop", {"of": {"name": "gavel", "objective": "ftf"}}) == Pop(Gavel("ftf"))


@pytest.mark.parametrize("of", [Themis(), Fifo(), Shockwave()], ids=lambda of: type(of).__name__)
def test_pop__conforms_whatever_it_splits(of) -> None:
    """Every rule of check_policy."""
    assert check_policy(Pop(of, k=2)) is None


def test_pop__refuses_bad_parameters() -> None:
    """No part at all is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Pop(k=0)
    assert caught.value.key == "policy.k"


@pytest.mark.parametrize("parts", [2, 4])
def test_partitioned__is_within_the_published_quality(parts: int) -> None:
    """POP's claim, within 1.5 % of the exact solution: the least gain and the sum of 600 jobs."""
    chance = np.random.default_rng(1)
    speed = np.column_stack([chance.uniform(0.1, 0.6, 600), chance.uniform(0.4, 0.9, 600), np.ones(600)])
    gpus = 2.0 ** chance.integers(0, 3, 600)
    given = AllocationProblem(np.full(3, 120.0), gpus, speed, np.full(600, 3_600.0), np.zeros(600), np.ones(600))
    fair = (programmes.equal_split(given) * speed).sum(axis=1)
    exact, split = (
        (solve_in_groups(max_min, given, count, seed=0) * speed).sum(axis=1) * gpus / fair for count in (1, parts)
    )
    assert split.min() >= 0.985 * exact.min()
    assert split.sum() >= 0.985 * exact.sum()


@pytest.mark.parametrize("policy", [DiscretizedLas(), Genie(), Gavel()], ids=["discretized-las", "genie", "gavel"])
def test_pop__changes_when_the_first_part_does(policy: Any) -> None:
    """The earliest change of all parts: with one part that of the policy, with more none before it."""
    given, running = mixed_snapshot(40, seed=1), np.arange(40) % 2 == 0
    alone = policy.next_change_s(given, policy.rank(given), running)
    for parts in (1, 4):
        split = Pop(policy, k=parts)
        found = split.next_change_s(given, split.rank(given), running)
        assert found == alone if parts == 1 else found > given.now_s
