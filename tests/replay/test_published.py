"""Ours beside the figures of independent simulators, on the same public inputs: the tables of `slurmsched reproduce`.

The tables (slurmsched/replay/reproduced) hold figures, sources, settings and tolerances; docs/reproduced.md shows them.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from slurmsched.placements.count import Count
from slurmsched.planning.direct import DirectPlanner, Filling
from slurmsched.policies.fifo import Fifo
from slurmsched.replay.carry_store import CarryStore
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import replay, replay_events
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.metrics import Outcomes
from slurmsched.replay.reproduce import Row, shipped_trace, table, tables
from slurmsched.replay.reproduce_run import EQUAL, result, results
from slurmsched.replay.reproduce_text import cells
from slurmsched.replay.run import Session
from slurmsched.replay.slurm_model import ideal
from tests.reference.schedules import job_ends

DATA = Path(__file__).parent / "data"
DOCS = (Path(__file__).parents[2] / "docs" / "reproduced.md").read_text(encoding="utf-8")
ROWS = [row for each in tables() for row in each.rows if not row.absent]
GPUS = {
    "tiresias_60": 8, "pollux_w6_fixed": 64, "philly_ee9e8c_2w": 160, "muri_trace3": 64, "shockwave_120_fixed": 32,
    "philly_10k": 400,
}  # fmt: skip
SMALL = [name for name in GPUS if name != "philly_10k"]


def played(trace: str, filling: Filling) -> Outcomes:
    cluster = IdealCluster(shipped_trace(trace), (GPUS[trace],))
    replay_events(cluster, DirectPlanner(Fifo(), Count(), filling), CarryStore())
    return cluster.outcomes()


def independent(trace: str, *, easy: bool) -> list[float]:
    """Ends of all jobs by the loop in tests/reference, in the trace's order [s]."""
    jobs = shipped_trace(trace)
    columns = (jobs.submit_s, jobs.job_id, jobs.gpus, jobs.duration_s)
    ends = job_ends(list(zip(*(column.tolist() for column in columns), strict=True)), GPUS[trace], easy=easy)
    return [ends[number] for number in jobs.job_id.tolist()]


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.table}-{row.policy.split(':')[0]}-{row.trace}-{row.cluster}"
)
def test_published__holds(row: Row) -> None:
    """Every published figure within its table's tolerance, but where the row tells why ours differs."""
    made = result(row)
    assert made.holds, made.record
    assert cells(made)[:6] in [tuple(line.split(" | "))[:6] for line in documented()], "run python -m bench.reproduced"


def documented() -> list[str]:
    """Rows of the tables in docs/reproduced.md, without the outer bars."""
    return [line.strip("| ") for line in DOCS.splitlines() if line.startswith("| ")]


def test_published__of_pollux_hold_on_average() -> None:
    """With measured throughputs single workloads are 8 % off at most, their mean 3 %."""
    *_, mean = results(table("tiresias-rounds-measured"))
    assert (mean.row.trace, mean.holds) == ("mean of all", True)


def test_pollux__jobs_take_as_long_as_its_artifact_ships_job_by_job() -> None:
    """Half of 1,280 to the second, 95 % within 5 %: only who was spread over more nodes took longer there."""
    with gzip.open(DATA / "pollux_tiresias_jcts.csv.gz", "rt") as file:
        theirs = {(row["workload"], int(row["job_id"])): float(row["jct_s"]) for row in csv.DictReader(file)}
    off = []
    for row in table("tiresias-rounds").rows:
        done = Session(shipped_trace(row.trace), row.request).run().outcomes
        workload = row.trace.removeprefix("pollux_w").removesuffix("_fixed")
        off += [abs(jct_s / theirs[workload, job] - 1)
                for job, jct_s in zip(done.job_id.tolist(), done.jct_s.tolist(), strict=True)]  # fmt: skip
    assert (len(off), np.median(off)) == (1_280, 0.0)
    assert np.percentile(off, 95) <= 0.05


def test_docs__show_every_row() -> None:
    """Those that are not replayed too, with their reasons."""
    absent = {" | ".join(cells(result(row))) for each in tables() for row in each.rows if row.absent}
    assert absent - set(documented()) == set()


@pytest.mark.parametrize("trace", GPUS)
def test_fifo__ends_every_job_as_four_programs_do(trace: str) -> None:
    """Every job's end to the second."""
    assert independent(trace, easy=False) == played(trace, "block").end_s.tolist()


@pytest.mark.parametrize("trace", SMALL)
def test_easy__ends_every_job_as_two_programs_do(trace: str) -> None:
    """Every job's end to the second."""
    assert independent(trace, easy=True) == played(trace, "easy").end_s.tolist()


def test_fifo__equals_the_table_in_every_figure() -> None:
    """Percentiles and makespan too."""
    assert {EQUAL} == {each.worst for each in results(table("fifo"))}


@pytest.mark.parametrize("trace", SMALL)
@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_slurm_model_without_delays__schedules_alike(trace: str, backfill: str) -> None:
    """slurmctld's two schedulers with every delay at 0 end each job when the ideal cluster does."""
    cluster = EmbeddedCluster(shipped_trace(trace), [GPUS[trace]], ideal(backfill))  # type: ignore[arg-type]
    replay(cluster)
    ends = played(trace, "easy" if backfill == "easy" else "block").end_s
    assert np.array_equal(Outcomes.of(cluster).end_s, ends)
