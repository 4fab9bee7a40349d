"""Reservations, signals and requeues on a simulated slurmctld, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.model import (
    AllowStart,
    DeleteReservation,
    JobState,
    JoinReservation,
    MoveReservation,
    Plan,
    Requeue,
    Reserve,
    SetNice,
    Signal,
    Step,
)
from slurmsched.model.columns import Labels
from slurmsched.model.trace import Trace
from slurmsched.sim.event_loop import replay
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

PLAIN = SlurmctldSettings(backfill="none", batch_sched_delay_s=0.0, kill_wait_s=5.0, requeue_delay_s=100.0)
# Job 1 holds a node for long; 2 to 4 come later and want one node each.
FOUR = {"job_id": [1, 2, 3, 4], "gpus": [4] * 4, "submit_s": [0, 10, 10, 10], "duration_s": [1000, 50, 50, 50],
        "time_limit_s": [2000, 60, 60, 60]}  # fmt: skip


def cluster(nodes: int = 2, model: SlurmctldSettings = PLAIN, comment: str = "", **trace: Any) -> SimulatedSlurmctld:
    """Nodes node1, node2, ... of 4 GPUs; the time is 20 s. trace: columns in place of those of FOUR."""
    columns = {"comment": Labels.constant(comment, 4), "user": Labels.constant("alice", 4)}
    made = SimulatedSlurmctld(
        Trace.of(**FOUR | trace), [4] * nodes, model, requests=SubmittedRequests.build(4, columns)
    )
    made.advance(20.0)
    return made


def reserve(nodes: str = "node2", start_s: float = 20.0, end_s: float = 500.0, **more: Any) -> Reserve:
    return Reserve(
        3, 10.0, "test", **{"name": "r", "nodes": nodes, "user": "alice", **more}, start_s=start_s, end_s=end_s
    )


def told(made: SimulatedSlurmctld, *steps: Step) -> list[str]:
    """What each step was answered, "" where it was written."""
    return [outcome.message for outcome in made.apply(Plan(steps)).outcomes]


def starts(made: SimulatedSlurmctld) -> dict[int, float]:
    return dict(zip(made.trace.job_id.tolist(), made.job.first_start_s.tolist(), strict=True))


def test_reserve__keeps_others_out_and_lets_in_who_names_it() -> None:
    """Both nodes are held, and kept for job 4: it goes before 3, which was before it in the queue, and what runs on
    them goes on."""
    made = cluster(2)
    assert told(made, reserve("node[1-2]", end_s=5_000.0), JoinReservation(4, 10.0, "test", name="r")) == ["", ""]
    replay(made)
    assert starts(made) == {1: 0.0, 2: 10.0, 3: 5_000.0, 4: 60.0}


def test_reserve__of_the_future_lets_short_jobs_end_before_it() -> None:
    """node2 is free at 60 and kept from 150 on: job 3 with its limit of 60 s ends before that; job 4, after it, would
    not, and waits for the end."""
    made = cluster(2)
    told(made, reserve(start_s=150.0, end_s=400.0))
    replay(made)
    assert (starts(made)[3], starts(made)[4]) == (60.0, 400.0)


def test_booked_job__waits_for_begin_and_must_end_in_time() -> None:
    """It does not start before the reservation, nor when its limit reaches beyond its end."""
    made = cluster(2)
    told(made, reserve(start_s=100.0, end_s=200.0), JoinReservation(3, 10.0, "test", name="r"))
    replay(made)
    assert starts(made)[3] == 100.0
    late = cluster(2)
    told(late, reserve(start_s=100.0, end_s=150.0), JoinReservation(3, 10.0, "test", name="r"))
    replay(late)
    assert starts(late)[3] == 150.0  # the end of the reservation makes it an ordinary job


def test_reservation__end_kills_who_still_runs_in_it() -> None:
    """Job 3 runs 85 s, and is not found over its limit of 60 s yet when the reservation ends; without the name it goes
    on."""
    for steps, end_s in (((), 135.0), ((JoinReservation(3, 10.0, "test"),), 155.0)):
        made = cluster(2, duration_s=[1000, 50, 85, 50])
        told(made, reserve(start_s=70.0, end_s=135.0), JoinReservation(3, 10.0, "test", name="r"))
        made.advance(100.0)
        assert told(made, *steps) == [""] * len(steps)
        replay(made)
        assert (made.job.first_start_s[2], made.job.end_s[2]) == (70.0, end_s)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (reserve("node9"), "Invalid node name specified"),
        (reserve("node["), "Invalid node name specified"),
        (reserve(start_s=30.0, end_s=30.0), "Invalid time specified"),
        (reserve(start_s=1.0, end_s=20.0), "Invalid time specified"),
        (JoinReservation(3, 10.0, "test", name="r"), "Requested reservation is invalid"),
        (JoinReservation(1, 0.0, "test", name="r"), "Job is no longer pending execution"),
        (JoinReservation(9, 10.0, "test"), "Invalid job id specified"),
        (JoinReservation(3, 11.0, "test"), "Invalid job id specified"),
        (DeleteReservation(3, 10.0, "test", name="r"), "Requested reservation is invalid"),
        (Signal(3, 10.0, "test", signal="USR2"), "Job is not running"),
        (Requeue(3, 10.0, "test"), "Job is not running"),
        (AllowStart(1, 0.0, "test", start_s=5.0), "Job is no longer pending execution"),
    ],
)
def test_step__is_refused_with_slurms_words(step: Step, message: str) -> None:
    """What slurmctld does not take changes nothing."""
    made = cluster()
    assert told(made, step) == [message]
    assert (len(made.read().reservations), made.bookings.named) == (0, {})


def test_reserve__no_name_twice_and_no_node_twice_at_a_time() -> None:
    """Another time or other nodes are taken."""
    made = cluster()
    others = [reserve(name="o"), reserve("node1", name="o"), reserve(name="p", start_s=500.0, end_s=600.0)]
    assert told(made, reserve(), reserve("node1"), *others) == [
        "", "Reservation name is invalid or already used", "Requested nodes are busy", "", "",
    ]  # fmt: skip
    shown = made.read().reservations
    assert (list(shown.name), shown.end_s.tolist()) == (["o", "p", "r"], [500.0, 600.0, 500.0])


def test_move__to_other_nodes_and_times_until_it_has_begun() -> None:
    """Then only its end moves; nothing moves onto what another one keeps."""
    made = cluster()
    key = (3, 10.0, "test")
    begin = [reserve(start_s=100.0, end_s=200.0), reserve("node1", name="o", start_s=100.0, end_s=200.0)]
    steps = [MoveReservation(*key, name="r", nodes="node1", start_s=start_s, end_s=300.0) for start_s in (150.0, 200.0)]
    steps.append(MoveReservation(*key, name="x", end_s=300.0))
    assert told(made, *begin, *steps) == ["", "", "Requested nodes are busy", "", "Requested reservation is invalid"]
    made.advance(201.0)
    later = [
        MoveReservation(*key, name="r", end_s=400.0),
        MoveReservation(*key, name="r", nodes="node2", start_s=300.0, end_s=400.0),
    ]
    assert told(made, *later) == ["", "Reservation has already begun"]
    shown = made.read().reservations
    assert (list(shown.name), list(shown.node_list), shown.end_s.tolist()) == (["r"], ["node1"], [400.0])


def test_join__only_the_user_of_the_reservation() -> None:
    """Also when an operator sets the name."""
    made = cluster()
    assert told(made, reserve(user="bob"), JoinReservation(3, 10.0, "test", name="r")) == [
        "", "Access denied to requested reservation",
    ]  # fmt: skip


def test_unreserve__not_while_a_job_names_it() -> None:
    """The name goes first."""
    made = cluster()
    told(made, reserve(), JoinReservation(3, 10.0, "test", name="r"))
    gone = DeleteReservation(3, 10.0, "test", name="r")
    assert told(made, gone, JoinReservation(3, 10.0, "test"), gone) == ["Requested reservation is in use", "", ""]
    replay(made)
    assert starts(made)[3] == 60.0


def test_steps__of_an_operation_stop_where_one_was_refused() -> None:
    """A victim is not asked to go for nodes that could not be reserved; other actions are sent all the same."""
    made = cluster()
    steps = (
        reserve("node9", operation="3-1"),
        JoinReservation(3, 10.0, "t", operation="3-1", name="r"),
        Requeue(1, 0.0, "t", "3-1", 0),
    )
    outcomes = made.apply(Plan((*steps, SetNice(4, 10.0, "t", old=0, new=7)))).outcomes
    assert [outcome.status for outcome in outcomes] == ["refused", "refused", "refused", "written"]
    assert outcomes[2].message == "an earlier step of its operation was refused: Invalid node name specified"
    assert made.job.restarts.tolist() == [0, 0, 0, 0]


def test_delay__lets_a_requeued_job_start_before_its_time() -> None:
    """Requeued at 20, back at 25, it could start at 125; told at 30, it starts then."""
    made = cluster(1)
    told(made, Requeue(1, 0.0, "test"))
    made.advance(30.0)
    row = int(np.flatnonzero(made.read().jobs.job_id == 1)[0])
    jobs = made.read().jobs
    assert (jobs.reason[row], jobs.submit_s[row]) == ("BeginTime", 25.0)
    assert told(made, AllowStart(1, 25.0, "test", start_s=30.0)) == [""]
    assert made.read().jobs.reason[row] == ""


@pytest.mark.parametrize(
    ("after_s", "lost_s"), [(5.0, 25.0), (10.0, 10.0), (40.0, 40.0)], ids=["too soon", "just safe", "later"]
)
def test_signal__saves_what_was_done_by_then(after_s: float, lost_s: float) -> None:
    """Signalled at 20, safe 10 s later: a requeue before that loses the whole run, one after it what came since."""
    model = SlurmctldSettings(checkpoint_s=float("inf"), restart_cost_s=0.0)
    made = cluster(1, model, "slurmsched: ckpt=USR2@60")
    assert told(made, Signal(1, 0.0, "test", signal="USR2")) == [""]
    made.advance(20.0 + after_s)
    told(made, Requeue(1, 0.0, "test"))
    assert (made.job.wasted_s[0], made.job.kept_s[0]) == (lost_s, 20.0 + after_s - lost_s)


def test_signal__that_nobody_waits_for_ends_the_job() -> None:
    """A batch script without a trap dies of it."""
    made = cluster(1)
    told(made, Signal(1, 0.0, "test", signal="USR2"))
    assert (made.job.ended_as[0], made.job.end_s[0]) == (JobState.FAILED, 20.0)


def test_nodes__show_cpus_and_memory_in_use() -> None:
    """Of jobs that tell none, a CPU for each GPU."""
    shown = cluster(3).read().nodes
    assert (shown.cpus_used.tolist(), shown.memory_used_mib.tolist()) == ([4, 4, 4], [0.0, 0.0, 0.0])
