"""horus: who shares with whom, by hand as on its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.policies.horus import Horus
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, measured_pairs_file, table

PAGE = (PAGES / "horus.md").read_text(encoding="utf-8")


def queue(nodes: str = "1x3", **hints: str) -> Any:
    """The jobs of the page. hints: more of them, of job1, job2 and so on."""
    rows = [{"job_id": number, "gpus": 1, "submit_s": float(number),
             "comment": f"slurmsched: model={row['model']} {hints.get(f'job{number}', '')}"}
            for number, row in enumerate(table(PAGE), 1)]  # fmt: skip
    return snapshot(rows, nodes, now_s=100.0)


def beside(policy: Horus, here: Any) -> list[int]:
    made = policy.rank(here)
    assert made.changes is not None and made.changes.beside is not None
    assert made.order.tolist() == list(range(len(here.jobs)))
    return made.changes.beside.tolist()


def test_horus__the_example_of_the_page() -> None:
    """4 goes beside 2 and 5 beside 3; 6 waits. With share=no at job 2 nobody is beside it."""
    assert beside(Horus(), queue()) == [-1, -1, -1, 2, 3, -1]
    assert beside(Horus(), queue(job2="share=no")) == [-1, -1, -1, -1, 3, -1]
    assert beside(Horus(most=1), queue()) == beside(Horus(), queue("1x6")) == [-1] * 6
    shown = Horus().rank(queue(job2="share=no")).why["use"]
    assert (shown[0], shown[1]) == (0.9, np.inf)


def test_horus__memory_and_the_cap_are_limits() -> None:
    """Two of 10 GiB do not fit into 16. Under a cap of 0.5 vgg19 finds nobody, and a2c only resnet18."""
    every = {f"job{number}": "gpu_mem=10" for number in range(1, 7)}
    assert beside(Horus(memory_gib=16.0), queue(**every)) == [-1] * 6
    assert beside(Horus(memory_gib=24.0), queue(**every))[3:5] == [2, 3]
    assert beside(Horus(memory_gib=24.0), queue(**every | {"job2": ""}))[3] == -1, "a job of unknown memory is alone"
    assert beside(Horus(cap=0.5), queue()) == [-1, -1, -1, -1, 2, -1]


def test_horus__a_model_without_prediction_shares_with_nobody() -> None:
    """Whatever there is beside it, and however high the cap."""
    rows = [{"gpus": 1, "comment": f"slurmsched: model={model}"} for model in ("other", "a2c")]
    assert beside(Horus(cap=4.0), snapshot(rows, "1x1")) == [-1, -1]


def test_horus__measured_pairs_come_before_the_prediction(tmp_path: Path) -> None:
    """vgg19 goes beside bert, whatever their use adds up to, where it loses less than beside resnet18. A model without
    prediction shares with those that it was measured beside, unless it does not share."""
    path = measured_pairs_file(tmp_path, vgg19_bert=(0.9, 0.9), vgg19_resnet18=(0.5, 0.6), mine_bert=(0.9, 0.9))
    assert beside(Horus(measured=path), queue())[3] == 1
    assert beside(Horus(measured=path), queue(job1="share=no"))[3] == 2
    for hint, host in (("", 7), ("share=no", -1)):
        rows = [{"job_id": 7, "gpus": 1, "comment": f"slurmsched: model=bert {hint}"},
                {"job_id": 8, "gpus": 1, "comment": "slurmsched: model=mine"}]  # fmt: skip
        assert beside(Horus(measured=path), snapshot(rows, "1x1")) == [-1, host]
    rows[0]["comment"] = "slurmsched: model=bert"
    slow = Horus(measured=measured_pairs_file(tmp_path, mine_bert=(0.4, 0.5)))
    assert beside(slow, snapshot(rows, "1x1")) == [-1, -1], "they would lose more than the job makes there"


def test_horus__jobs_that_may_not_share_hold_nobody_back() -> None:
    """Hundreds of them wait in front of one that may."""
    alone = [{"gpus": 1, "comment": "slurmsched: model=a2c share=no"} for _ in range(150)]
    runs = {"gpus": 1, "comment": "slurmsched: model=resnet18"}
    here = snapshot([runs, *alone, {"gpus": 1, "comment": "slurmsched: model=a2c"}], "1x1")
    assert beside(Horus(), here) == [-1] * 151 + [int(here.jobs.job_id[0])]


def test_horus__the_figures_of_the_page() -> None:
    """Muri's trace: waits are less than half of those of fifo."""
    request = ReplayRequest(cluster="8x8", policy="horus", placement="consolidated", physics="grouped", backfill="skip")
    figures = ReplaySession(shipped_trace("muri_trace3"), request).run().figures
    row = next(line for line in PAGE.splitlines() if line.startswith("| horus |"))
    shown = [float(cell.replace(",", "")) for cell in row.split("|")[2:5]]
    assert shown == [round(figures["avg_jct_s"]), round(figures["avg_wait_s"]), round(figures["mean_slowdown"], 2)]


def test_horus__says_what_is_wrong() -> None:
    """Five jobs on a GPU."""
    with pytest.raises(ConfigError, match="most"):
        Horus(most=5)
