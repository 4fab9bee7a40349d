"""Rules of the rows of jobs, recorded and under each policy."""

from __future__ import annotations

import csv
import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from slurmsched.errors import InputError
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_result import COLUMNS, job_rows, joined, of_job, write_job_rows
from slurmsched.sim.experiments.replay_session import ReplaySession

ORIGIN_S = 1_790_000_000.0


def rows() -> dict[str, list[object]]:
    """Two jobs of 4 GPUs one after the other, where they were recorded side by side."""
    trace = Trace.of(
        [1, 2], [4, 4], [0, 0], [100, 100], [200, 200], start_s=[5.0, 5.0], partition=["gpu"] * 2, nodes=[1, 1]
    )
    recorded = RecordedTrace(trace, "sacct", ORIGIN_S)
    session = ReplaySession(trace, ReplayRequest(cluster="1x4", model="slurm", policy="slurm"))
    made = session.run()
    return job_rows("t.csv", recorded, [("slurm", made.all_outcomes, list(made.node_lists))])


def test_job_rows__recorded_and_modelled() -> None:
    """Times are Unix seconds; the model names the nodes, the record has only how many."""
    first, second = of_job(rows(), 2, "t.csv")
    times = [first[name] for name in ("start_s", "end_s", "wait_s")]
    assert times == [ORIGIN_S + 5, ORIGIN_S + 105, 5.0]
    assert [first[name] for name in ("schedule", "nodes", "node_list")] == ["recorded", 1, ""]
    assert [second[name] for name in ("schedule", "nodes", "node_list")] == ["slurm", 1, "node1"]
    assert second["wait_s"] >= 100


def test_of_job__one_that_is_not_there() -> None:
    """The error names the job and what was searched."""
    with pytest.raises(InputError, match="has no job 3 among those that are replayed"):
        of_job(rows(), 3, "t.csv")


def test_write_job_rows__csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    """The ending of the name decides on the form alone."""
    import polars

    every = joined([rows(), rows()])
    for name in ("jobs.csv", "jobs.parquet"):
        write_job_rows(tmp_path / name, every)
    with (tmp_path / "jobs.csv").open() as file:
        text = list(csv.DictReader(file))
    frame = polars.read_parquet(tmp_path / "jobs.parquet")
    assert (8, list(COLUMNS)) == (len(text), frame.columns)
    assert [float(row["start_s"]) for row in text] == frame["start_s"].to_list()


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet"])
def test_write_job_rows__on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One message for both forms, and no draft stays."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for way in ("write_bytes", "write_text"):
        monkeypatch.setattr(Path, way, Mock(side_effect=full))
    with pytest.raises(InputError, match=f"{name}: cannot be written: No space left on device"):
        write_job_rows(tmp_path / name, rows())
    assert list(tmp_path.iterdir()) == []


def test_write_job_rows__another_ending(tmp_path: Path) -> None:
    """The error names the two that are known."""
    with pytest.raises(InputError, match=r"must end in \.csv or \.parquet"):
        write_job_rows(tmp_path / "jobs.txt", rows())


def test_job_rows__a_job_does_not_start_before_it_could() -> None:
    """Eligible, as accounting recorded it, is the model's begin time."""
    trace = Trace.of([1], [1], [0], [10], [60], eligible_s=[500.0])
    made = ReplaySession(trace, ReplayRequest(cluster="1x4", model="slurm", policy="slurm")).run()
    (row,) = of_job(job_rows("t", RecordedTrace(trace), [("slurm", made.all_outcomes, list(made.node_lists))]), 1, "t")
    assert row["eligible_s"] == 500.0
    assert 500.0 <= row["start_s"] < 560.0
