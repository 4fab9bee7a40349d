"""salus: who goes into whose lane, by hand as on its page, and what lanes are worth in a replay."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.errors import ConfigError
from slurmsched.policies.salus import Salus
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, table

PAGE = (PAGES / "salus.md").read_text(encoding="utf-8")


def queue(**hints: str) -> Any:
    """The jobs of the page. hints: more of them, of job1, job2 and so on."""
    texts = [f"gpu_mem={row['`gpu_mem`']}" if row["`gpu_mem`"] else "" for row in table(PAGE)]
    texts = [f"slurmsched: {text} {hints.get(f'job{number}', '')}" for number, text in enumerate(texts, 1)]
    rows = [{"job_id": number, "gpus": 1, "submit_s": float(number), "comment": text}
            for number, text in enumerate(texts, 1)]  # fmt: skip
    return snapshot(rows, "1x2", now_s=100.0)


def beside(policy: Salus, here: Any) -> list[int]:
    changes = policy.rank(here).changes
    assert changes is not None and changes.beside is not None
    return changes.beside.tolist()


def test_salus__the_example_of_the_page() -> None:
    """Persistent memory of all and the rest of the largest; if all is persistent, what jobs need adds up."""
    told = [int(row["goes"].split()[1]) if row["goes"].startswith("beside") else -1 for row in table(PAGE)]
    assert beside(Salus(), queue()) == told == [-1, -1, 1, 1, -1, 2]
    assert beside(Salus(persistent=1.0), queue()) == [-1, -1, 2, -1, -1, -1]
    assert beside(Salus(memory_gib=14.0), queue()) == [-1, -1, 1, 2, -1, -1]
    assert beside(Salus(), queue(job1="share=no")) == [-1, -1, 2, 2, -1, -1]


def test_salus__of_equal_lanes_the_one_with_fewer_jobs() -> None:
    """Four jobs alike on two GPUs are two and two."""
    rows = [{"job_id": at, "gpus": 1, "submit_s": float(at), "comment": "slurmsched: gpu_mem=5"} for at in range(1, 5)]
    assert beside(Salus(), snapshot(rows, "1x2", now_s=100.0)) == [-1, -1, 1, 2]


@pytest.mark.parametrize(("order", "first"), [("fifo", 1), ("srtf", 2), ("fair", 3)])
def test_salus__the_orders(order: str, first: int) -> None:
    """By submission, remaining time and attained service."""
    jobs = (("3h", 90.0), ("1h", 60.0), ("2h", 0.0))
    rows = [{"job_id": at, "gpus": 1, "submit_s": float(at), "comment": f"slurmsched: gpu_mem=9 dur={dur}",
             "attained_gpu_s": used} for at, (dur, used) in enumerate(jobs, 1)]  # fmt: skip
    given = snapshot(rows, "1x1", now_s=100.0)
    made = Salus(order=order).rank(given)
    assert given.jobs.job_id[made.order[0]] == first
    assert next(iter(made.why)) in Salus.about.criteria


@pytest.mark.parametrize("policy", ["salus", "salus:persistent=1"])
def test_salus__the_figures_of_the_page(policy: str) -> None:
    """The first 80 jobs of Muri's trace."""
    trace = shipped_trace("muri_trace3").first(80)
    trace = trace.with_columns(comment=["slurmsched: gpu_mem=6"] * 80)
    request = ReplayRequest(cluster="4x8", policy=policy, placement="consolidated", physics="grouped", backfill="skip")
    figures = ReplaySession(trace, request).run().figures
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {policy} |"))
    shown = [float(cell.replace(",", "")) for cell in row.split("|")[2:5]]
    assert shown == [round(figures["avg_jct_s"]), round(figures["avg_wait_s"]), round(figures["mean_slowdown"], 2)]


def test_salus__says_what_is_wrong() -> None:
    """Another order, and more than all of the memory."""
    with pytest.raises(ConfigError, match="order"):
        Salus(order="lifo")
    with pytest.raises(ConfigError, match="persistent"):
        Salus(persistent=1.5)
