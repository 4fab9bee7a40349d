"""What waiting gangs ask of the fabric, asked once."""

from __future__ import annotations

from slurmsched.slurm.spreads import Spreads
from slurmsched.testing import snapshot
from tests.recorded.playback import Answer

RECORD = "JobId={job} JobName=x WorkDir=/a StdOut=/b SegmentSize={job} Switches=1@00:05:00 TresPerNode=gres/gpu:1\n"


class Scontrol:
    """Knows jobs 3 and 4."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self, program: str, *arguments: str, stdin: str) -> Answer:
        self.asked.append(stdin)
        known = (job for job in (3, 4) if f"job {job}\n" in stdin)
        return Answer("".join(RECORD.format(job=job) for job in known), status=1)


def queue(*jobs: int, nodes: int = 2, submit_s: float = 5.0):
    others = [{"job_id": job, "gpus": 1} for job in range(50, 80)]
    gangs = [{"job_id": job, "gpus": 4, "nodes": nodes, "submit_s": submit_s} for job in jobs]
    return snapshot([*gangs, *others]).jobs


def test_spreads__are_asked_of_gangs_that_wait_once():
    """A job of one node is not asked for; one that is gone has none; one of the same id that is new is asked anew."""
    scontrol = Scontrol()
    spreads = Spreads(scontrol)
    for jobs in (queue(3, 9), queue(3, 9)):
        found = spreads(jobs)
        assert (found.switches[:2].tolist(), found.segment_nodes[:2].tolist()) == ([1, 0], [3, 0])
    assert scontrol.asked == ["show job 3\nshow job 9\n", "show job 9\n"]
    assert not spreads(queue(4, nodes=1)).segment_nodes.any()
    spreads(queue(3, submit_s=6.0))
    assert scontrol.asked[2:] == ["show job 3\n"]
