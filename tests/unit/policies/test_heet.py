"""Heet: the example of its page, samples while jobs run, trials, and what is filled in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.allocation.elastic import JobSizes
from slurmsched.allocation.speed_samples import choices_of_one_type, take_samples
from slurmsched.errors import ConfigError
from slurmsched.model import Snapshot
from slurmsched.policies.heet import Heet, matched, speeds
from slurmsched.testing import check_policy, snapshot

NODES = [{"name": "n1", "gpus": 1, "gpu_types": "gpu:k80:1"}, {"name": "n2", "gpus": 1, "gpu_types": "gpu:v100:1"}]
PAGE = np.array([[0.01, 0.02, 0.04]] * 2 + [[0.02] * 3] * 4)
MAY = np.ones(PAGE.shape, np.bool_)
ONE = JobSizes(np.array([1]), np.ones(1))


def jobs(*progress: int) -> list[dict[str, object]]:
    return [{"job_id": n, "comment": f"slurmsched: progress={done}/100"} for n, done in enumerate(progress, 1)]


def after(policy: Heet, given: Snapshot, *progress: int) -> Snapshot:
    """A round later, when whoever was in it ran and made progress."""
    ranked = policy.rank(given)
    ran_s = given.jobs.executed_s + np.where(ranked.why["in_round"] > 0, 360.0, 0.0)
    later = snapshot(jobs(*progress), NODES, now_s=given.now_s + 360.0, carry=ranked.carry)
    return replace(later, jobs=later.jobs.with_columns(executed_s=ran_s))


def test_matched__the_example_of_the_page() -> None:
    """One of the first two has the V100, three of the others the rest: bids of 4 in all."""
    speed = speeds(PAGE, MAY, probes=3)
    assert speed[0].tolist() == pytest.approx([0.25, 0.5, 1.0])
    each = choices_of_one_type(speed, [ONE] * 6)
    on = matched(each.speed, each.gpus, np.array([1.0, 2.0, 1.0]))
    assert on is not None
    assert on.tolist() == [2, -1, *on[2:].tolist()]
    assert sorted(on[2:].tolist()) == [-1, 0, 1, 1]


def test_matched__gangs_are_whole() -> None:
    """Three GPUs hold a gang of two and one of one, never a part of the other gang of two."""
    bids, gpus = np.array([[2.0], [2.0], [1.0]]), np.array([2.0, 2.0, 1.0]).reshape(3, 1, 1)
    found = matched(bids, gpus, np.array([3.0]))
    assert found is not None and found.tolist() == [0, -1, 0]


def test_heet__without_a_solution_the_last_round_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is stopped because the solver found nothing, and the ranking says so."""
    first = Heet().rank(snapshot(jobs(0, 0, 0), NODES))
    monkeypatch.setattr("slurmsched.policies.heet.matched", lambda *_: None)
    later = Heet().rank(snapshot(jobs(0, 0, 0), NODES, now_s=3_600.0, carry=first.carry))
    assert later.why["in_round"].tolist() == first.why["in_round"].tolist()
    assert first.why["in_round"].sum() == 2
    assert later.notes[0].startswith("the solver found no solution")


def test_speeds__types_not_tried_yet_are_tried() -> None:
    """Tried on one type of two: the other one counts as the fastest, until both are known."""
    rate = np.array([[0.02, np.nan]])
    assert speeds(rate, MAY[:1, :2], probes=2).argmax() == 1
    assert speeds(np.array([[0.02, 0.01]]), MAY[:1, :2], probes=2).argmax() == 0


def test_speeds__gaps_are_filled_in_from_other_jobs() -> None:
    """Everybody else is four times as fast on the second type: so is a job that was tried on the first alone."""
    rate = np.array([[0.01, 0.04]] * 4 + [[0.02, np.nan]])
    assert speeds(rate, np.ones(rate.shape, np.bool_), probes=1)[-1, 0] == pytest.approx(0.25, rel=0.2)


def test_speeds__never_where_a_job_may_not_run() -> None:
    """A type that a job has no room on stays at 0."""
    assert speeds(PAGE[:1], np.array([[False, True, True]]), probes=3)[0, 0] == 0.0


def test_sampled__progress_counts_for_the_type_of_the_round() -> None:
    """Ten hundredths in 360 s on the type that it was on, nothing for the other."""
    policy, given = Heet(), snapshot(jobs(0), NODES)
    first = policy.rank(given).changes.gpu_type[0]  # type: ignore[union-attr]
    found = take_samples(after(policy, given, 10), ("k80", "v100"), 0.02)
    assert found.rate[0, ("k80", "v100").index(first)] == pytest.approx(0.1 / 360)
    assert found.tried.tolist() == [1]


def test_heet__a_job_is_tried_on_both_types_then_goes_where_it_is_faster() -> None:
    """Alone: first one type, then the other, then for good the one on which it made more progress."""
    policy, now, total, seen = Heet(), snapshot(jobs(0), NODES), 0, list[str]()
    for _ in range(4):
        kind = policy.rank(now).changes.gpu_type[0]  # type: ignore[union-attr]
        seen.append(kind)
        total += {"k80": 2, "v100": 8}[kind]
        now = after(policy, now, total)
    assert set(seen[:2]) == {"k80", "v100"}
    assert seen[2:] == ["v100", "v100"]


def test_heet__who_waits_bids_more() -> None:
    """Three jobs on two GPUs: nobody waits for two rounds."""
    policy, now = Heet(), snapshot(jobs(0, 0, 0), NODES)
    waited = []
    for step in range(1, 5):
        now = after(policy, now, step, step, step)
        waited.append(policy.rank(now).why["rounds_waited"].max())
    assert max(waited) <= 1.0


