"""How much work a cycle does, in lines of Python that run: the same on a busy machine as on a quiet one.

Seconds would fail at random. Compared are lines a job, node or candidate with the last figures, and those of a cluster
of twice the size with those of a small one. numpy and kernels are not seen: bench/ measures seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import slurmsched
from bench.placement import SHAPES, lists_of, with_candidates
from slurmsched.cli.framework import table_lines
from slurmsched.model.job_details import JobDetails
from slurmsched.observe.explain.queue_position import competitors_before
from slurmsched.observe.queue_rows import QueueRow, queue_rows
from slurmsched.planning.planner import Planner
from slurmsched.policies.srsf import Srsf
from slurmsched.slurm.job_tables import queue_columns
from slurmsched.slurm.pyslurm_child import JobLoader
from slurmsched.slurm.pyslurm_reader import _job_columns
from slurmsched.slurm.scontrol_tables import parse_nodes
from slurmsched.slurm.squeue import UNIT_SEPARATOR, parse_priorities, parse_queue, split_rows
from slurmsched.testing.builders import mixed_snapshot
from tests.unit.slurm.test_pyslurm import HEADER, WAITING, ClientLibrary, Job
from tests.unit.slurm.test_squeue import MARK, UNIT, printed, row

FIGURES = Path(__file__).with_name("test_work.json")
PACKAGE, KERNELS = str(Path(slurmsched.__file__).parent), "kernels"
COLD = """
import sys
import slurmsched.cli.main, slurmsched.cli.tick, slurmsched.cycle, slurmsched.daemon.cycle_parts, slurmsched.daemon.lock
import slurmsched.config_file, slurmsched.db.ledger_store, slurmsched.planning.planner, slurmsched.slurm.open_cluster
print(sum(name.startswith("slurmsched.") for name in sys.modules))
"""
Work = Callable[[], object]
WIDER = 1.3  # Python versions and the order of sets make a few percent
NODE = ("NodeName=n{0} CPUAlloc=0 CPUEfctv=64 CPUTot=64 Gres=gpu:a100:8(S:0-1) GresUsed=gpu:a100:{1}(IDX:N/A) "
        "RealMemory=512000 AllocMem=0 State=MIXED ThreadsPerCore=1 Partitions=gpu,short "
        "CfgTRES=cpu=64,mem=500G,gres/gpu=8 AllocTRES=\n")  # fmt: skip


def lines_of(work: Work) -> int:
    """Lines of slurmsched, kernels left out, that run in the second of two calls."""
    found = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal found
        found += event == "line"
        return count

    def called(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        return count if file.startswith(PACKAGE) and KERNELS not in file else None

    work()
    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return found


def read_queue(jobs: int) -> Work:
    rows = printed([row(job, name=f"train-{job % 97}") for job in range(1, jobs + 1)])
    return lambda: queue_columns(parse_queue(split_rows(rows, MARK), UNIT, []), 0.0, [])


def read_nodes(nodes: int) -> Work:
    text = "".join(NODE.format(node, 0) for node in range(nodes))
    return lambda: parse_nodes(text, [])


def read_library(jobs: int) -> Work:
    """The daemon's read by pyslurm: what the child does, and what is made of its answer."""
    loader = JobLoader(ClientLibrary([WAITING | {"job_id": job} for job in range(1, jobs + 1)]), HEADER, shown)
    return lambda: _job_columns(loader.load(), [])


def shown(job_id: int) -> Any:
    """A job as pyslurm shows it."""
    return Job.load(job_id, [WAITING | {"job_id": job_id}])


def read_priorities(jobs: int) -> Work:
    text = "".join(UNIT_SEPARATOR.join((str(job), "100", "0", "0", "90 10 cpu=0\n")) for job in range(1, jobs + 1))
    return lambda: parse_priorities(text, [])


def list_queue(jobs: int) -> Work:
    """`queue` as a file or another program gets it."""
    given = mixed_snapshot(jobs, seed=1)
    planned = Planner(Srsf()).plan(given)

    names = tuple(spec.name for spec in fields(QueueRow))
    values = attrgetter(*names)

    def listed() -> None:
        rows = queue_rows(given, planned, "nice")
        list(table_lines(names, [values(row) for row in rows], "", noheader=False))

    return listed


def place(nodes: int, jobs: int) -> Work:
    shapes = SHAPES["eight sizes"]
    at = with_candidates(nodes, [shapes[k % len(shapes)] for k in range(jobs)])
    return lambda: lists_of(at)


def plan(jobs: int) -> Work:
    given = mixed_snapshot(jobs, seed=1)
    return lambda: Planner(Srsf()).plan(replace(given))


def explain_last(jobs: int) -> Work:
    given = mixed_snapshot(jobs, seed=1)
    last = int(np.flatnonzero(given.jobs.pending)[-1])
    return lambda: competitors_before(replace(given), None, last, JobDetails())


WORKS: dict[str, tuple[Callable[[int], Work], int]] = {
    "squeue, lines a job": (read_queue, 400),
    "client library, lines a job": (read_library, 400),
    "sprio, lines a job": (read_priorities, 400),
    "queue as a list, lines a job": (list_queue, 400),
    "scontrol show node, lines a node": (read_nodes, 200),
    "node lists on 400 nodes, lines a job": (partial(place, 400), 16),
    "plan by srsf, lines a job": (plan, 400),
    "explain the last job, lines a job": (explain_last, 400),
}


def figures() -> dict[str, float]:
    """Lines that one more unit takes, by name of the work, and how those of a cluster grow with its nodes."""
    found = {
        name: (lines_of(work(2 * n)) - lines_of(work(n))) / n for name, (work, n) in WORKS.items()
    }  # fmt: skip
    few, many = (lines_of(place(nodes, 8)) for nodes in (200, 800))
    return found | {
        "node lists, lines on 800 nodes over those on 200": many / few,
        "modules that a cold tick loads": cold_modules(),
    }


def cold_modules() -> int:
    """Our modules that a process of one cycle loads: most of a cold `tick` is import."""
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_work__is_what_it_was(request: pytest.FixtureRequest) -> None:
    """A figure that moved by a third is named; `--update-goldens` writes them anew, for a change that means it."""
    now = {name: round(value, 2) for name, value in figures().items()}
    if request.config.getoption("--update-goldens"):
        FIGURES.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    last = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert list(now) == list(last)
    moved = [
        f"{name}: {last[name]:g} before, {now[name]:g} now" for name in now
        if not (last[name] + 1) / WIDER <= now[name] + 1 <= (last[name] + 1) * WIDER
    ]  # fmt: skip
    assert not moved, "work that moved:\n" + "\n".join(moved)
