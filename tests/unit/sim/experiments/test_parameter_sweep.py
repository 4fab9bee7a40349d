"""Points played once each, on processes or whatever else takes them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched import __version__
from slurmsched.errors import InputError, LockedError
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.sim.experiments import parameter_sweep, replay_result
from slurmsched.sim.experiments.parameter_grid import GridPoint, grid_points
from slurmsched.sim.experiments.parameter_sweep import ParameterSweep, open_results, play_point, point_key, read_traces
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.experiments.worker_processes import SweepWorkers, local_processes, usable_cores

SIX = Trace.of([1, 2, 3, 4, 5, 6], [2, 4, 1, 2, 1, 3], [0, 1, 2, 3, 4, 5], [6, 4, 3, 5, 9, 2])
WORDS = ["policy=fifo", "policy=srtf", "cluster=1x4", "cluster=2x4"]
Calls = list[tuple[Trace, ReplayRequest]]


class Here(Executor):
    """Plays at once, in this process. calls: what it was given. Stops for Ctrl-C at call `stop`."""

    def __init__(self, stop: int = -1) -> None:
        self.calls: Calls = []
        self.stop = stop

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append(args)  # type: ignore[arg-type]
        future: Future[Any] = Future()
        future.set_result(fn(*args)) if len(self.calls) != self.stop else future.set_exception(OSError("killed"))
        return future


def points(*words: str) -> list[GridPoint]:
    return grid_points({}, words or WORDS, ["six"])


def swept(path: Path, chosen: list[GridPoint], executor: Executor | None = None) -> tuple[ParameterSweep, Here]:
    here = Here() if executor is None else executor
    with open_results(path) as results:
        made = ParameterSweep(chosen, {"six": SIX}, results)
        made.run(SweepWorkers(here))
    return made, here  # type: ignore[return-value]


def test_sweep__gives_the_figures_of_replay(tmp_path: Path) -> None:
    """A row a point in the grid's order: its words, and what `replay` prints."""
    made, _ = swept(tmp_path / "r", points())
    assert [(row["cluster"], row["policy"]) for row in made.rows] == [
        ("1x4", "fifo"), ("1x4", "srtf"), ("2x4", "fifo"), ("2x4", "srtf"),
    ]  # fmt: skip
    alone = ReplaySession(SIX, ReplayRequest(cluster="1x4", policy="srtf")).run().figures
    assert {**made.rows[1], "wall_s": 0} == {**made.rows[1], **alone, "wall_s": 0}


def test_sweep__plays_only_what_is_missing(tmp_path: Path) -> None:
    """A larger grid adds its own points; the same grid adds none."""
    swept(tmp_path / "r", points())
    made, here = swept(tmp_path / "r", points(*WORDS, "cluster=3x4"))
    assert ([request.cluster for _, request in here.calls], len(made.rows)) == (["3x4", "3x4"], 6)
    _, here = swept(tmp_path / "r", points())
    assert here.calls == []


def test_sweep__one_wrong_point_stops_no_other(tmp_path: Path) -> None:
    """A job that never fits, a parameter out of range, a cluster that is none; none is kept as done."""
    chosen = points("cluster=1x2", "cluster=1x4", "cluster=no.toml", "policy=fifo",
                    "policy=discretized-las", "policy.thresholds_gpu_s=[9.0, 4.0]")  # fmt: skip
    made, _ = swept(tmp_path / "r", chosen)
    assert [(row["cluster"], row["policy"]) for row in made.rows] == [("1x4", "fifo")]
    said = [
        "GPUs, and the nodes that it may have hold 2",
        "must ascend",
        "must ascend",
        "is no cluster",
        "is no cluster",
    ]
    assert [words in error for words, (_, error) in zip(said, made.failures, strict=True)] == [True] * 5
    assert (tmp_path / "r").read_text().count("\n") == 1


def test_sweep__a_lost_worker_costs_its_point_only(tmp_path: Path) -> None:
    """The error says so; the next run plays that point."""
    made, _ = swept(tmp_path / "r", points(), Here(stop=2))
    assert [error for _, error in made.failures] == ["the worker failed: OSError: killed"]
    made, here = swept(tmp_path / "r", points())
    assert (len(here.calls), len(made.rows), made.failures) == (1, 4, [])


def test_sweep__gives_a_lost_point_out_again_where_workers_are_replaced(tmp_path: Path) -> None:
    """With the trace shared anew, which may have been lost with it; the others are not played again."""
    here, shared = Here(stop=2), list[Trace]()
    with open_results(tmp_path / "r") as results:
        made = ParameterSweep(points(), {"six": SIX}, results)
        made.run(SweepWorkers(here, lambda trace: shared.append(trace) or trace, 3))  # type: ignore[func-returns-value]
    assert (len(made.rows), made.failures, len(here.calls), len(shared)) == (4, [], 5, 2)


