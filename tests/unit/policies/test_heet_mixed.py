"""Heet with `mixed`: the example of its page, who may have two types, and what is learnt of jobs that do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.allocation.elastic import JobSizes
from slurmsched.allocation.speed_samples import MOST_PAIRS, choices_of_two_types, take_samples
from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Int32s
from slurmsched.model.overrides import request_of_types, types_of
from slurmsched.policies.heet import Heet
from slurmsched.testing import check_policy, snapshot

TYPES = ("p100", "v100")
TWELVE = [{"name": f"{name}-{n}", "gpus": 4, "gpu_types": f"gpu:{name}:4"} for name in TYPES for n in (1, 2, 3)]
EVERY = np.ones((1, 2), np.bool_)


def page(hint: str = " mixed=yes", gpus: int = 8, **job: Any) -> list[dict[str, Any]]:
    """Three jobs of eight GPUs that were half as fast on P100 as on V100."""
    return [{"job_id": n, "gpus": gpus, "comment": f"slurmsched: progress=3/100{hint}", **job} for n in (1, 2, 3)]


def carry(rows: list[dict[str, Any]], **more: list[float]) -> dict[str, Any]:
    """As left by a round in which they had made 1 % in 360 s on a P100, and 2 % on a V100."""
    jobs, zeros = len(rows), [0.0] * len(rows)
    by_type = {f"{what} {name}": zeros for what in ("gpus", "has") for name in TYPES}
    seen = {
        "made p100": [0.01] * jobs,
        "made v100": [0.02] * jobs,
        **{f"took {name}": [360.0] * jobs for name in TYPES},
    }
    several = {"made several": zeros, "due several": zeros, "has others": zeros}
    by_job = {"waited": zeros, "done": [0.03] * jobs, "ran_s": [720.0] * jobs, "pace": [1.0] * jobs}
    ids = {"job_id": [row["job_id"] for row in rows], "arrival_s": zeros}
    return {"heet": {"begun_s": 0.0}, **ids, **by_type, **seen, **several, **by_job, **more}


def ranked(rows: list[dict[str, Any]], policy: Heet = Heet(mixed=True), **more: list[float]) -> Ranking:  # noqa: B008
    rows = [{"executed_s": 720.0, "submit_s": 0.0, **row} for row in rows]
    return policy.rank(snapshot(rows, TWELVE, now_s=1_000.0, carry=carry(rows, **more)))


def requests(found: Ranking) -> list[str]:
    assert found.changes is not None
    return [""] * 3 if found.changes.gpus_by_type is None else sorted(found.changes.gpus_by_type)


def test_heet_mixed__the_example_of_the_page() -> None:
    """One has eight V100, one eight P100, the third four of each at 0.9 x (1 + 0.5) / 2 = 0.675: all three are in the
    round. Without `mixed` two are."""
    found = ranked(page())
    assert requests(found) == ["", "", "gpu:p100:4,gpu:v100:4"]
    assert found.why["in_round"].tolist() == [1, 1, 1]
    assert ranked(page(), Heet()).why["in_round"].sum() == 2


@pytest.mark.parametrize("hint", ["", " mixed=no"])
def test_heet_mixed__only_jobs_that_say_so(hint: str) -> None:
    """The third waits."""
    found = ranked(page(hint))
    assert (requests(found), found.why["in_round"].sum()) == (["", "", ""], 2)


@pytest.mark.parametrize(("nodes", "mixes"), [(1, False), (2, True), (3, False)])
def test_heet_mixed__a_job_of_one_node_has_one_type(nodes: int, mixes: bool) -> None:
    """Nodes of twelve GPUs, jobs of eight. Slurm gives a job of one node one type, and each node of a gang as many
    GPUs: nobody counts on both types for one that cannot have them."""
    pair = [{"name": name, "gpus": 12, "gpu_types": f"gpu:{name}:12"} for name in TYPES]
    rows = [{"executed_s": 720.0, "submit_s": 0.0, **row} for row in page(nodes=nodes)]
    found = Heet(mixed=True).rank(snapshot(rows, pair, now_s=1_000.0, carry=carry(rows)))
    assert found.changes is not None and (found.changes.gpus_by_type is not None) == mixes
    assert found.why["in_round"].sum() == 2 + mixes


def test_heet_mixed__first_each_type_is_tried() -> None:
    """Seen on one type only, a job goes to the other one, not to both."""
    untried: dict[str, list[float]] = {"made v100": [0.0] * 3, "took v100": [0.0] * 3}
    found = ranked(page(), **untried)
    assert requests(found) == ["", "", ""]


def test_heet_mixed__a_gang_of_several_nodes_has_whole_ones_of_each() -> None:
    """Twelve GPUs on three nodes of four have no half, quarter or three quarters of whole nodes: two are in the round.
    On one node, as where nothing is said, all parts will do."""
    taken = [{"job_id": 9, "gpus": 4, "comment": "", "gpu_request": f"gpu:{name}:4"} for name in TYPES]
    taken = [{**row, "job_id": 8 + n} for n, row in enumerate(taken)]
    three = page(gpus=12, nodes=3)[:1] + taken
    one = page(gpus=12, nodes=1)[:1] + taken
    found = [[text for text in requests(ranked(rows)) if text] for rows in (three, one)]
    assert found == [[], ["gpu:p100:6,gpu:v100:6"]]


def beside() -> list[dict[str, Any]]:
    """A job of eight, and others that take ten of twelve P100 and six of twelve V100."""
    own = [{"job_id": 2 + n, "gpus": gpus, "gpu_request": f"gpu:{name}:{gpus}", "comment": ""}
           for n, (name, gpus) in enumerate([("p100", 10), ("v100", 6)])]  # fmt: skip
    return [page()[0], *own]


def test_heet_mixed__tells_the_type_of_most_for_who_can_give_one_only() -> None:
    """Two P100 and six V100 at 0.9 x 0.875: 10 + 6 + 6.3 is more than 10 + 8 with all eight on V100."""
    wants = ranked(beside()).changes
    assert wants is not None
    assert wants.gpus_by_type is not None
    assert (wants.gpus_by_type[0], wants.gpu_type[0]) == ("gpu:p100:2,gpu:v100:6", "v100")


def test_heet_mixed__who_is_slow_on_two_types_has_one() -> None:
    """Seen at a tenth of the sum, 10 + 6 + 0.7 is less: it has eight V100, and the job of six waits."""
    found = ranked(beside(), **{"made several": [0.01] * 3, "due several": [0.1] * 3})
    assert (requests(found), found.why["in_round"].tolist()) == (["", "", ""], [1, 1, 0])


def learnt(done: int, others: int = 0) -> Snapshot:
    """The first job has made so many hundredths in 400 s more, on four P100 and four V100."""
    rows = [{"executed_s": 720.0, "submit_s": 0.0, **row} for row in page()]
    rows[0] |= {"state": "RUNNING", "executed_s": 1_120.0}
    rows[0]["comment"] = f"slurmsched: progress={3 + done}/100 mixed=yes"
    had = {"has p100": [4.0, 0.0, 0.0], "has v100": [4.0, 0.0, 0.0], "has others": [float(others), 0.0, 0.0]}
    held = [{"job_id": 1, "node": "p100-1", "gpus": 4}, {"job_id": 1, "node": "v100-1", "gpus": 4}]
    return snapshot(rows, TWELVE, now_s=1_000.0, carry=carry(rows, **had), allocations=held)


def test_sampled__progress_on_two_types_tells_the_efficiency() -> None:
    """By the sum of a half at 1 % and a half at 2 % in 360 s, 400 s make 1.67 %: with 1 % the efficiency is 0.6, of
    this job and of all that were not seen so. What is known of each type alone stays."""
    found = take_samples(learnt(1), TYPES, 0.02)
    assert found.several[0].tolist() == pytest.approx([0.01, 400 * 0.015 / 360])
    assert found.efficiency(0.9).tolist() == pytest.approx([0.6, 0.6, 0.6])
    assert found.made[0].tolist() == [0.01, 0.02]
    assert take_samples(learnt(5), TYPES, 0.02).efficiency(0.9).tolist() == [1.0] * 3


def test_sampled__who_is_on_another_type_too_tells_nothing() -> None:
    """It held GPUs of a type that is not known, which it has no longer."""
    assert take_samples(learnt(1, others=2), TYPES, 0.02).efficiency(0.9).tolist() == [0.9] * 3


def test_heet_mixed__remembers_jobs_that_are_delayed() -> None:
    """Requeued, it may not start for two minutes: what was seen of it is kept."""
    rows = [{"executed_s": 720.0, "submit_s": 0.0, **row} for row in page()]
    rows[0]["eligible_s"] = 1_120.0
    left = Heet(mixed=True).rank(snapshot(rows, TWELVE, now_s=1_000.0, carry=carry(rows))).carry
    assert left["job_id"] == [1, 2, 3]
    assert left["made v100"] == [0.02] * 3
    assert left["waited"][0] == 0.0


def nodes(count: int) -> Int32s:
    return np.full(1, count, np.int32)


def test_on_two__sizes_and_parts() -> None:
    """Of two and four GPUs: 1 + 1; 1 + 3, 2 + 2, 3 + 1. Each size has its own pace."""
    found = choices_of_two_types(
        np.array([[0.5, 1.0]]), [JobSizes(np.array([2, 4]), np.array([1.0, 1.9]))], EVERY, np.ones(1), nodes(1)
    )
    assert found.gpus[0].tolist() == [[1, 3], [1, 1], [2, 2], [3, 1]]
    assert found.pace[0].tolist() == [1.9, 1.0, 1.9, 1.9]
    assert found.speed[0].tolist() == [0.875, 0.75, 0.75, 0.625]


def test_on_two__no_more_than_the_nearest_pairs() -> None:
    """Of eight types six pairs, three parts each; the fastest and the slowest are none of them."""
    speed = 2.0 ** -np.arange(8.0)[None, :]
    found = choices_of_two_types(
        speed, [JobSizes(np.array([4]), np.ones(1))], np.ones((1, 8), np.bool_), np.ones(1), nodes(1)
    )
    assert found.gpus.shape == (1, 3 * MOST_PAIRS, 8)
    assert not ((found.gpus[0, :, 0] > 0) & (found.gpus[0, :, 7] > 0)).any()


def test_on_two__nobody_can() -> None:
    """One type, or one GPU: no choices."""
    one = choices_of_two_types(
        np.ones((1, 1)), [JobSizes(np.array([4]), np.ones(1))], EVERY[:, :1], np.ones(1), nodes(1)
    )
    single = choices_of_two_types(np.ones((1, 2)), [JobSizes(np.array([1]), np.ones(1))], EVERY, np.ones(1), nodes(1))
    assert (one.gpus.shape, single.gpus.shape) == ((1, 0, 1), (1, 0, 2))


def test_heet_mixed__conforms() -> None:
    """Every rule of check_policy."""
    assert check_policy(Heet(mixed=True)) is None


def test_request_of__and_back() -> None:
    """Types ascend; what names no type is left out."""
    assert request_of_types({"v100": 4, "k80": 2}) == "gpu:k80:2,gpu:v100:4"
    assert types_of("gpu:k80:2,gpu:v100:4,gpu:8") == {"k80": 2, "v100": 4}
