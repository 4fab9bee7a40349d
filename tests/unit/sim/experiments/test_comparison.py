"""Policies side by side."""

from __future__ import annotations

import operator
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched.errors import ConfigError, InputError, SlurmschedError
from slurmsched.model.columns import Labels
from slurmsched.model.trace import RecordedTrace, Trace, trace_digest
from slurmsched.sim.experiments import worker_processes
from slurmsched.sim.experiments.comparison import (
    ComparisonCase,
    PlayedCase,
    PolicyComparison,
    check_comparison,
    comparison_cases,
    comparison_report,
    play_case,
    ratios_to_first,
)
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.experiments.worker_processes import in_order, play_cases
from slurmsched.sim.traces.trace_io import sample_trace, shipped_trace

SIX = Trace.of(
    [1, 2, 3, 4, 5, 6], [2, 4, 1, 2, 1, 3], [0, 1, 2, 3, 4, 5], [6, 4, 3, 5, 9, 2],
    user=["ann", "bob", "ann", "cy", "bob", "cy"],
)  # fmt: skip


def ignore(ended: int) -> None:
    pass


def played(policy: str, tell: Callable[[int], None] = ignore, trace: Trace = SIX, cluster: str = "1x4") -> PlayedCase:
    return play_case(trace, ComparisonCase(0, ReplayRequest(cluster=cluster, policy=policy)), tell)


def stopped_after(jobs: int) -> Callable[[int], None]:
    def tell(ended: int) -> None:
        if ended >= jobs:
            raise KeyboardInterrupt

    return tell


def six(*policies: str, **settings: Any) -> PolicyComparison:
    return PolicyComparison("six.csv", RecordedTrace(SIX, "csv"), [played(policy) for policy in policies], **settings)


def test_cases__are_every_trace_under_every_policy() -> None:
    """Trace by trace; a policy twice is an error, the same policy with other parameters is not."""
    requests = [ReplayRequest(policy="fifo"), ReplayRequest(policy="las"), ReplayRequest(policy="las:quantum_gpu_s=9")]
    assert [(case.trace, case.request) for case in comparison_cases(2, requests)] == [
        (t, r) for t in (0, 1) for r in requests
    ]
    with pytest.raises(ConfigError, match="'fifo' is named twice"):
        comparison_cases(1, [requests[0], requests[0]])


@pytest.mark.parametrize(("words", "said"), [
    ({"policy": "fifoo"}, "six.csv under fifoo: policy: no policy 'fifoo'"),
    ({"cluster": "1x2"}, "six.csv under fifo: job 2 asks for 4 GPUs, .*too few for 1 other job as well"),
])  # fmt: skip
def test_check__finds_what_cannot_begin(words: dict[str, Any], said: str) -> None:
    """Trace and policy are named."""
    with pytest.raises(InputError, match=said):
        check_comparison(RecordedTrace(SIX), "six.csv", [ReplayRequest(**{"cluster": "1x4", **words})])


@pytest.mark.parametrize("counted", [[True] * 6, [True, False, True, True, True, True]])
def test_check__looks_at_each_partition_of_jobs_that_count(tmp_path: Path, counted: list[bool]) -> None:
    """The largest job is of a partition that is there, or does not count."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=n1 CPUs=8 Gres=gpu:4\nPartitionName=main Nodes=n1\n")
    trace = SIX.with_columns(partition=Labels.of(["old", "main", *["old"] * 4]), counted=counted)
    with pytest.raises(InputError, match="no partition 'old' in this cluster; it has main; --map old=NAME"):
        check_comparison(RecordedTrace(trace), "x", [ReplayRequest(cluster=str(conf), model="slurm", policy="slurm")])


def test_play__gives_what_replay_gives() -> None:
    """The same figures but the time it took, and every run: SRTF preempts two jobs."""
    ours, alone = played("srtf"), ReplaySession(SIX, ReplayRequest(cluster="1x4", policy="srtf")).run()
    assert {**ours.figures, "wall_s": 0.0} == {**alone.figures, "wall_s": 0.0}
    assert (ours.complete, len(ours.runs.job_id)) == (True, 6 + 2)


@pytest.mark.parametrize("model", ["ideal", "slurm"])
def test_runs__add_up_to_the_time_of_each_job(model: Any) -> None:
    """Both cluster models note every run; requeued ones too."""
    trace = sample_trace().first(60)
    made = ReplaySession(trace, ReplayRequest(cluster="2x8", policy="discretized-las", model=model)).run()
    total = {int(job): 0.0 for job in trace.job_id}
    for job, start_s, end_s in zip(made.runs.job_id, made.runs.start_s, made.runs.end_s, strict=True):
        total[int(job)] += end_s - start_s
    assert list(total.values()) == pytest.approx(made.outcomes.executed_s.tolist())
    assert len(made.runs.job_id) == len(trace) + made.outcomes.preemptions.sum()


def test_ratios__are_over_the_first_policy() -> None:
    """SRTF over FIFO on six jobs: 50/6 over 65/6 s, and 20 over 19 s."""
    found = ratios_to_first(played("srtf"), played("fifo"))
    assert (found["avg_jct_s"], found["makespan_s"]) == (pytest.approx(50 / 65), pytest.approx(20 / 19))


def test_ratios__of_a_replay_cut_short_count_jobs_that_ended_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means over other jobs would say nothing; the makespan is not told."""
    monkeypatch.setattr(
        "slurmsched.sim.experiments.replay_session._every_so_often", lambda tell: lambda cluster: tell(cluster.ended)
    )
    cut, whole = played("fifo", stopped_after(2)), played("fifo")
    found = ratios_to_first(cut, whole)
    assert (cut.complete, len(cut.outcomes.job_id)) == (False, 2)
    assert (found["avg_jct_s"], found["avg_wait_s"], found["makespan_s"]) == (1.0, 1.0, None)