def test_heet__says_what_it_does_not_know() -> None:
    """Jobs without progress hints are counted in one note."""
    assert Heet().rank(snapshot([{}], NODES)).notes == ("1 job without progress hints: as fast on every GPU type",)


FOUR = [{"name": "n1", "gpus": 4, "gpu_types": "gpu:v100:4"}]


def elastic(asked: int, low: int, high: int) -> dict[str, object]:
    return {"gpus": asked, "comment": f"slurmsched: progress=0/100 min_gpus={low} max_gpus={high}"}


def test_heet__an_elastic_job_makes_room_and_grows() -> None:
    """Halved from 4 GPUs a job keeps 52 % of its speed: 4 x 0.52 + 2 is more than its 4 alone. Alone it has the most it
    may have."""
    rigid = {"gpus": 2, "comment": "slurmsched: progress=0/100"}
    both = Heet().rank(snapshot([elastic(4, 1, 4), rigid], FOUR))
    alone = Heet().rank(snapshot([elastic(1, 1, 4)], FOUR))
    assert [ranked.changes.gpus.tolist() for ranked in (both, alone)] == [[2, 0], [4]]  # type: ignore[union-attr]
    assert both.why["in_round"].tolist() == [1, 1]


def test_heet__without_elastic_sizes_stay() -> None:
    """The job of 4 GPUs has them all, and the other waits."""
    rigid = {"gpus": 2, "comment": "slurmsched: progress=0/100"}
    ranked = Heet(elastic=False).rank(snapshot([elastic(4, 1, 4), rigid], FOUR))
    assert (ranked.changes.gpus, ranked.why["in_round"].tolist()) == (None, [1, 0])  # type: ignore[union-attr]


def test_heet__progress_at_another_size_counts_as_at_the_one_asked_for() -> None:
    """A round on 4 GPUs in place of 1 makes 3.77 times the progress: 4 % there are 1.06 % on one. The size stays within
    the round."""
    first = snapshot([elastic(1, 1, 4)], FOUR)
    ranked = Heet().rank(first)
    row = elastic(1, 1, 4) | {"comment": "slurmsched: progress=4/100 min_gpus=1 max_gpus=4", "executed_s": 360.0}
    later = snapshot([row], FOUR, now_s=first.now_s + 100.0, carry=ranked.carry)
    assert take_samples(later, ("v100",), 0.02).made[0, 0] == pytest.approx(0.04 * (0.02 + 0.98 / 4))
    assert Heet().rank(later).changes.gpus.tolist() == [4]  # type: ignore[union-attr]


def test_heet__progress_counts_for_the_size_and_type_that_a_job_holds() -> None:
    """Planned at 2 of 4 GPUs, or on the other type, and run on 4 GPUs of the K80s as it asks: 4 % there are 4 %."""
    both = [{"name": "n1", "gpus": 4, "gpu_types": "gpu:k80:4"}, {"name": "n2", "gpus": 4, "gpu_types": "gpu:v100:4"}]
    first = snapshot([elastic(4, 1, 4)], both)
    row = elastic(4, 1, 4) | {"comment": "slurmsched: progress=4/100 min_gpus=1 max_gpus=4", "executed_s": 360.0}
    for on, size, pace in ((1, 4.0, 1.0), (0, 2.0, 0.52)):
        planned = {f"gpus {name}": [size * (column == on)] for column, name in enumerate(("k80", "v100"))}
        carry = {**Heet().rank(first).carry, **planned, "pace": [pace]}
        held = [{"job_id": 1, "node": "n1", "gpus": 4}]
        later = snapshot([row | {"state": "running"}], both, now_s=100.0, carry=carry, allocations=held)
        assert take_samples(later, ("k80", "v100"), 0.02).made.tolist() == [[pytest.approx(0.04), 0.0]]


def test_heet__progress_counts_for_what_a_job_held_before_it_was_stopped() -> None:
    """Seen on the K80, stopped, on the V100, and on the K80 again: the time in which it was on both counts for none."""
    held = {name: [{"job_id": 1, "node": name, "gpus": 1}] for name in ("n1", "n2")}
    carry, seen = Heet().rank(snapshot(jobs(0), NODES)).carry, []
    for step, node in enumerate(("n1", "", "n2", "n1"), 1):
        row = jobs(step)[0] | {"executed_s": 60.0 * step, "state": "running" if node else "pending"}
        now = snapshot([row], NODES, now_s=10.0 * step, carry=carry, allocations=held.get(node, []))
        seen.append(take_samples(now, ("k80", "v100"), 0.02).ran_s[0].tolist())
        carry = Heet().rank(now).carry
    assert seen == [[60.0, 0.0], [120.0, 0.0], [120.0, 60.0], [120.0, 60.0]]


def test_heet__conforms_without_fill() -> None:
    """Every rule of check_policy."""
    assert check_policy(Heet(fill=False)) is None


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"probes": 0}, "policy.probes"), ({"round_s": 0.0}, "policy.round_s"), ({"most_jobs": 0}, "policy.most_jobs"),
        ({"serial": 2.0}, "policy.serial"), ({"mixed": "yes"}, "policy.mixed"),
        ({"mixed_efficiency": 0.0}, "policy.mixed_efficiency"), ({"mixed_efficiency": 1.1}, "policy.mixed_efficiency"),
    ],
)  # fmt: skip
def test_heet__refuses_bad_parameters(parameters, key: str) -> None:
    """A parameter out of range is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Heet(**parameters)
    assert caught.value.key == key
