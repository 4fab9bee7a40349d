"""The ideal cluster against the figures of independent simulators, on the same public inputs.

GPUs counted, no delays, exact run times known to policies that ask, whole-second clock. Sources of the figures: the
simulators named beside them; `tests/replay/traces/README.md` names those of the inputs; docs/reproduced.md has the
table. Every tolerance says why it is not zero.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.count import Count
from slurmsched.planning.direct import DirectPlanner, Filling
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.gittins import Gittins
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Placement, Policy
from slurmsched.replay.carry_store import CarryStore
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import replay, replay_events
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.metrics import Outcomes
from slurmsched.replay.run import history_of
from slurmsched.replay.slurm_model import ideal
from slurmsched.replay.traces import Trace, read_trace
from tests.reference.schedules import job_ends

TRACES = Path(__file__).parent / "traces"
GPUS = {
    "tiresias_60.csv": 8, "pollux_w6_fixed.csv": 64, "philly_ee9e8c_2w.csv": 160, "muri_trace3.csv.gz": 64,
    "shockwave_120_fixed.csv": 32, "philly_10k.csv.gz": 400,
}  # fmt: skip
SMALL = [name for name in GPUS if name != "philly_10k.csv.gz"]

# Mean JCT [s], makespan [s]. FIFO: Tiresias, AccaSim, CQSim and our own loop agree; EASY: CQSim and our own loop.
FIFO = {
    "tiresias_60.csv": (1_556.5, 5_747), "pollux_w6_fixed.csv": (14_824.7, 81_404),
    "philly_ee9e8c_2w.csv": (196_041.5, 1_959_580), "muri_trace3.csv.gz": (991_159.2, 8_171_961),
    "shockwave_120_fixed.csv": (9_260.9, 31_169), "philly_10k.csv.gz": (45_203.4, 3_131_590),
}  # fmt: skip
EASY = {
    "tiresias_60.csv": (854.8, 4_914), "pollux_w6_fixed.csv": (9_053.1, 71_876),
    "philly_ee9e8c_2w.csv": (172_862.1, 1_959_580), "muri_trace3.csv.gz": (421_200.4, 8_171_961),
    "shockwave_120_fixed.csv": (9_242.5, 31_369),
}  # fmt: skip
# First fit and SRTF, SRSF: Tiresias's fjf, shortest, shortest-gpu. SJF by run time: AccaSim.
OTHERS = (
    ("fjf", "pollux_w6_fixed.csv", 5_565.8), ("fjf", "philly_ee9e8c_2w.csv", 172_023.1),
    ("fjf", "muri_trace3.csv.gz", 480_098.2), ("fjf", "shockwave_120_fixed.csv", 7_871.2),
    ("fjf", "tiresias_60.csv", 715.3), ("sjf", "pollux_w6_fixed.csv", 4_345.1),
    ("sjf", "philly_ee9e8c_2w.csv", 148_261.1), ("sjf", "muri_trace3.csv.gz", 262_103.0),
    ("srtf", "pollux_w6_fixed.csv", 2_720.6), ("srtf", "philly_ee9e8c_2w.csv", 141_450.1),
    ("srtf", "muri_trace3.csv.gz", 180_114.7), ("srtf", "shockwave_120_fixed.csv", 6_884.9),
    ("srtf", "tiresias_60.csv", 519.9), ("srsf", "pollux_w6_fixed.csv", 2_628.6),
    ("srsf", "philly_ee9e8c_2w.csv", 140_468.7), ("srsf", "muri_trace3.csv.gz", 172_682.0),
    ("srsf", "shockwave_120_fixed.csv", 6_429.5), ("srsf", "tiresias_60.csv", 563.4),
)  # fmt: skip
# Tiresias's dlas-gpu with demotions at the exact threshold: mean JCT [s], makespan [s], preemptions.
LAS = (
    ("pollux_w6_fixed.csv", 3_577.76, 80_283, 189), ("philly_ee9e8c_2w.csv", 145_797.08, 1_934_047, 129),
    ("muri_trace3.csv.gz", 327_258.11, 8_171_961, 1_387), ("shockwave_120_fixed.csv", 8_836.94, 29_510, 113),
    ("philly_10k.csv.gz", 13_687.99, 3_055_854, 5_211),
)  # fmt: skip
# Tiresias's dlas-gpu-gittins on its yarn-gput1000 samples.
GITTINS = (
    ("pollux_w6_fixed.csv", 3_309.0), ("philly_ee9e8c_2w.csv", 159_729.5), ("muri_trace3.csv.gz", 491_845.0),
    ("shockwave_120_fixed.csv", 9_410.6), ("tiresias_60.csv", 821.23),
)  # fmt: skip
# Pollux's Tiresias in rounds of 60 s, 30 s at every start, two queues at 57,600 GPU s, 64 GPUs; workloads 1 to 8.
POLLUX_S = (2_473.2, 5_122.4, 3_744.8, 3_271.5, 3_525.1, 3_468.1, 5_058.9, 5_076.7)
# trace, nodes of 8, lowest and highest mean JCT [s] of Tiresias's and Lucid's consolidated FIFO
CONSOLIDATED = (
    ("pollux_w6_fixed.csv", 8, 15_440.4, 15_447.5),
    ("muri_trace3.csv.gz", 8, 991_207.4, 991_207.8),
    ("philly_ee9e8c_2w.csv", 20, 198_955.0, 200_497.6),
)
POLICIES: dict[str, tuple[Policy, Filling]] = {
    "fjf": (Fifo(), "skip"), "sjf": (Sjf(), "block"), "srtf": (Srtf(), "skip"), "srsf": (Srsf(), "skip"),
}  # fmt: skip


def played(trace: str, policy: Policy, filling: Filling = "skip", placement: Placement | None = None,
           nodes: tuple[int, ...] = ()) -> Outcomes:  # fmt: skip
    cluster = IdealCluster(read_trace(TRACES / trace), nodes or (GPUS[trace],))
    planner = DirectPlanner(policy, placement or Count(), filling)
    replay_events(cluster, planner, CarryStore(history_of("")))
    return cluster.outcomes()


def in_rounds(workload: int) -> float:
    """Mean JCT [s] of a Pollux workload under Tiresias as Pollux's artifact runs it."""
    with (TRACES / "pollux_w1-8_fixed.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] == str(workload)]
    names = ("job_id", "num_gpus", "submit_s", "duration_s")
    trace = Trace.of(*([float(row[name]) for row in rows] for name in names))
    cluster = IdealCluster(trace, [64], IdealModel(round_s=60.0, start_cost_s=30.0, restart_cost_s=30.0))
    planner = DirectPlanner(DiscretizedLas((57_600.0,), fifo_by="submit"), Count())
    replay(cluster, planner, CarryStore(), interval_s=cluster.model.round_s)
    return float(cluster.outcomes().jct_s.mean())


def figures(done: Outcomes) -> tuple[float, float]:
    return round(float(done.jct_s.mean()), 1), done.makespan_s


def independent(trace: str, *, easy: bool) -> list[float]:
    """Ends of all jobs by the loop in tests/reference, in the trace's order [s]."""
    jobs = read_trace(TRACES / trace)
    columns = (jobs.submit_s, jobs.job_id, jobs.gpus, jobs.duration_s)
    ends = job_ends(list(zip(*(column.tolist() for column in columns), strict=True)), GPUS[trace], easy=easy)
    return [ends[number] for number in jobs.job_id.tolist()]


@pytest.mark.parametrize("trace", FIFO)
def test_fifo__ends_every_job_as_four_programs_do(trace: str) -> None:
    """Every job's end to the second, hence mean and makespan."""
    done = played(trace, Fifo(), "block")
    assert done.end_s.tolist() == independent(trace, easy=False)
    assert figures(done) == FIFO[trace]


@pytest.mark.parametrize("trace", EASY)
def test_easy__ends_every_job_as_two_programs_do(trace: str) -> None:
    """Every job's end to the second, hence mean and makespan."""
    done = played(trace, Fifo(), "easy")
    assert done.end_s.tolist() == independent(trace, easy=True)
    assert figures(done) == EASY[trace]


def test_easy__is_within_a_thousandth_on_ten_thousand_jobs() -> None:
    """Two programs differ by 0.02 % here, in the order of simultaneous events: 42,874.3 and 42,883.2 s."""
    done = played("philly_10k.csv.gz", Fifo(), "easy")
    assert 42_874.3 * 0.999 <= done.jct_s.mean() <= 42_883.2 * 1.001
    assert done.makespan_s == pytest.approx(3_130_957, rel=1e-3)


@pytest.mark.parametrize(("name", "trace", "jct_s"), OTHERS)
def test_simple_policies__are_within_half_a_percent(name: str, trace: str, jct_s: float) -> None:
    """Only equal remaining times leave freedom."""
    policy, filling = POLICIES[name]
    assert played(trace, policy, filling).jct_s.mean() == pytest.approx(jct_s, rel=5e-3)


@pytest.mark.parametrize(("trace", "jct_s", "makespan_s", "preemptions"), LAS)
def test_discretized_las__equals_the_exact_threshold_variant(
    trace: str, jct_s: float, makespan_s: float, preemptions: int
) -> None:
    """The order inside a queue is the only freedom: 1 % of mean and makespan, 10 % of preemptions."""
    done = played(trace, DiscretizedLas(fifo_by="arrival"))
    assert done.jct_s.mean() == pytest.approx(jct_s, rel=0.01)
    assert done.makespan_s == pytest.approx(makespan_s, rel=0.01)
    assert done.preemptions.sum() == pytest.approx(preemptions, rel=0.1)


@pytest.mark.parametrize(("trace", "jct_s"), GITTINS)
def test_gittins__is_within_five_percent_of_the_release(trace: str, jct_s: float) -> None:
    """Its integer division, which we leave out, moves the mean by 1.5 % alone."""
    assert played(trace, Gittins(index="released")).jct_s.mean() == pytest.approx(jct_s, rel=0.05)


@pytest.mark.parametrize("workload", range(1, 9))
def test_tiresias_in_rounds__equals_pollux_policy_code(workload: int) -> None:
    """Deterministic, so to the last digit that was published; submission order inside a queue, as there."""
    assert round(in_rounds(workload), 1) == POLLUX_S[workload - 1]


@pytest.mark.parametrize(("trace", "nodes", "low_s", "high_s"), CONSOLIDATED)
def test_consolidated_fifo__is_among_published(trace: str, nodes: int, low_s: float, high_s: float) -> None:
    """Nodes of 8 GPUs: first fit and best fit of two simulators bound the mean JCT, to 0.1 %."""
    mean_s = played(trace, Fifo(), "block", Consolidated(), (8,) * nodes).jct_s.mean()
    assert low_s * 0.999 <= mean_s <= high_s * 1.001


@pytest.mark.parametrize("trace", SMALL)
@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_slurm_model_without_delays__schedules_alike(trace: str, backfill: str) -> None:
    """slurmctld's two schedulers with every delay at 0 end each job when the ideal cluster does."""
    cluster = EmbeddedCluster(read_trace(TRACES / trace), [GPUS[trace]], ideal(backfill))  # type: ignore[arg-type]
    replay(cluster)
    ends = played(trace, Fifo(), "easy" if backfill == "easy" else "block").end_s
    assert np.array_equal(Outcomes.of(cluster).end_s, ends)