def test_ratios__of_nothing_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job ended in both."""
    monkeypatch.setattr(
        "slurmsched.sim.experiments.replay_session._every_so_often", lambda tell: lambda cluster: tell(cluster.ended)
    )
    assert set(ratios_to_first(played("fifo", stopped_after(0)), played("fifo")).values()) == {None}


def test_report__names_version_trace_seed_and_config() -> None:
    """What is needed to get the same again is in every run."""
    made = comparison_report([six("fifo", "srtf")], 0, complete=True)
    assert [trace["trace_digest"] for trace in made["traces"]] == [trace_digest(SIX)]
    for run in made["runs"]:
        assert (run["version"], run["trace_digest"], run["seed"]) == (made["version"], trace_digest(SIX), 0)
        assert run["config"]["policy"] == run["policy"]


def test_report__says_who_gains_and_who_loses() -> None:
    """SRTF against FIFO: cy and bob wait 6 s and 2 s less, ann half a second more; top names the first of each."""
    fifo, srtf = comparison_report([six("fifo", "srtf", top=1)], 0, complete=True)["runs"]
    assert (fifo["gaining"], fifo["losing"], fifo["ratio"]["avg_jct_s"]) == (0, 0, 1.0)
    assert (srtf["gaining"], srtf["losing"]) == (2, 1)
    assert [(each["tenant"], each["change_s"]) for each in (*srtf["gain"], *srtf["lose"])] == [
        ("cy", -6.0), ("ann", 0.5),
    ]  # fmt: skip


def test_report__waits_by_size() -> None:
    """By GPUs asked for; a class without jobs is unknown."""
    (run,) = comparison_report([six("fifo")], 0, complete=True)["runs"]
    assert (run["wait_by_gpus_s"]["1"]["mean"], run["wait_by_gpus_s"][">8"]) == (7.0, None)


def test_play_all__in_processes_equals_one_after_the_other() -> None:
    """Same outcomes in the order of the cases, whoever was ready first; progress ends with all jobs."""
    requests = [ReplayRequest(cluster="1x4", policy=policy) for policy in ("srtf", "fifo", "las")]
    told: list[int] = []
    both = [play_cases([SIX], comparison_cases(1, requests), workers, told.append) for workers in (1, 2)]
    digests = [[(each.title, each.outcomes.digest) for each in made] for made in both]
    assert digests[0] == digests[1]
    assert (told[-1], [title for title, _ in digests[0]]) == (18, ["srtf", "fifo", "las"])


def test_play_all__interrupted_keeps_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other: the first whole, the second cut short, the third not begun."""
    monkeypatch.setattr(
        "slurmsched.sim.experiments.replay_session._every_so_often", lambda tell: lambda cluster: tell(cluster.ended)
    )
    requests = [ReplayRequest(cluster="1x4", policy=policy) for policy in ("srtf", "fifo", "las")]
    made = play_cases([SIX], comparison_cases(1, requests), 1, stopped_after(6 + 3))
    assert [(each.title, each.complete, len(each.outcomes.job_id)) for each in made] == [
        ("srtf", True, 6), ("fifo", False, 3),
    ]  # fmt: skip


