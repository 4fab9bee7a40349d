"""Requests rewritten by GRES Type on a real Slurm: the best pairs, and every job's own request back.

LAB_CHURN: jobs of the churn, instead of the few that a common run has time for.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.live.lab import Installed, column, run, until
from tests.live.pair_churn import PLACED, churn, classes_of, held, mesh, name_types, placing
from tests.live.pair_churn import submit as submit_pair
from tests.live.test_preemption import cut_tick

pytestmark = [pytest.mark.live, pytest.mark.newest]
JOBS = int(os.environ.get("LAB_CHURN", "15"))
RETYPE = {"placement__retype": "true"}


def asks(job: int) -> tuple[str, str]:
    """Request by node and node list."""
    return column("%b")[job], column("%n")[job]


def test_retype__best_pairs_and_undo(site: Installed):
    """Every pair of a churn is the best that was free anywhere; a job that was rewritten gets its own request back.

    Slurm's own word for that: the job then starts with as many GPUs as it asked for.
    """
    ranks = mesh(Path(site.folder))
    name_types()
    with placing(site, **RETYPE):
        found = churn(JOBS, ranks, PLACED)
    assert found.best_share == 1.0
    assert sum(row["jobs"] for row in site("topology", "quality", "--json").json()["jobs"] if row["pinned"]) > JOBS / 2
    undone(site)


def undone(site: Installed) -> None:
    """A process that dies once a request is written leaves enough on record for `undo`."""
    site.configure(placement__wait_s="700", topology__classes=classes_of(site), **RETYPE)
    job = submit_pair([PLACED[0], "--begin=now+600"])
    assert cut_tick(site, [("retype", "after")])
    request, nodes = asks(job)
    assert "_g" in request
    assert nodes.startswith("n")
    told = site("undo", "--apply", "--yes").out
    assert "1 node list, 1 request" in told
    assert asks(job) == ("gres/gpu:2", "")
    run("scontrol", "update", f"jobid={job}", "starttime=now")
    until(lambda: job in held(), "it starts")
    assert held()[job][2].bit_count() == 2
