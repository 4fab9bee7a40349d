"""Rules of which jobs of a trace are replayed, and which of them count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.errors import InputError
from slurmsched.model.trace import RecordedTrace, Trace, trace_digest
from slurmsched.sim.traces.trace_selection import (
    Selection,
    chosen_by_default,
    moment_s,
    selected,
    with_limits,
    with_those_beside,
)

NAN = float("nan")
DAY_S = 86_400.0
EPOCH_S = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


def history(**more: object) -> RecordedTrace:
    """Ten jobs of 1 GPU, one a day, each of half a day and started at once, in partitions a and b by turns."""
    submit_s = np.arange(10) * DAY_S
    columns = {
        "start_s": submit_s,
        "partition": ["a", "b"] * 5,
        "user": ["u", "v", "v", "v", "v"] * 2,
        "qos": ["old"] * 10,
    }
    trace = Trace.of(np.arange(1, 11), np.ones(10), submit_s, np.full(10, DAY_S / 2), **(columns | more))
    return RecordedTrace(trace, "sacct", EPOCH_S)


def jobs(recorded: RecordedTrace, wanted: Selection) -> list[int]:
    return selected(recorded, wanted).recorded.trace.job_id.tolist()


def counted(recorded: RecordedTrace, wanted: Selection) -> list[int]:
    trace = selected(recorded, wanted).recorded.trace
    return trace.job_id[trace.counted].tolist()


@pytest.mark.parametrize(("wanted", "expected"), [
    (Selection(), list(range(1, 11))),
    (Selection(partitions=("b",)), [2, 4, 6, 8, 10]),
    (Selection(users=("u",)), [1, 6]),
    (Selection(since="3d", until="6d"), [4, 5, 6]),
    (Selection(since="2026-09-24T14:13:20", until="2026-09-26T14:13:20"), [4, 5]),
    (Selection(partitions=("c",), renames={"b": "c"}), [2, 4, 6, 8, 10]),
])  # fmt: skip
def test_selected__jobs_of_partitions_users_and_times(wanted: Selection, expected: list[int]) -> None:
    """A partition that the cluster does not have any more is renamed first."""
    assert expected == jobs(history(), wanted)


def test_with_those_beside__do_not_count_and_come_with_the_others() -> None:
    """Without GPUs, or cancelled on day 5 while it waited: those there on day 4 are there, no figure has them."""
    waited = {"cancel_s": [NAN, 5 * DAY_S, 2 * DAY_S], "start_s": [1.0, NAN, NAN], "partition": ["a"] * 3}
    beside = Trace.of([21, 22, 23], [0, 1, 1], [0.0, 1.0, 1.0], [6 * DAY_S] * 3, least_gpus=0, **waited)
    whole = with_those_beside(replace(history(), beside=beside))
    found = selected(whole, Selection(since="4d", warm_start=True))
    trace = found.recorded.trace
    assert trace.job_id.tolist() == [21, 5, 22, *range(6, 11)]
    assert trace.job_id[trace.counted].tolist() == [6, 7, 8, 9]
    assert whole.assumed == ("beside them, in no figure: 1 without GPUs and 2 cancelled while they waited",)
    assert found.notes[-1].startswith("4 of 6 jobs count")


@pytest.mark.parametrize(("wanted", "expected"), [
    (Selection(partitions=("c",)), "no job of partition 'c'; the trace has a, b"),
    (Selection(renames={"x": "y"}), "--map x: no partition, QOS or account of the trace is called so"),
    (Selection(since="soon"), "--since 'soon' is no time: write 2026-10-05, 2026-10-05T12:00, 12d after the first "
                              "submission, or 10%"),
    (Selection(since="20d"), "no job remains: these were submitted 2026-09-21 14:13 to 2026-09-30 14:13; a wider "
                             "--since or --until is needed"),
    (Selection(since="5d", until="4d"), "--until 4d is not after the begin of the window"),
    (Selection(count_from="20d"), "no job counts: these were submitted 2026-09-21 14:13 to 2026-09-30 14:13; give "
                                  "another --count-from or --count-until"),
])  # fmt: skip
def test_selected__words_that_name_nothing(wanted: Selection, expected: str) -> None:
    """The error names the option, the word and what is possible."""
    with pytest.raises(InputError) as error:
        selected(history(), wanted)
    assert expected == str(error.value)


def test_selected__a_date_needs_a_calendar() -> None:
    """A trace in seconds from its begin has none."""
    with pytest.raises(InputError, match="the trace has no calendar"):
        selected(RecordedTrace(history().trace), Selection(since="2026-09-24"))


def test_moment_s__a_date_is_on_the_clock_of_the_site() -> None:
    """Midnight in Berlin is 22:00 of the day before in UTC."""
    trace = history().trace
    berlin = RecordedTrace(trace, "sacct", EPOCH_S, utc_offset_s=7_200.0)
    assert moment_s("2026-09-22", history(), "", 0, 1) - moment_s("2026-09-22", berlin, "", 0, 1) == 7_200.0


def test_selected__the_first_and_the_last_tenth_do_not_count() -> None:
    """Of a trace with recorded starts; the note names the span."""
    found = selected(history(), Selection())
    assert list(range(2, 10)) == counted(history(), Selection())
    assert found.notes == ("8 of 10 jobs count, submitted 2026-09-22 11:49 to 2026-09-29 16:37 (the first and last "
                           "10 % are left out)",)  # fmt: skip


def test_selected__without_recorded_starts_all_count() -> None:
    """A list of jobs for a simulator begins with an empty cluster, and published figures are over all jobs."""
    listed = history(start_s=np.full(10, NAN))
    assert list(range(1, 11)) == counted(listed, Selection())
    assert selected(listed, Selection()).notes == ("all jobs count",)


def test_selected__what_counts_can_be_said() -> None:
    """Jobs before and after the counted span only fill the cluster."""
    assert counted(history(), Selection(count_from="3d", count_until="5d")) == [4, 5, 6]
    assert list(range(1, 11)) == counted(history(), Selection(count_from="0%", count_until="0%"))


def test_selected__what_counts_is_no_part_of_what_a_file_holds() -> None:
    """The digest tells that other jobs count; a saved trace does not hold it."""
    trace = selected(history(), Selection()).recorded.trace
    assert "counted" not in trace.columns()
    assert trace_digest(trace) != trace_digest(history().trace)


def running() -> RecordedTrace:
    """Job 1 runs from day 0 to 5 on 2 GPUs, job 2 to day 6 on 8; job 3 waits from day 1 to 5; job 4 comes on day 4, and
    job 5 ended on day 1."""
    return RecordedTrace(Trace.of(
        [1, 2, 3, 4, 5], [2, 8, 1, 1, 1], np.array([0, 0, 1, 4, 0]) * DAY_S, np.array([5, 6, 1, 1, 1]) * DAY_S,
        np.array([10, 10, 2, 2, 2]) * DAY_S, start_s=np.array([0, 0, 5, 4, 0]) * DAY_S, partition=["a"] * 5,
    ), "sacct", EPOCH_S)  # fmt: skip


def test_selected__warm_start_has_who_ran_and_who_waited() -> None:
    """Who ran comes just before the begin, the most GPUs first, and ends when recorded; who waited comes with it."""
    found = selected(running(), Selection(since="3d", warm_start=True))
    trace = found.recorded.trace
    assert trace.job_id.tolist() == [2, 1, 3, 4]
    assert trace.submit_s.tolist() == [3 * DAY_S - 8, 3 * DAY_S - 4, 3 * DAY_S, 4 * DAY_S]
    assert (trace.submit_s + trace.duration_s)[:2].tolist() == [6 * DAY_S, 5 * DAY_S]
    assert trace.time_limit_s[:2].tolist() == [7 * DAY_S + 8, 7 * DAY_S + 4]
    assert trace.counted.tolist() == [False, False, False, True]
    assert found.notes[0] == "warm start: 2 jobs running and 1 waiting when the window begins"


def test_selected__cold_start_has_neither() -> None:
    """Jobs that ran or waited before the window are left out, and a note says so."""
    found = selected(running(), Selection(since="3d"))
    assert found.recorded.trace.job_id.tolist() == [4]
    assert found.notes[0] == "cold start: no job is there when the window begins"


def test_selected__a_history_begins_with_its_first_end() -> None:
    """Of the jobs that ended before it, accounting was not asked."""
    found = selected(running(), Selection(warm_start=True))
    assert found.begin_s == DAY_S


def test_selected__of_few_jobs_all_count() -> None:
    """Where the default would leave none, it leaves none out."""
    assert counted(history(), Selection(users=("u",))) == [1, 6]


def test_with_limits__exact_run_times() -> None:
    """A job without a limit gets its run time as limit, and a note says of how many."""
    trace = Trace.of([1, 2], [1, 1], [0, 0], [100.0, 50.0], [200.0, NAN])
    same, told = with_limits(trace, "recorded")
    assert same.time_limit_s.tolist() == [200.0, 50.0]
    assert told == "1 of 2 time limits unknown, taken as the exact run times"


@pytest.mark.parametrize(("choice", "limit_s", "said"), [
    ("factor:3", 150.0, "taken as 3 times the run time"), ("users", 900.0, "made up as users set them"),
])  # fmt: skip
def test_with_limits__unknown_ones_are_made_up(choice: str, limit_s: float, said: str) -> None:
    """A known limit stays."""
    trace = Trace.of([1, 2], [1, 1], [0, 0], [100.0, 50.0], [200.0, NAN])
    made, told = with_limits(trace, choice)
    assert made.time_limit_s[0] == 200.0
    assert limit_s <= made.time_limit_s[1] <= 900.0
    assert told == f"1 of 2 time limits unknown, {said}"


def test_with_limits__all_known() -> None:
    """Nothing is assumed, whatever was chosen."""
    trace = Trace.of([1], [1], [0], [100.0], [200.0])
    assert [with_limits(trace, choice)[1] for choice in ("recorded", "users", "factor:2")] == [
        "time limits as recorded"
    ] * 3


@pytest.mark.parametrize("choice", ["exact", "factor:x", "factor:0.5", "factor:inf"])
def test_with_limits__no_choice(choice: str) -> None:
    """The error names the option."""
    with pytest.raises(InputError, match="--limits"):
        with_limits(history().trace, choice)


def test_chosen_by_default__a_history_starts_warm_for_the_model_of_slurmctld() -> None:
    """And cold for the ideal cluster."""
    warm, cold = (chosen_by_default(running(), slurm=slurm).assumed[1:] for slurm in (True, False))
    assert warm[0] == "warm start: 2 jobs running and 0 waiting when the window begins"
    assert len(cold) == 1
    assert cold[0].startswith("1 of 5 jobs count")


def test_selected__jobs_of_a_warm_start_never_count() -> None:
    """Even where the whole window counts."""
    wanted = Selection(since="3d", warm_start=True, count_from="0%", count_until="0%")
    assert counted(running(), wanted) == [4]


def test_selected__no_window_where_all_jobs_came_before_the_first_end() -> None:
    """Then the replay begins with the first job, and all count."""
    trace = Trace.of([1, 2], [1, 1], [0, 5], [100, 100], start_s=[0.0, 5.0])
    found = selected(RecordedTrace(trace), Selection(warm_start=True))
    assert found.begin_s == 0.0
    assert found.recorded.trace.counted.all()