def test_held__an_interrupt_waits_until_the_process_has_started() -> None:
    """Else the process that is being started would read half of what it needs, and print a traceback."""
    done = False
    with in_order() as ending, pytest.raises(KeyboardInterrupt), ending.held():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_play_all__interrupted_processes_hand_in_what_they_have() -> None:
    """Ctrl-C at the first sign of progress: each case is cut short or never begun."""
    trace = shipped_trace("philly_10k")  # so long that no case ends before it hears of the stop
    requests = [ReplayRequest(cluster="50x8", policy=policy) for policy in ("discretized-las", "srtf", "srsf", "las")]
    made = play_cases([trace], comparison_cases(1, requests), 2, stopped_after(1))
    assert 1 <= len(made) <= 2
    assert 1 <= sum(len(each.outcomes.job_id) for each in made) < 2 * len(trace)
    assert {each.complete for each in made} == {False}


def test_play_all__hands_on_the_error_of_a_process() -> None:
    """As if it had been raised here."""
    requests = [ReplayRequest(cluster="1x4", policy=policy, history="nowhere") for policy in ("gittins", "fifo")]
    with pytest.raises(InputError, match="nowhere: is no column of numbers"):
        play_cases([SIX], comparison_cases(1, requests), 2, ignore)


def test_play_all__says_when_a_process_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when memory runs out: one line with what to do."""
    monkeypatch.setattr(worker_processes, "_set_up_worker", operator.index)  # fails at the start of every process
    with pytest.raises(SlurmschedError, match="a process was ended from outside; if memory is short, try --workers 1"):
        play_cases([SIX], comparison_cases(1, [ReplayRequest(policy="fifo"), ReplayRequest(policy="las")]), 2, ignore)


PARENT = """
import time
from slurmsched.sim.experiments.comparison import comparison_cases as cases
from slurmsched.sim.experiments.worker_processes import play_cases as play_all
from slurmsched.sim.experiments.replay_request import ReplayRequest as Request
from slurmsched.model.trace import Trace

def wait(ended):
    print("begun", flush=True)
    time.sleep(1_000_000)

if __name__ == "__main__":
    requests = [Request(cluster="1x4", policy=policy) for policy in ("srtf", "fifo")]
    play_all([Trace.of([1], [1], [0], [1])], cases(1, requests), 2, wait)
"""


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_play_all__ended_while_its_processes_are_started(tmp_path: Path) -> None:
    """As later on: nothing is played to its end first, and no process that was half there complains."""
    (script := tmp_path / "parent.py").write_text(PARENT.replace("time.sleep(1_000_000)", "pass"))
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True) as parent:
        while len(children(parent.pid)) < 2 and parent.poll() is None:
            pass
        parent.send_signal(signal.SIGTERM)
        _, said = parent.communicate()
    assert (parent.returncode, said) == (143, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_play_all__ended_by_a_signal_leaves_no_process(number: int, code: int, tmp_path: Path) -> None:
    """The processes end with their parent. SIGTERM is told by the exit code, and nothing says "leaked semaphore"."""
    (script := tmp_path / "parent.py").write_text(PARENT)
    argv = [sys.executable, str(script)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert (parent.stdout.readline() if parent.stdout else "") == "begun\n"
        those = children(parent.pid)
        parent.send_signal(number)
        _, said = parent.communicate()  # until nobody holds its end of the pipe any more
    assert (parent.returncode, len(those) > 1) == (code, True)
    assert number == signal.SIGKILL or said == ""


def test_as_first__says_when_a_policy_changes_nothing_and_why() -> None:
    """By nice alone discretized-las is Slurm's own order: no job that waits has run."""
    requests = [ReplayRequest(cluster="1x4", policy=policy, model="slurm", requeue=False)
                for policy in ("slurm", "discretized-las", "fifo", "sjf")]  # fmt: skip
    trace = sample_trace().first(60)
    made = [play_case(trace, ComparisonCase(0, replace(request, cluster="2x8")), ignore) for request in requests]
    runs = PolicyComparison("sample", RecordedTrace(trace, "csv"), made).runs
    told = [run["as_first"] for run in runs]
    assert told[0] is None
    assert "every job that counts starts and ends as under slurm: it orders by attained service" in told[1]
    assert (
        told[2]
        == "every job that counts starts and ends as under slurm: here its order gives every one of them the same time"
    )
    assert told[3] is None