def test_sweep__refuses_workers_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their figures would be kept under our name."""
    monkeypatch.setattr(replay_result, "__version__", "0.0")
    made, _ = swept(tmp_path / "r", points("policy=fifo"))
    assert made.failures[0][1] == f"the worker has slurmsched 0.0, here it is {__version__}"


def test_play__turns_an_unforeseen_error_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions of a site's plug-in may be such as cannot be sent from process to process."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(parameter_sweep, "ReplaySession", broken)
    assert play_point(SIX, ReplayRequest()) == {"error": "unexpected ZeroDivisionError: x"}


def test_point_key__differs_with_all_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, trace, version, and what files hold; but not how the same thing is written."""
    cluster = tmp_path / "c.toml"
    cluster.write_text("[[nodes]]\ncount = 2\ngpus = 4\n")
    here = point_key(ReplayRequest(cluster="2x4"), SIX, "d")
    assert point_key(ReplayRequest(cluster=str(cluster)), SIX, "d") == here
    with_index = ReplayRequest(policy="gittins:dimension=1d")
    assert point_key(with_index, SIX, "d") == point_key(
        ReplayRequest(policy="gittins", parameters={"dimension": "1d"}), SIX, "d"
    )
    cluster.write_text("[[nodes]]\ncount = 3\ngpus = 4\n")
    others = [
        point_key(ReplayRequest(cluster=str(cluster)), SIX, "d"),
        point_key(ReplayRequest(cluster="2x4"), SIX, "e"),
    ]
    words = {"policy": "easy", "seed": 1, "round_s": 5.0, "parameters": {"x": 1}, "model": "slurm"}
    others += [
        point_key(replace(ReplayRequest(cluster="2x4"), **{name: value}), SIX, "d") for name, value in words.items()
    ]
    monkeypatch.setattr(parameter_sweep, "__version__", "0.0")
    others.append(point_key(ReplayRequest(cluster="2x4"), SIX, "d"))
    assert len({here, *others}) == 1 + len(others)


def test_point_key__differs_with_physics_and_its_files(tmp_path: Path) -> None:
    """By words, and by what the files hold that they name; `recorded` is no physics."""
    table = tmp_path / "table.json"
    keys = []
    for content in ('{"v100": {}}', '{"k80": {}}'):
        table.write_text(content)
        keys.append(point_key(ReplayRequest(cluster="2x4", physics=f"gpu-types:throughputs={table}"), SIX, "d"))
    keys += [point_key(ReplayRequest(cluster="2x4", **words), SIX, "d") for words in (
        {}, {"physics": "spread"}, {"physics": "mapa"}, {"topology": "dgx-1v"})]  # fmt: skip
    assert len(set(keys)) == 6
    assert point_key(ReplayRequest(cluster="2x4", physics="recorded"), SIX, "d") == keys[2]


@pytest.mark.parametrize("words", [
    lambda file: {"parameters": {"speeds": {"name": "throughputs", "table": file}}},
    lambda file: {"parameters": {"tables": [file]}},
    lambda file: {"policy": f"gavel:speeds={file}"},
    lambda file: {"placement": f"linked:table={file}"},
])  # fmt: skip
def test_point_key__differs_with_files_of_policy_and_placement(tmp_path: Path, words: Any) -> None:
    """After a table was corrected under its old name the point is played anew."""
    table, keys = tmp_path / "table.json", []
    for content in ('{"v100": {}}', '{"k80": {}}', '{"v100": {}}'):
        table.write_text(content)
        keys.append(point_key(ReplayRequest(cluster="2x4", **words(str(table))), SIX, "d"))
    assert keys[0] == keys[2] != keys[1]


def test_point_key__differs_with_every_field_of_a_request(tmp_path: Path) -> None:
    """A point that had another's key would be given its figures, unplayed."""
    history, past = tmp_path / "history.csv", tmp_path / "past.csv"
    history.write_text("5\n7\n")
    past.write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,5\n")
    changed = {
        "cluster": "2x4", "policy": "srtf", "model": "slurm", "placement": "consolidated", "backfill": "easy",
        "history": str(history), "past": str(past), "round_s": 1.0, "restart_cost_s": 1.0, "requeue": False, "seed": 1,
        "settings": {"bf_interval_s": 9.0}, "parameters": {"x": 1}, "physics": "spread", "topology": "dgx-1v",
        "preempt": {}, "hints": "deadline=1h", "tiers": ("partition",), "age_cap_s": 60.0,
        "origin_s": 1.0, "moldable": True,
    }  # fmt: skip
    assert set(changed) == {spec.name for spec in fields(ReplayRequest)}
    here = ReplayRequest(cluster="1x4", policy="fifo")
    keys = {name: point_key(replace(here, **{name: value}), SIX, "d") for name, value in changed.items()}
    assert len({point_key(here, SIX, "d"), *keys.values()}) == 1 + len(changed)
    past.write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,6\n")
    assert point_key(replace(here, past=str(past)), SIX, "d") != keys["past"]
    past.unlink()
    with pytest.raises(InputError, match=r"past\.csv: cannot be read"):
        point_key(replace(here, past=str(past)), SIX, "d")


