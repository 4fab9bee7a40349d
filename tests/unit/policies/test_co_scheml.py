"""co-scheml: beside whom a waiting job goes, by hand as on its page, and what that is worth in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.config_file import parse_config
from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.planning.planner import Planner
from slurmsched.policies.co_scheml import CoScheMl
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, table

PAGE = (PAGES / "co-scheml.md").read_text(encoding="utf-8")


def queue(nodes: str = "1x3", **hints: str) -> Any:
    """The jobs of the page. hints: more of them, of job1, job2 and so on."""
    rows = []
    for row in table(PAGE):
        model = row["model"].replace(" (batch size ", " batch=").replace(")", "")
        rows.append({"job_id": int(row["job"]), "gpus": 1, "submit_s": float(row["job"]),
                     "comment": f"slurmsched: model={model} {hints.get('job' + row['job'], '')}"})  # fmt: skip
    return snapshot(rows, nodes, now_s=100.0)


def beside(policy: CoScheMl, here: Any) -> list[int]:
    made = policy.rank(here)
    assert made.changes is not None and made.changes.beside is not None
    assert made.order.tolist() == list(range(len(here.jobs)))
    return made.changes.beside.tolist()


def test_co_scheml__the_example_of_the_page() -> None:
    """4 goes beside 1, 5 beside 2 and 6 beside 3; with share=no at job 1, 4 beside 3."""
    assert beside(CoScheMl(), queue()) == [-1, -1, -1, 1, 2, 3]
    assert beside(CoScheMl(), queue(job1="share=no"))[3] == 3
    assert beside(CoScheMl(), queue("1x6")) == beside(CoScheMl(most=1), queue()) == [-1] * 6


def test_co_scheml__says_what_each_job_keeps_of_its_speed() -> None:
    """Both jobs of a group, here by the fit to all pairs; a job in none has no figure."""
    kept = CoScheMl().rank(queue(job1="share=no")).why["kept"]
    pair = GroupSpeeds("").kept(("ResNet-50 (batch size 128)", "A3C"), 1)
    assert [kept[2], kept[3]] == [round(share, 2) for share in pair.kept]
    assert kept[0] == np.inf and 0 < kept[3] <= 1


def test_co_scheml__pairs_of_the_sites_own_profiles_come_first(tmp_path: Path) -> None:
    """The figures that the daemon measured replace the published ones, also of jobs without the hint `model`. The
    configuration names the file to the policy."""
    path = tmp_path / "profiles.csv"
    rates = [("A3C", "", 10), ("A3C", "LM (batch size 80)", 9), ("LM,80", "", 80), ("LM,80", "A3C", 60),
             ("ann:x", "", 8), ("ann:x", "A3C", 6), ("A3C", "ann:x", 9)]  # fmt: skip
    lines = (f"{kind if ',' in kind else kind + ','},1,a100,{rate},{other}" for kind, other, rate in rates)
    path.write_text("\n".join(["model,batch,gpus,gpu_type,steps_per_s,beside", *lines]) + "\n")
    config = parse_config({"policy": {"name": "co-scheml"}, "measured_use": {"profiles": str(path)}})
    policy = Planner.from_config(config).policy
    assert policy == CoScheMl(measured=str(path))
    comments = ["slurmsched: model=A3C", "slurmsched: model=LM batch=80"]
    rows = [{"job_id": at, "gpus": 1, "submit_s": at, "comment": text} for at, text in enumerate(comments, 1)]
    why = policy.rank(snapshot(rows, "1x1")).why
    assert (why["kept"].tolist(), why["figure"].tolist()) == ([0.9, 0.75], [1.0, 1.0])
    why = policy.rank(snapshot([rows[0], {**rows[1], "comment": "", "user": "ann", "name": "x"}], "1x1")).why
    assert (why["kept"].tolist(), why["figure"].tolist()) == ([0.9, 0.75], [1.0, 1.0])
    assert CoScheMl().rank(snapshot(rows, "1x1")).why["figure"].tolist() == [3.0, 3.0]


def test_co_scheml__models_that_no_table_knows_run_alone() -> None:
    """Whatever there is beside them."""
    rows = [{"gpus": 1, "comment": f"slurmsched: model={model}"} for model in ("A3C", "other", "A3C")]
    assert beside(CoScheMl(), snapshot(rows, "1x1"))[1] == -1


def test_co_scheml__memory_is_a_limit() -> None:
    """No two of 10 GiB fit into 16, and three of 5 do."""
    every = {f"job{number}": "gpu_mem=10" for number in range(1, 7)}
    assert beside(CoScheMl(memory_gib=16.0), queue(**every)) == [-1] * 6
    small = dict.fromkeys(every, "gpu_mem=5")
    hosts = beside(CoScheMl(memory_gib=16.0), queue("1x1", **small))
    assert 1 <= hosts.count(1) <= 2


def test_co_scheml__who_would_cost_more_than_it_makes_waits() -> None:
    """On one GPU a fourth heavy job adds nothing: somebody waits, though four may be there."""
    hosts = beside(CoScheMl(), queue("1x1"))
    assert hosts[0] == -1 and 1 in hosts and hosts[1:].count(-1) > 0


def test_co_scheml__the_figures_of_the_page() -> None:
    """Gavel's 96 jobs: waits are a fifth of those of fifo, and jobs end sooner in the mean."""
    for policy in ("fifo", "co-scheml"):
        request = ReplayRequest(cluster="8x4", policy=policy, placement="consolidated", physics='grouped:stages=""',
                                backfill="skip")  # fmt: skip
        figures = ReplaySession(shipped_trace("gavel_96_v100"), request).run().figures
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {policy} |"))
        told = [float(cell.replace(",", "")) for cell in row.strip("| ").split(" | ")[1:]]
        assert [figures["avg_jct_s"], figures["avg_wait_s"]] == pytest.approx(told[:2], abs=0.5)
        assert figures["mean_slowdown"] == pytest.approx(told[2], abs=0.005)


@pytest.mark.parametrize("third_s", [2.0, -1.0])
def test_co_scheml__a_group_that_may_no_longer_share_grows_no_further(third_s: float) -> None:
    """Jobs 1 and 2 share a GPU, and 1 now says share=no. Job 4 goes beside 3, whether 3 came first or last."""
    model = "slurmsched: model={} {}".format
    rows = [
        {"job_id": 1, "submit_s": 0.0, "start_s": 0.0, "comment": model("ResNet-18 batch=64", "share=no")},
        {"job_id": 2, "submit_s": 1.0, "start_s": 1.0, "comment": model("ResNet-18 batch=64", "")},
        {"job_id": 3, "submit_s": third_s, "start_s": 2.0, "comment": model("A3C", "")},
    ]
    rows = [{"gpus": 1, "state": "RUNNING", **row} for row in rows]
    rows.append({"job_id": 4, "gpus": 1, "submit_s": 5.0, "comment": model("A3C", "")})
    entries = [{"job_id": job, "node": "n1", "gpus": 1, "gpu_mask": mask} for job, mask in ((1, 1), (2, 1), (3, 2))]
    made = CoScheMl().rank(snapshot(rows, "1x2", now_s=100.0, allocations=entries))
    assert made.changes is not None and made.changes.beside is not None
    assert made.changes.beside.tolist() == [-1, 1, -1, 3]
