"""coda: the search of CPUs by hand as on its page, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Ranking, Snapshot
from slurmsched.placements.coda import Coda
from slurmsched.testing import check_placement, snapshot
from tests.unit.policies.test_pages import PAGES, table

PAGE = (PAGES.parent / "placements" / "coda.md").read_text(encoding="utf-8")
NODE = {"name": "n1", "gpus": 4, "cpus": 12, "memory_mib": 250 * 1024.0}
SEARCHED = Coda(running="retuned")


def runs(job_id: int, model: str, ran_s: float, cpus: int = 3) -> dict[str, Any]:
    """A running job that holds its GPU."""
    return {"job_id": job_id, "gpus": 1, "comment": f"slurmsched: model={model}", "state": "RUNNING", "cpus": cpus,
            "executed_s": ran_s, "start_s": 0.0}  # fmt: skip


def on_node(*jobs: dict[str, Any]) -> Snapshot:
    held = [{"job_id": job["job_id"], "node": "n1", "gpus": 1, "gpu_mask": 1 << at} for at, job in enumerate(jobs)]
    return snapshot(list(jobs), [{**NODE, "cpus_used": sum(job["cpus"] for job in jobs)}], allocations=held)


def cpus(placement: Coda, at: Snapshot) -> dict[int, float]:
    made = placement.place(at, Ranking(np.arange(len(at.jobs))))
    return dict(zip(at.jobs.job_id[made.rows].tolist(), made.cpus.tolist(), strict=True))


def test_coda__the_example_of_the_page() -> None:
    """Each job alone on the node, after each step. Then all four together, at first and when two have searched."""
    for number, row in enumerate(table(PAGE), 1):
        steps = [float(row[name]) for name in ("step 0", "1", "2", "3", "4", "5", "6")]
        assert [cpus(SEARCHED, on_node(runs(number, row["model"], 300.0 * at)))[number] for at in range(7)] == steps
    models = [row["model"] for row in table(PAGE)]
    four = [runs(number, model, 0.0) for number, model in enumerate(models, 1)]
    assert cpus(SEARCHED, on_node(*four)) == dict.fromkeys((1, 2, 3, 4), 3)
    later = [runs(number, model, 0.0 if model == "alexnet" else 900.0) for number, model in enumerate(models, 1)]
    assert cpus(SEARCHED, on_node(*later)) == {1: 3, 2: 1, 3: 4, 4: 3}


def test_coda__fixed_jobs_keep_what_they_hold() -> None:
    """The default, as Slurm does."""
    assert cpus(Coda(), on_node(runs(1, "alexnet", 1_500.0))) == {1: 3}
    waits = snapshot([runs(1, "alexnet", 0.0) | {"state": "PENDING", "cpus": 0}], [NODE])
    assert cpus(Coda(start_cpus=2.0), waits) == {1: 2}


@pytest.mark.parametrize("running", ["fixed", "retuned"])
def test_coda__keeps_the_laws(running: str) -> None:
    """Those of every placement."""
    check_placement(Coda(running=running))


def test_coda__says_what_is_wrong() -> None:
    """Jobs that move, and steps of no length."""
    with pytest.raises(ConfigError, match="running"):
        Coda(running="moved")
    with pytest.raises(ConfigError, match="step_s"):
        Coda(step_s=0.0)
