"""The table of docs/preemption.md, "What is left of a paper's gain", is what the commands print today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmsched.cli.main import main

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "slurmsched" / "sim" / "traces" / "shipped" / "pollux_w6_fixed.csv.gz"
FIGURES = ("p50_jct_s", "p95_jct_s", "avg_jct_s", "preemptions", "lost_gpu_h")
ROWS = {
    "Tiresias's own simulator": (),  # what reproduce finds equal, as the table of docs/reproduced.md tells
    "ideal cluster: preemption is free": (),
    "the same, `--restart-cost 120`": ("--restart-cost", "120"),
    "`--model slurm`, requeue alone": ("--model", "slurm"),
    "`--preempt`, all with": ("--model", "slurm", "--preempt", "--hints", "slurmsched: preempt=yes ckpt=USR2@120"),
}  # fmt: skip


def on_page(name: str) -> list[float]:
    """The figures of the row that begins with this name."""
    (line,) = (line for line in (ROOT / "docs/preemption.md").read_text().splitlines() if line.startswith(f"| {name}"))
    return [float(cell.replace(",", "")) for cell in line.strip("|").split("|")[1:]]


@pytest.mark.parametrize("name", ROWS)
def test_page__tells_what_the_replay_gives(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With free preemption as Tiresias's own simulator; with a cost for each restart; by requeue; with checkpoints."""
    words = ("replay", str(TRACE), "--cluster", "16x4", "--policy", "discretized-las", *ROWS[name])
    assert main([*words, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert on_page(name) == pytest.approx([made[figure] for figure in FIGURES], abs=0.51)
