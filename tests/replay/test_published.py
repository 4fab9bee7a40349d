"""FIFO and EASY on public traces: the figures independent simulators agree on.

Ours must be equal: FIFO as in the simulators of Tiresias and AccaSim and in CQSim, EASY as in CQSim; GPUs counted, no
delays, exact estimates. `tests/replay/traces/README.md` names the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import replay
from slurmsched.replay.metrics import Outcomes
from slurmsched.replay.slurm_model import ideal
from slurmsched.replay.traces import read_trace

TRACES = Path(__file__).parent / "traces"
# trace, GPUs, backfill, mean JCT [s], makespan [s]
PUBLISHED = (
    ("tiresias_60.csv", 8, "none", 1_556.5, 5_747),
    ("pollux_w6_fixed.csv", 64, "none", 14_824.7, 81_404),
    ("philly_ee9e8c_2w.csv", 160, "none", 196_041.5, 1_959_580),
    ("muri_trace3.csv.gz", 64, "none", 991_159.2, 8_171_961),
    ("shockwave_120_fixed.csv", 32, "none", 9_260.9, 31_169),
    ("tiresias_60.csv", 8, "easy", 854.8, 4_914),
    ("pollux_w6_fixed.csv", 64, "easy", 9_053.1, 71_876),
    ("philly_ee9e8c_2w.csv", 160, "easy", 172_862.1, 1_959_580),
    ("muri_trace3.csv.gz", 64, "easy", 421_200.4, 8_171_961),
    ("shockwave_120_fixed.csv", 32, "easy", 9_242.5, 31_369),
)
# trace, nodes of 8, lowest and highest mean JCT [s] of Tiresias's and Lucid's consolidated FIFO
CONSOLIDATED = (
    ("pollux_w6_fixed.csv", 8, 15_440.4, 15_447.5),
    ("muri_trace3.csv.gz", 8, 991_207.4, 991_207.8),
    ("philly_ee9e8c_2w.csv", 20, 198_955.0, 200_497.6),
)


def outcomes(trace: str, nodes: Sequence[int], backfill: Literal["easy", "none"]) -> Outcomes:
    cluster = EmbeddedCluster(read_trace(TRACES / trace), nodes, ideal(backfill))
    replay(cluster)
    return Outcomes.of(cluster)


@pytest.mark.parametrize(("trace", "gpus", "backfill", "jct_s", "makespan_s"), PUBLISHED)
def test_ideal__equals_published(
    trace: str, gpus: int, backfill: Literal["easy", "none"], jct_s: float, makespan_s: float
) -> None:
    """GPUs counted (one node holds all), every event acted on at once."""
    done = outcomes(trace, [gpus], backfill)
    assert (round(float(done.jct_s.mean()), 1), done.makespan_s) == (jct_s, makespan_s)


@pytest.mark.parametrize(("trace", "nodes", "low_s", "high_s"), CONSOLIDATED)
def test_consolidated_fifo__is_among_published(trace: str, nodes: int, low_s: float, high_s: float) -> None:
    """Nodes of 8 GPUs: first fit and best fit of two simulators bound the mean JCT, to 0.1 %."""
    mean = float(outcomes(trace, [8] * nodes, "none").jct_s.mean())
    assert low_s * 0.999 <= mean <= high_s * 1.001
