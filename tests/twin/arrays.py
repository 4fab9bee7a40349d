"""A workload of arrays behind which small jobs wait: what of them counts in a pass, and what holds tasks back."""

from __future__ import annotations

from tests.twin.workload import Submission

TESTED, RESERVED, AT_ONCE = 6, 2, 2
CONF = {"SchedulerParameters": f"bf_interval=5,bf_max_job_test={TESTED},bf_max_job_array_resv={RESERVED}"}
BLOCKER_S = 30.0


def workload() -> list[Submission]:
    """24 GPUs are held for half a minute. An array of 12 tasks of two nodes waits for them; 10 jobs of one GPU and an
    array of such tasks, two at once, come after it, and one of which one task runs at once."""
    return [
        Submission(0.0, "alice", 24, BLOCKER_S, 3),
        Submission(1.0, "bob", 16, 1.5, 1, tasks=12),
        *(Submission(1.5 + 0.1 * n, "carol", 1, 4.0, 1) for n in range(10)),
        Submission(3.0, "dave", 1, 3.0, 1, tasks=6, throttle=AT_ONCE),
        Submission(3.5, "dave", 16, 1.5, 1, tasks=3, throttle=1),
    ]
