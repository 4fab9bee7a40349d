"""introspective: turns, trials of pairs, moves and sizes, by hand as on its page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.allocation.job_memory import remembered
from slurmsched.allocation.pair_trials import PairTrials
from slurmsched.model import Ranking, Snapshot
from slurmsched.model.trace import Trace
from slurmsched.policies.introspective import Introspective
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, table

PAGE = (PAGES / "introspective.md").read_text(encoding="utf-8")
SEEN = {"done": 0.1, "ran_s": 360.0, "alone_made": 0.1, "alone_s": 360.0, "shared_made": 0.0, "shared_s": 0.0,
        "partner": -1.0, "guest": 0.0, "slice_from_s": 360.0, "more_gpus": 0.0}  # fmt: skip


def six(nodes: str = "1x4", **hints: str) -> Snapshot:
    """The jobs of the page; 1 to 4 run, and all were seen alone. hints: more of them, of job1, job2 and so on."""
    page = table(PAGE)
    rows = [{"job_id": number, "gpus": 1, "submit_s": float(number), "executed_s": 360.0,
             **({"state": "RUNNING", "start_s": 40.0} if number <= 4 else {}),
             "comment": f"slurmsched: model={row['model']} progress=10/100 {hints.get(f'job{number}', '')}"}
            for number, row in enumerate(page, 1)]  # fmt: skip
    held = [{"job_id": job, "node": "n1", "gpus": 1, "gpu_mask": 1 << (job - 1)} for job in range(1, 5)]
    here = snapshot(rows, nodes, now_s=600.0, allocations=held)
    queued_s = np.array([float(row["in the queue since [s]"]) for row in page])
    columns = {name: np.full(6, value) for name, value in SEEN.items()} | {"queued_s": queued_s}
    return replace(here, carry=dict(remembered(here.jobs, columns)))


def beside(made: Ranking) -> list[int]:
    assert made.changes is not None and made.changes.beside is not None
    return made.changes.beside.tolist()


def later(here: Snapshot, made: Ranking, ran_s: float, progress: dict[int, int]) -> Snapshot:
    """The snapshot after so long, in which these jobs ran and tell this progress [%]. Carry as a file has it."""
    ids = here.jobs.job_id.tolist()
    comments = [text.replace("10/100", f"{progress[job]}/100") if job in progress else text
                for job, text in zip(ids, here.jobs.comment, strict=True)]  # fmt: skip
    executed_s = here.jobs.executed_s + ran_s * np.isin(ids, list(progress))
    jobs = here.jobs.with_columns(comment=comments, executed_s=executed_s)
    return replace(here, jobs=jobs, now_s=here.now_s + ran_s, carry=json.loads(json.dumps(dict(made.carry))))


def test_introspective__the_example_of_the_page() -> None:
    """6 goes beside 4 and 2 beside 1. After the trial the first pair stays, and the second parts for good."""
    here = six()
    made = Introspective().rank(here)
    assert beside(made) == [-1, 1, -1, -1, -1, 4]
    assert here.jobs.job_id[made.order].tolist() == [1, 3, 4, 2, 6, 5]
    assert Introspective().next_change_s(here, made, np.ones(6, np.bool_)) == 960.0
    tried = later(here, made, 360.0, {1: 15, 2: 14, 4: 16, 6: 15})
    judged = Introspective().rank(tried)
    assert (beside(judged)[5], judged.why["kept"][[3, 5]].tolist()) == (4, [0.6, 0.5])
    assert judged.carry["refused_pairs"] == [[1, 2]]
    assert 1 not in beside(judged) or beside(judged)[1] != 1


def test_introspective__who_is_not_tried() -> None:
    """With share=no, too little memory, no progress told, or GPUs for all nobody shares."""
    alone = {f"job{number}": "share=no" for number in range(1, 7)}
    large = {f"job{number}": "gpu_mem=10" for number in range(1, 7)}
    assert beside(Introspective().rank(six(**alone))) == [-1] * 6
    assert beside(Introspective(memory_gib=16.0).rank(six(**large))) == [-1] * 6
    assert beside(Introspective(memory_gib=20.0).rank(six(**large))) == [-1, 1, -1, -1, -1, 4]
    assert beside(Introspective().rank(replace(six(), carry={}))) == [-1] * 6
    assert beside(Introspective().rank(six("1x6"))) == [-1] * 6


def test_pair_trials__a_pair_ends_with_one_of_its_jobs() -> None:
    """What the other makes from then on counts as alone."""
    here = six()
    made = Introspective().rank(here)
    gone = later(here, made, 100.0, {2: 15})
    left = replace(gone, jobs=gone.jobs.take(gone.jobs.job_id != 1))
    seen = PairTrials.of(left)
    row = left.jobs.row_of(2)
    assert (seen.partner[row], seen.shared_s[row], seen.alone_s[row]) == (-1, 0.0, 360.0)


def test_introspective__a_slice_ends_at_the_end_of_the_queue() -> None:
    """Job 1 has run for its slice, so that 5 and 6 are before it."""
    here = six(**{f"job{number}": "share=no" for number in range(1, 7)})
    jobs = here.jobs.with_columns(executed_s=np.array([720.0, 500.0, 360.0, 360.0, 360.0, 360.0]))
    made = Introspective().rank(replace(here, jobs=jobs))
    assert here.jobs.job_id[made.order].tolist() == [2, 3, 4, 5, 6, 1]


def test_introspective__jobs_move_to_make_room() -> None:
    """The job of two GPUs starts when it comes: one of the others moves, and pays for its restart only. Under fifo, or
    if both may not be stopped, it waits."""
    jobs = [("", 0, 1, 1_000.0), ("", 0, 1, 100.0), ("", 1, 1, 2_000.0), ("", 150, 2, 500.0)]
    assert ends(jobs, "2x2", restart_cost_s=30.0) == pytest.approx([1_031.0, 100.0, 2_001.0, 650.0])
    assert ends(jobs, "2x2", policy="fifo")[3] == 1_500.0
    fixed = [("preempt=no" if run_s > 500 else hints, at_s, gpus, run_s) for hints, at_s, gpus, run_s in jobs]
    assert ends(fixed, "2x2", slice_s=1e6)[3] == 1_500.0


def test_introspective__jobs_grow_while_nobody_waits() -> None:
    """After 600 s of calm a job has all four GPUs of its node, and one again when two others are needed."""
    elastic = ("min_gpus=1 max_gpus=4", 0, 1, 4_000.0)
    one = ends([elastic], "1x4", physics="amdahl:serial=0.0")[0]
    assert one == pytest.approx(600 + 3_400 / 4)
    both = ends([elastic, ("", 700, 2, 100.0)], "1x4", physics="amdahl:serial=0.0")
    assert both[1] == pytest.approx(800.0, abs=2.0)
    assert ends([elastic], "1x4", grow=False)[0] == 4_000.0


def ends(jobs: list[tuple[str, int, int, float]], cluster: str, **given: Any) -> list[float]:
    """Ends of jobs [s]: hints, submission, GPUs, run time."""
    hints, submit_s, gpus, run_s = zip(*jobs, strict=True)
    comments = [f"slurmsched: {text}" if text else "" for text in hints]
    trace = Trace.of(np.arange(len(jobs)) + 1, list(gpus), list(submit_s), list(run_s), comment=comments)
    policy, physics = given.pop("policy", "introspective"), given.pop("physics", "grouped")
    settings = {"tells_progress": True, "restart_cost_s": given.pop("restart_cost_s", 0.0)}
    request = ReplayRequest(cluster=cluster, policy=policy, placement="consolidated", backfill="skip", physics=physics,
                            settings=settings, parameters=given)  # fmt: skip
    return ReplaySession(trace, request).run().cluster.endings()[0].tolist()


def test_introspective__the_figures_of_the_page() -> None:
    """Gavel's 96 jobs: with trials the mean JCT is below that of fifo, with turns alone it is above."""
    request = ReplayRequest(cluster="8x4", policy="introspective", placement="consolidated", backfill="skip",
                            physics='grouped:stages=""', settings={"tells_progress": True})  # fmt: skip
    figures = ReplaySession(shipped_trace("gavel_96_v100"), request).run().figures
    row = next(line for line in PAGE.splitlines() if line.startswith("| introspective |"))
    shown = [float(cell.replace(",", "")) for cell in row.split("|")[2:6]]
    assert shown == [round(figures[name]) for name in ("avg_jct_s", "avg_wait_s", "p99_jct_s", "preemptions")]
