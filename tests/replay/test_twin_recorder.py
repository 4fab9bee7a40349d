"""What the recorder reads from slurmctld's log, without a Slurm."""

from __future__ import annotations

from tests.twin.recorder import cycles_of, passes_of, spreads, stamp, written_in

LOG = """\
[2026-01-02T10:00:00.050] priority/multifactor: _decay_thread: PRIO: Decay factor over 2 seconds goes from 0.9 -> 0.8
[2026-01-02T10:00:00.100] debug:  sched: Running job scheduler for full queue.
[2026-01-02T10:00:05.250] debug:  sched/backfill: _attempt_backfill: beginning
[2026-01-02T10:00:05.300] debug:  sched: Running job scheduler for default depth.
[2026-01-02T10:00:06.000] debug2: Processing RPC: REQUEST_JOB_INFO from UID=1005
[2026-01-02T10:00:06.100] debug2: Processing RPC: REQUEST_JOB_INFO from UID=0
[2026-01-02T10:00:06.200] debug2: Processing RPC: REQUEST_JOB_INFO from UID=1005
[2026-01-02T10:00:06.400] _slurm_rpc_update_job: complete JobId=7 uid=1005 usec=51
[2026-01-02T10:00:06.600] _slurm_rpc_update_job: complete JobId=8_3 uid=1005 usec=51
[2026-01-02T10:00:07.000] debug2: Testing job time limits and checkpoints
[2026-01-02T10:00:11.000] debug2: Processing RPC: REQUEST_JOB_INFO from UID=1005
[2026-01-02T10:00:20.000] debug:  sched: Running job scheduler for full queue.
"""
ZERO_S = stamp("2026-01-02T10:00:00")


def test_passes_of__kinds_and_times_within_the_run() -> None:
    """From a second before the first job to the end of the last."""
    found = passes_of(LOG, ZERO_S + 1, ZERO_S + 15)
    assert [(round(at - ZERO_S, 3), how) for at, how in found] == [
        (0.05, "usage"), (0.1, "full"), (5.25, "backfill"), (5.3, "main"), (7.0, "check"),
    ]  # fmt: skip


def test_cycles_of__first_read_first_and_last_write() -> None:
    """Of the daemon's own user; a cycle that wrote nothing is over when it ended."""
    found = cycles_of(LOG, 1005, [ZERO_S + 2, ZERO_S + 7, ZERO_S + 12])
    shown = [(*(round(at - ZERO_S, 3) for at in times), writes) for *times, writes in found]
    assert shown == [(6.0, 6.4, 6.6, 2), (11.0, 12.0, 12.0, 0)]


def test_cycles_of__a_write_logged_after_its_cycle_ended() -> None:
    """It counts to the cycle that sent it: slurmctld answers first and logs then."""
    found = cycles_of(LOG, 1005, [ZERO_S + 6.5, ZERO_S + 12])
    shown = [(*(round(at - ZERO_S, 3) for at in times), writes) for *times, writes in found]
    assert shown == [(6.0, 6.4, 6.6, 2), (11.0, 12.0, 12.0, 0)]


def test_written_in__each_write_of_a_cycle() -> None:
    """In their order, also those that are logged after the cycle ended."""
    found = written_in(LOG, 1005, [ZERO_S + 6.5, ZERO_S + 12])
    assert [[round(at - ZERO_S, 3) for at in written] for *_, written in found] == [[6.4, 6.6], []]


def test_spreads__last_node_by_name_after_the_first() -> None:
    """Of jobs on several nodes, in their last run."""
    line = "[2026-01-02T10:00:{at}] debug2: _slurm_rpc_epilog_complete: JobId={job} Node={node} usec=1"
    rows = (("01.0", 7, "n1"), ("05.0", 7, "n2"), ("05.4", 7, "n1"), ("06.0", 8, "n3"))
    log = "\n".join(line.format(at=at, job=job, node=node) for at, job, node in rows)
    found = spreads(log, {7: ZERO_S + 4})
    assert {job: round(spread_s, 3) for job, spread_s in found.items()} == {7: -0.4}
