"""Pairs on the same GPUs, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.allocation.job_packing import ALONE, JUMBO, MEDIUM, NEVER, TINY, choose_hosts, sharing_scores
from slurmsched.model import Snapshot
from slurmsched.policies.lucid import Lucid
from slurmsched.testing import check_policy, snapshot

Row = dict[str, Any]


def running(job_id: int, gpus: int = 2, node: str = "n1", mask: int = 0b11, start_s: float = 0.0, **more: Any) -> Row:
    """A job that runs, and below its name who holds what."""
    return {"job_id": job_id, "gpus": gpus, "state": "RUNNING", "start_s": start_s, "held": (node, mask), **more}


def site(*rows: Row, nodes: str = "2x2", **more: Any) -> Snapshot:
    """A full cluster: what runs holds what it says, GPUs of one node that two hold are used once."""
    names = snapshot((), nodes).nodes.name
    held, used = [], dict.fromkeys(names, 0)
    for row in rows:
        if "held" in row:
            node, mask = names[int(row["held"][0][1:]) - 1], row["held"][1]
            held.append({"job_id": row["job_id"], "node": node, "gpus": row["gpus"], "gpu_mask": mask})
            used[node] |= mask
    jobs = [{name: value for name, value in row.items() if name != "held"} for row in rows]
    made = snapshot(jobs, nodes, allocations=held, **more)
    counts = [used[name].bit_count() for name in names]
    return replace(made, nodes=made.nodes.with_columns(gpus_used=np.array(counts, np.int32)))


def paired(given: Snapshot, score: Any = 0.0, gpu_s: Any = 100.0, most_gpus: int = 8, order: Any = None) -> list[int]:
    """Whom each job goes beside; scores and services alike unless told."""
    jobs = len(given.jobs)
    rows = np.arange(jobs) if order is None else np.array(order)
    broadcast = (np.broadcast_to(np.asarray(column, np.float64), jobs) for column in (score, gpu_s))
    return choose_hosts(given, rows, *broadcast, most_gpus).tolist()


def waiting(job_id: int, gpus: int = 2, **more: Any) -> Row:
    return {"job_id": job_id, "gpus": gpus, **more}


FULL = (running(1), running(2, node="n2"))


def test_beside__a_job_that_finds_no_gpus_shares() -> None:
    """Both nodes are full: the third job goes beside the first of the order, the fourth beside the second, the fifth
    waits."""
    given = site(*FULL, waiting(3), waiting(4), waiting(5))
    assert paired(given) == [ALONE, ALONE, 1, 2, ALONE]
    assert paired(given, order=[1, 0, 4, 3, 2]) == [ALONE, ALONE, ALONE, 1, 2]


def test_beside__who_finds_free_gpus_shares_none() -> None:
    """One node is free: the third job takes it, and only the fourth goes beside the first."""
    given = site(running(1), waiting(3), waiting(4))
    assert paired(given) == [ALONE, ALONE, 1]


@pytest.mark.parametrize(
    ("scores", "host"),
    [((0, 2), 1), ((2, 0), 1), ((1, 1), 1), ((1, 2), ALONE), ((2, 2), ALONE), ((NEVER, 0), ALONE), ((0, NEVER), ALONE)],
)
def test_beside__scores_sum_to_two_at_most(scores: tuple[float, float], host: int) -> None:
    """Of the host, and of the one that comes beside it."""
    given = site(running(1), waiting(3), nodes="1x2")
    assert paired(given, scores) == [ALONE, host]


def test_beside__the_lightest_host_is_taken() -> None:
    """The second host has a lower score than the first, and comes later in the order."""
    given = site(*FULL, waiting(3))
    assert paired(given, (1, 0, 1)) == [ALONE, ALONE, 2]


@pytest.mark.parametrize(("gpus", "most", "host"), [(2, 2, 1), (2, 1, ALONE), (1, 8, ALONE), (4, 8, ALONE)])
def test_beside__only_jobs_of_as_many_gpus_and_no_more_than_allowed(gpus: int, most: int, host: int) -> None:
    """The running job has two GPUs."""
    given = site(running(1), waiting(3, gpus), nodes="1x2")
    assert paired(given, most_gpus=most) == [ALONE, host]


@pytest.mark.parametrize(("gpu_s", "host"), [((100.0, 200.0), 1), ((100.0, 201.0), ALONE), ((np.inf, np.inf), 1)])
def test_beside__not_much_longer_than_its_host(gpu_s: tuple[float, float], host: int) -> None:
    """Twice the service is allowed; nothing known of either is."""
    assert paired(site(running(1), waiting(3), nodes="1x2"), gpu_s=gpu_s) == [ALONE, host]


def test_beside__a_guest_stays_and_a_host_has_one() -> None:
    """Job 2 is on job 1's GPUs and started later, so it is the guest; nobody else comes."""
    given = site(running(1), running(2, start_s=5.0), waiting(3), nodes="1x2")
    assert paired(given) == [ALONE, 1, ALONE]
    given = site(running(1, start_s=5.0), running(2), waiting(3), nodes="1x2")
    assert paired(given) == [2, ALONE, ALONE]


def test_beside__of_two_that_started_together_the_lower_id_is_the_host() -> None:
    """So that the next look says the same."""
    assert paired(site(running(1), running(2), nodes="1x2")) == [ALONE, 1]


def test_beside__parts_of_a_node_are_not_shared_by_name_alone() -> None:
    """Two jobs on the same node with other GPUs are no pair; where no GPU is told, nobody is."""
    assert paired(site(running(1, 1, mask=1), running(2, 1, mask=2), nodes="1x2")) == [ALONE, ALONE]
    assert paired(site(running(1, 1, mask=0), running(2, 1, mask=0), nodes="1x2")) == [ALONE, ALONE]


def test_beside__held_suspended_and_empty() -> None:
    """Who may not start goes nowhere, a suspended job is no host, and nobody is nothing."""
    held = {"job_id": 3, "gpus": 2, "priority": 0}
    assert paired(site(running(1), held, nodes="1x2")) == [ALONE, ALONE]
    asleep = running(1) | {"state": "SUSPENDED"}
    assert paired(site(asleep, waiting(3), nodes="1x2")) == [ALONE, ALONE]
    assert paired(snapshot(())) == []


def test_lucid__conforms_with_pairs() -> None:
    """The rules of all policies, on full clusters too: rows in another order make the same pairs."""
    check_policy(Lucid(pack=True, tiny=("ncf",)), [site(*FULL, waiting(3), waiting(4), waiting(5))])


def test_sharing_scores__hint_before_model() -> None:
    """share=no is never packed, share=yes is tiny whatever the model, a model by its word, anything else is jumbo."""
    comments = ["share=no model=ncf", "share=yes model=bert", "model=NCF-big", "model=resnet18", "model=bert", ""]
    given = snapshot([{"comment": f"slurmsched: {comment}" if comment else ""} for comment in comments])
    scores = sharing_scores(given.jobs, ("ncf",), ("resnet",))
    assert scores.tolist() == [NEVER, TINY, TINY, MEDIUM, JUMBO, JUMBO]