def test_read_traces__reads_each_once() -> None:
    """And refuses one that holds no job."""
    asked, six = list[str](), RecordedTrace(SIX)
    assert read_traces(points(), lambda name: asked.append(name) or six) == {"six": six}  # type: ignore[func-returns-value]
    assert asked == ["six"]
    with pytest.raises(InputError, match="six: holds no job"):
        read_traces(points(), lambda _: RecordedTrace(SIX.first(0)))


def test_processes__give_the_same_rows(tmp_path: Path) -> None:
    """Two processes of this machine against this process."""
    with local_processes(2) as workers, open_results(tmp_path / "a") as results:
        theirs = ParameterSweep(points(), {"six": SIX}, results)
        theirs.run(workers)
        assert [{**row, "wall_s": 0} for row in theirs.rows] == [
            {**row, "wall_s": 0} for row in swept(tmp_path / "b", points())[0].rows
        ]


def test_processes__end_at_once_when_the_body_fails() -> None:
    """Ctrl-C does not wait for replays under way."""
    with pytest.raises(KeyboardInterrupt), local_processes(1) as workers:
        running = [workers.executor.submit(_forever) for _ in range(3)]
        raise KeyboardInterrupt
    assert [future.done() for future in running] == [True] * 3


def _forever() -> None:
    time.sleep(600)


def test_processes__do_not_outlive_their_parent(tmp_path: Path) -> None:
    """Though it was killed outright and could tell them nothing."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from slurmsched.sim.experiments.worker_processes import local_processes\n"
        "if __name__ == '__main__':\n"
        "    with local_processes(1) as workers:\n"
        "        print(workers.executor.submit(os.getpid).result(), flush=True)\n"
        "        time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = Path("/proc", parent.stdout.readline().strip(), "stat")
        alive = worker.exists()
        parent.kill()
    late = time.monotonic() + 30
    while worker.exists() and ") Z " not in worker.read_text() and time.monotonic() < late:
        time.sleep(0.05)
    assert (alive, time.monotonic() < late) == (True, True)


def test_processes__end_in_order_by_sigterm(tmp_path: Path) -> None:
    """The exit code tells it, and no leaked semaphore is told of."""
    (script := tmp_path / "parent.py").write_text(
        "import time\nfrom slurmsched.sim.experiments.worker_processes import local_processes\n"
        "if __name__ == '__main__':\n"
        "    with local_processes(1) as workers:\n        workers.executor.submit(time.sleep, 0).result()\n"
        "        print('begun', flush=True)\n        time.sleep(1_000_000)\n"
    )
    argv = [sys.executable, str(script)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert (parent.stdout.readline() if parent.stdout else "") == "begun\n"
        parent.terminate()
        _, said = parent.communicate()
    assert (parent.returncode, said) == (143, "")


def test_cores__are_those_of_this_process() -> None:
    """At least one."""
    assert usable_cores() >= 1


# The file of finished points.


A, B = {"key": "a", "jobs": 1}, {"key": "b", "jobs": 2}


def test_results__come_back(tmp_path: Path) -> None:
    """In their order; what a second opening adds comes behind."""
    path = tmp_path / "r.jsonl"
    for row in (A, B):
        with open_results(path) as results:
            results.add(row)
    with open_results(path) as results:
        assert list(results.rows.values()) == [A, B]


@pytest.mark.parametrize("cut", [1, 5, 18])
def test_results__drop_a_torn_last_line(tmp_path: Path, cut: int) -> None:
    """Wherever it was cut off; the next row is readable again."""
    path = tmp_path / "r.jsonl"
    with open_results(path) as results:
        results.add(A)
        results.add(B)
    path.write_bytes(path.read_bytes()[:-cut])
    with open_results(path) as results:
        assert results.rows == {"a": A}
        results.add(B)
    with open_results(path) as results:
        assert results.rows == {"a": A, "b": B}


@pytest.mark.parametrize("line", ["hello", "3", '{"jobs": 1}'])
def test_results__refuse_a_file_of_something_else(tmp_path: Path, line: str) -> None:
    """With the line; the file stays as it was."""
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"key": "a"}}\n{line}\n')
    with pytest.raises(InputError, match=r"r\.jsonl:2: is no row of a sweep"), open_results(path):
        pass
    assert path.read_text().endswith(f"{line}\n")


def test_results__are_of_one_sweep_at_a_time(tmp_path: Path) -> None:
    """A second one is told so, and may go on when the first has ended."""
    path = tmp_path / "r.jsonl"
    with open_results(path), pytest.raises(LockedError, match="another sweep writes here"), open_results(path):
        pass
    with open_results(path) as results:
        assert results.rows == {}


def test_results__name_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Before anything is played."""
    with pytest.raises(InputError, match="cannot be written"), open_results(tmp_path / "no" / "r.jsonl"):
        pass
