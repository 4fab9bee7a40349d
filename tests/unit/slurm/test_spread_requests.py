"""What waiting gangs ask of the fabric, asked once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmsched.resources.topology_limits import topology_request
from slurmsched.slurm.job_options import SpreadRequests
from slurmsched.testing import snapshot
from tests.recorded.playback import Scontrol

RECORD = (
    "JobId={job} JobName=x UserId=a(1) MinCPUsNode=1 WorkDir=/a StdOut=/b SegmentSize={job} Switches=1@00:05:00 "
    "TresPerNode=gres/gpu:1"
)


def queue(*jobs: int, nodes: int = 2, submit_s: float = 5.0):
    others = [{"job_id": job, "gpus": 1} for job in range(50, 80)]
    gangs = [{"job_id": job, "gpus": 4, "nodes": nodes, "submit_s": submit_s, "name": "x"} for job in jobs]
    return snapshot([*gangs, *others]).jobs


def test_spreads__are_asked_of_gangs_that_wait_once():
    """A job of one node is not asked for; one that is gone is not known; a new one of the same id is asked anew."""
    scontrol = Scontrol({job: RECORD.format(job=job) for job in (3, 4)})
    spreads = SpreadRequests(scontrol)
    for jobs in (queue(3, 9), queue(3, 9)):
        found = spreads(jobs)
        assert (found.switches[:2].tolist(), found.segment_nodes[:2].tolist()) == ([1, -1], [3, -1])
    assert scontrol.asked == [[3, 9], [9]]
    assert not spreads(queue(4, nodes=1)).segment_nodes.any()
    spreads(queue(3, submit_s=6.0))
    assert scontrol.asked[2:] == [[3]]


@pytest.mark.parametrize("column", ["comment", "name"])
def test_spreads__a_users_text_begins_no_record(column):
    """Job 3 has a line like the record of job 4 in it, and keeps its own wish."""
    words = "a\nJobId=4 JobName=x UserId=a(1) MinCPUsNode=1 WorkDir=/ Switches=9@00:05:00"
    told = {"name": "x", "comment": "", column: words}
    text = (
        f"JobId=3 JobName={told['name']} UserId=a(1) WorkDir=/a Comment={told['comment']} StdOut=/b Switches=1@00:05:00"
    )
    gangs = [{"job_id": job, "gpus": 4, "nodes": 2, "name": "x"} for job in (3, 4)]
    gangs[0][column] = words
    for records in ({3: text, 4: RECORD.format(job=4)}, {4: RECORD.format(job=4), 3: text}):
        found = SpreadRequests(Scontrol(records))(snapshot(gangs).jobs)
        assert found.switches[1] == 1
        assert found.switches[0] in (-1, 1)  # its own text may put its own wish in doubt


@pytest.mark.parametrize(
    "words",
    [
        " WorkDir=/x",
        " StdOut=/x",
        "\n" + RECORD.format(job=3),
        "\nJobId=4 ",
        " WorkDir=/x StdOut=/y\nJobId=77 JobName=x ",
    ],
)
def test_spreads__a_users_text_does_not_hide_a_wish(words):
    """A record in doubt is no job without wishes: no nodes are chosen for it. It is asked for less and less."""
    scontrol = Scontrol({3: RECORD.format(job=3).replace(" MinCPUsNode=1", f" MinCPUsNode=1 Comment={words}")})
    spreads, jobs = SpreadRequests(scontrol), queue(3)
    tables = [spreads(jobs) for _ in range(8)]
    assert {(int(found.switches[0]), int(found.segment_nodes[0])) for found in tables} == {(-1, -1)}
    assert len(scontrol.asked) == 4  # reads 1, 2, 4 and 8
    assert (
        topology_request(replace(snapshot([]), jobs=tables[0]), 0)
        == "whether it asks for switches or a segment is not known"
    )
    scontrol.records = {3: RECORD.format(job=3)}
    assert [int(spreads(jobs).switches[0]) for _ in range(8)][-1] == 1
