"""Ours beside the figures of independent simulators, on the same public inputs: the tables of `slurmsched reproduce`.

The tables (slurmsched/sim/experiments/published) hold figures, sources, settings and tolerances;
docs/reproduced.md shows them.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.placements.count import Count
from slurmsched.policies.fifo import Fifo
from slurmsched.sim.event_loop import replay, replay_events
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.experiments.reproduction import (
    EQUAL,
    PublishedRow,
    PublishedTable,
    published_table,
    published_tables,
    result_cells,
    row_result,
    table_results,
)
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_planner import DirectPlanner, Filling
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld, outcomes_of
from slurmsched.sim.slurmctld.slurmctld_settings import ideal
from slurmsched.sim.traces.trace_io import shipped_trace
from tests.reference.schedules import job_ends

DATA = Path(__file__).parent / "data"
DOCS = (Path(__file__).parents[2] / "docs" / "reproduced.md").read_text(encoding="utf-8")
ROWS = [row for each in published_tables() for row in each.rows if not (row.absent or row.slow)]
GPUS = {
    "tiresias_60": 8, "pollux_w6_fixed": 64, "philly_ee9e8c_2w": 160, "muri_trace3": 64, "shockwave_120_fixed": 32,
    "philly_10k": 400,
}  # fmt: skip
SMALL = [name for name in GPUS if name != "philly_10k"]


def played(trace: str, filling: Filling) -> JobOutcomes:
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
def test_published__is_within_its_tolerance(row: PublishedRow) -> None:
    """Every published figure within its table's tolerance, but where the row tells why ours differs."""
    made = row_result(row)
    assert made.holds, made.record
    assert result_cells(made)[:6] in [tuple(line.split(" | "))[:6] for line in documented()], (
        "run python -m bench.reproduced"
    )


def documented() -> list[str]:
    """Rows of the tables in docs/reproduced.md, without the outer bars."""
    return [line.strip("| ") for line in DOCS.splitlines() if line.startswith("| ")]


def test_published__of_pollux_hold_on_average() -> None:
    """With measured throughputs single workloads are 8 % off at most, their mean 3 %."""
    *_, mean = table_results(published_table("tiresias-rounds-measured"))
    assert (mean.row.trace, mean.holds) == ("mean of all", True)


@pytest.mark.parametrize(
    "table", [each for each in published_tables() if each.mean_tolerance_pct], ids=lambda table: table.name
)
def test_published__means_hold(table: PublishedTable) -> None:
    """As the page shows it, whose rows are asserted above: the mean of all rows is there, and within its tolerance."""
    section = DOCS.split(f"\n## {table.name}: ")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    figures = [[float(cell.replace(",", "")) for cell in line[3:5]] for line in cells]
    assert [line[0] for line in cells] == [*(row.trace for row in table.rows), "mean of all"]
    *rows, (theirs, ours) = figures
    assert [theirs, ours] == pytest.approx(np.mean(rows, axis=0), abs=0.011)
    assert 100 * abs(ours / theirs - 1) <= table.mean_tolerance_pct


def test_pollux__jobs_take_as_long_as_its_artifact_ships_job_by_job() -> None:
    """Half of 1,280 to the second, 95 % within 5 %: only who was spread over more nodes took longer there."""
    with gzip.open(DATA / "pollux_tiresias_jcts.csv.gz", "rt") as file:
        theirs = {(row["workload"], int(row["job_id"])): float(row["jct_s"]) for row in csv.DictReader(file)}
    off = []
    for row in published_table("tiresias-rounds").rows:
        done = ReplaySession(shipped_trace(row.trace), row.request).run().outcomes
        workload = row.trace.removeprefix("pollux_w").removesuffix("_fixed")
        off += [abs(jct_s / theirs[workload, job] - 1)
                for job, jct_s in zip(done.job_id.tolist(), done.jct_s.tolist(), strict=True)]  # fmt: skip
    assert (len(off), np.median(off)) == (1_280, 0.0)
    assert np.percentile(off, 95) <= 0.05


def test_fgd__allocates_and_fragments_as_published() -> None:
    """One workload with ten runs: within a standard deviation in all 36 figures, and placements in their order. All
    nine with thirty runs are on the page."""
    rows = published_table("fgd").rows
    made = [row_result(replace(row, runs=10)) for row in rows if row.sharing == "default"]
    assert [each.record for each in made if not each.holds] == []
    at_end = [next(one for one in each.comparisons if one.figure == "allocated_130_pct") for each in made]
    theirs, ours = (
        np.argsort(values) for values in ([sum(one.theirs) for one in at_end], [one.ours for one in at_end])
    )
    assert theirs.tolist() == ours.tolist()
    shown = {line.split(" | ")[0] for line in documented()}
    assert {f"{row.sharing}, {row.placement}" for row in rows} <= shown


def test_docs__show_every_row() -> None:
    """Those that are not replayed too, with their reasons."""
    absent = {
        " | ".join(result_cells(row_result(row))) for each in published_tables() for row in each.rows if row.absent
    }
    assert absent - set(documented()) == set()


def test_docs__tell_the_claims_of_a_table_apart() -> None:
    """No two rows of a table of claims have the same name on the same cluster."""
    for section in DOCS.split("\n## claims-")[1:]:
        lines = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")]
        places = [tuple(line.strip("| ").split(" | "))[0:3:2] for line in lines if "not reproduced" not in line]
        assert len(places) == len(set(places)), places


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
    assert {EQUAL} == {each.worst for each in table_results(published_table("fifo"))}


@pytest.mark.parametrize("trace", SMALL)
@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_slurm_model_without_delays__schedules_alike(trace: str, backfill: str) -> None:
    """slurmctld's two schedulers with every delay at 0 end each job when the ideal cluster does."""
    cluster = SimulatedSlurmctld(shipped_trace(trace), [GPUS[trace]], ideal(backfill))  # type: ignore[arg-type]
    replay(cluster)
    ends = played(trace, "easy" if backfill == "easy" else "block").end_s
    assert np.array_equal(outcomes_of(cluster).end_s, ends)
