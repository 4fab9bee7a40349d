"""What waiting gangs ask of the fabric, asked once."""

from __future__ import annotations

import pytest

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
    assert scontrol.asked == ["show job 3\nshow job 9\n"]
    assert not spreads(queue(4, nodes=1)).segment_nodes.any()
    spreads(queue(3, submit_s=6.0))
    assert scontrol.asked[1:] == ["show job 3\n"]


@pytest.mark.parametrize("column", ["comment", "name"])
def test_spreads__a_users_text_begins_no_record(column):
    """Job 3 has a line like the record of job 4 in it, and keeps its own wish."""
    words = "a\nJobId=4 JobName=x WorkDir=/ Switches=9@00:05:00"
    told = {"name": "x", "comment": "", column: words}
    text = f"JobId=3 JobName={told['name']} Comment={told['comment']} WorkDir=/a Switches=1@00:05:00\n"
    gangs = [{"job_id": 3, "gpus": 4, "nodes": 2, column: words}, {"job_id": 4, "gpus": 4, "nodes": 2}]
    for records in (text + RECORD.format(job=4), RECORD.format(job=4) + text):
        found = Spreads(Whole(records))(snapshot(gangs).jobs)
        assert found.switches.tolist() == [1, 1]


class Whole:
    """A scontrol that prints all jobs."""

    def __init__(self, text: str) -> None:
        self.text, self.asked = text, 0

    def run(self, *_: str) -> str:
        self.asked += 1
        return self.text
