"""muri: groups of jobs by their stages, by hand as on its page, and what they take in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.model.trace import Trace
from slurmsched.policies.muri import Muri
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, measured_pairs_file, table


def six(nodes: str, **hints: str) -> Any:
    """The jobs of the page. hints: more of them, by model."""
    rows = table((PAGES / "muri.md").read_text(encoding="utf-8"))
    return snapshot(
        [{"job_id": int(row["job"]), "gpus": 1,
          "comment": f"slurmsched: model={row['model']} dur={row['run time [s]']}s {hints.get(row['model'], '')}"}
         for row in rows], nodes,
    )  # fmt: skip


def beside(policy: Muri, here: Any) -> tuple[list[int], list[int]]:
    made = policy.rank(here)
    assert made.changes is not None and made.changes.beside is not None
    return here.jobs.job_id[made.order].tolist(), made.changes.beside.tolist()


def test_muri__the_example_of_the_page() -> None:
    """Two GPUs: a group of four and one of two."""
    assert beside(Muri(), six("1x2")) == ([1, 2, 3, 5, 4, 6], [-1, 1, 1, -1, 1, 4])


def test_muri__tells_what_a_job_keeps_of_its_speed() -> None:
    """Of a group by its stages; nothing of a job alone. It is what the physics of a replay gives it."""
    kept = Muri().rank(six("1x2")).why["kept"]
    pair = GroupSpeeds().kept(["gpt2", "a2c"], 1).kept
    assert kept[[3, 5]] == pytest.approx(pair, abs=0.005)
    assert np.isinf(Muri().rank(six("1x6")).why["kept"]).all()


def test_muri__while_all_fit_nobody_shares() -> None:
    """Six GPUs for six jobs; or one job on a GPU at most."""
    assert beside(Muri(), six("1x6"))[1] == beside(Muri(most=1), six("1x2"))[1] == [-1] * 6


def test_muri__who_says_no_shares_with_nobody() -> None:
    """share=no of resnet18 and bert: neither is in a group."""
    host = beside(Muri(), six("1x2", resnet18="share=no", bert="share=no"))[1]
    assert (host[1], host[2], 2 in host, 3 in host, host.count(-1) < 6) == (-1, -1, False, False, True)


def test_muri__memory_of_jobs_counts_only_where_it_is_a_limit() -> None:
    """The groups are the same with any gpu_mem, and job kinds stay as few."""
    many = {"bert": "gpu_mem=3", "gpt2": "gpu_mem=5", "vgg16": "gpu_mem=7"}
    assert beside(Muri(), six("1x2", **many)) == beside(Muri(), six("1x2"))
    assert {Muri()._kinds(six("1x2", bert=hint), 1) for hint in many.values()} == {Muri()._kinds(six("1x2"), 1)}


def test_muri__a_group_fits_into_the_memory_of_a_gpu() -> None:
    """Of jobs that need 9 of 16 GiB each no two fit; resnet18 that needs all of it is beside nobody who needs some."""
    models = ("shufflenet_v2_x1_0", "bert", "resnet18", "gpt2", "vgg16", "a2c")
    assert beside(Muri(memory_gib=16.0), six("1x2", **dict.fromkeys(models, "gpu_mem=9")))[1] == [-1] * 6
    large = six("1x2", **dict.fromkeys(models, "gpu_mem=1") | {"resnet18": "gpu_mem=16"})
    host = beside(Muri(memory_gib=16.0), large)[1]
    assert (host[2], 3 in host, host.count(-1) < 6) == (-1, False, True)


def test_muri__measured_pairs_come_before_the_stages(tmp_path: Path) -> None:
    """What was measured is shown, a group that would be slower than its jobs one by one is none, and groups are matched
    by it. A job of a larger group keeps the product, if all its pairs were measured."""
    rows = [{"job_id": at, "gpus": 1, "comment": f"slurmsched: model={model} dur=1h"}
            for at, model in enumerate(("gpt2", "a2c", "bert", "resnet18"), 1)]  # fmt: skip
    fast = Muri(measured=measured_pairs_file(tmp_path, gpt2_a2c=(0.9, 0.8)))
    assert fast.rank(snapshot(rows[:2], "1x1")).why["kept"].tolist() == [0.9, 0.8]
    slow = Muri(measured=measured_pairs_file(tmp_path, gpt2_a2c=(0.5, 0.45)))
    assert beside(slow, snapshot(rows[:2], "1x1"))[1] == [-1, -1]
    four, worse = snapshot(rows, "1x2"), measured_pairs_file(tmp_path, gpt2_a2c=(0.55, 0.5), bert_a2c=(1.0, 0.9))
    assert (beside(Muri(most=2), four)[1], beside(Muri(most=2, measured=worse), four)[1]) == (
        [-1, 1, -1, -1], [-1, -1, 2, 1])  # fmt: skip
    three = Muri(measured=measured_pairs_file(tmp_path, gpt2_a2c=(0.9, 0.9), gpt2_bert=(0.8, 0.9)))
    by_stages, kept = (policy.rank(snapshot(rows[:3], "1x1")).why["kept"].tolist() for policy in (Muri(), three))
    assert kept == [0.72, *by_stages[1:]] != by_stages


def test_muri__models_without_stages_run_alone() -> None:
    """Whatever there is beside them."""
    rows = [{"gpus": 1, "comment": f"slurmsched: model={model} dur=1h"} for model in ("bert", "other", "other", "gpt2")]
    assert beside(Muri(), snapshot(rows, "1x1"))[1][1:3] == [-1, -1]


def play(*models: str, physics: str = "grouped", **parameters: Any) -> list[float]:
    """Ends of jobs of 100 s on one GPU."""
    count = len(models)
    trace = Trace.of(np.arange(count) + 1, [1] * count, [0.0] * count, [100.0] * count, model=list(models))
    words = ",".join(f"{name}={value}" for name, value in parameters.items())
    request = ReplayRequest(cluster="1x1", policy=f"muri:{words}" if words else "muri", placement="consolidated",
                            physics=physics, backfill="skip", settings={"tells_progress": True})  # fmt: skip
    return ReplaySession(trace, request).run().outcomes.end_s.tolist()


def test_muri__four_jobs_share_a_gpu_in_a_replay() -> None:
    """Each at the speed of the group; who is left goes on in a smaller one, so that the last ends before the sum."""
    models = ["shufflenet_v2_x1_0", "bert", "resnet18", "gpt2"]
    ends = play(*models)
    first = 100.0 / max(GroupSpeeds().kept(models, 1).kept)
    assert min(ends) == pytest.approx(first)
    assert max(ends) < 400.0
    assert max(play(*models, most=1)) == 400.0


def test_muri__physics_checks_the_memory_of_a_gpu() -> None:
    """What a policy without a limit puts on one GPU must fit."""
    rows = {"gpu_mem": [10, 10]}
    trace = Trace.of([1, 2], [1, 1], [0.0, 0.0], [100.0, 100.0], model=["shufflenet_v2_x1_0", "gpt2"],
                     comment=[f"slurmsched: gpu_mem={gib}" for gib in rows["gpu_mem"]])  # fmt: skip
    request = ReplayRequest(cluster="1x1", policy="muri", placement="consolidated", physics="grouped:memory_gib=16",
                            backfill="skip")  # fmt: skip
    with pytest.raises(InputError, match=r"2 jobs on one GPU \(1, 2\) need 20 GiB of its memory, it has 16"):
        ReplaySession(trace, request).run()


def test_muri__says_what_is_wrong() -> None:
    """An order that there is not, and five jobs on a GPU."""
    with pytest.raises(ConfigError, match="must be one of srsf, 2d-las"):
        Muri(order="fifo")
    with pytest.raises(ConfigError, match="most"):
        Muri(most=5)
