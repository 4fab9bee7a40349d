"""The rules that all readers share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.errors import UnreadableError
from slurmsched.model import JobState, Labels
from slurmsched.slurm.job_tables import (
    build_allocations,
    expand_hosts,
    finish_jobs,
    priority_columns,
    put_held,
    tres_memory_mib,
    with_shared_parts,
)
from slurmsched.slurm.squeue import Priorities
from slurmsched.testing import snapshot

PENDING, RUNNING = int(JobState.PENDING), int(JobState.RUNNING)


def columns(**given_columns):
    """Columns of two jobs, a waiting and a running one."""
    plain = {
        "job_id": [1, 2], "state": [PENDING, RUNNING], "nice": [0, 0], "start_s": [50.0, 60.0], "end_s": [90.0, 99.0],
        "run_s": [0.0, 7.0],
    }  # fmt: skip
    return plain | given_columns


def test_finish_jobs__keeps_estimates_of_waiting_jobs_apart():
    """Slurm shows when it hopes to start a job; that is no start, but a column of its own."""
    jobs = finish_jobs(columns(), [])
    assert [math.isnan(value) for value in jobs.start_s] == [True, False]
    assert [math.isnan(value) for value in jobs.end_s] == [True, False]
    assert (jobs.expected_start_s[0], math.isnan(jobs.expected_start_s[1])) == (50.0, True)


@settings(deadline=None)
@given(st.permutations(range(1, 8)))
def test_finish_jobs__orders_rows_by_id(ids):
    """Rows come in ascending id, texts and numbers alike, whatever Slurm's order."""
    rows = len(ids)
    jobs = finish_jobs(
        {
            "job_id": list(ids), "state": [PENDING] * rows, "nice": [10 * job for job in ids], "start_s": [0.0] * rows,
            "end_s": [0.0] * rows, "run_s": [0.0] * rows, "name": Labels.of([f"job {job}" for job in ids]),
        },
        [],
    )  # fmt: skip
    assert jobs.job_id.tolist() == sorted(ids)
    assert [(int(nice) // 10, name) for nice, name in zip(jobs.nice, jobs.name, strict=True)] == [
        (job, f"job {job}") for job in sorted(ids)
    ]


def test_finish_jobs__keeps_a_job_once():
    """An id that comes twice is one row."""
    assert finish_jobs(columns(job_id=[2, 2]), []).job_id.tolist() == [2]


@pytest.mark.parametrize("nice", [4_294_097_297, -4_294_097_297, 2_147_483_646])
def test_finish_jobs__refuses_an_unsigned_nice(nice):
    """A nice outside Slurm's range is never passed on: 0, fixed_priority, and a warning with job and number."""
    warnings: list[str] = []
    jobs = finish_jobs(columns(nice=[nice, 5]), warnings)
    assert (jobs.nice.tolist(), jobs.fixed_priority.tolist()) == ([0, 5], [True, False])
    assert warnings == [f"job 1: nice {nice} is outside Slurm's range; the job is not managed"]


@pytest.mark.parametrize("nice", [-2_147_483_645, 2_147_483_645])
def test_finish_jobs__takes_slurms_whole_range(nice):
    """The ends of the range are good values."""
    warnings: list[str] = []
    assert finish_jobs(columns(nice=[nice, 0]), warnings).nice.tolist() == [nice, 0]
    assert warnings == []


def test_priority_columns__joins_by_id():
    """Jobs that sprio leaves out have no base priority, and their site factor reads 0."""
    table = Priorities(np.array([2, 5]), np.array([9, 0]), np.array([100.0, 7.0]), np.array([False, True]))
    found = priority_columns(np.array([1, 2, 5]), table)
    assert found["site_factor"].tolist() == [0, 9, 0]
    assert found["base_priority"].tolist() == pytest.approx([math.nan, 100.0, 7.0], nan_ok=True)
    assert found["fixed_priority"].tolist() == [False, False, True]


def test_build_allocations__has_a_row_a_job_node_and_type():
    """Ranges of equal nodes, two types on a node, jobs and nodes in order; other kinds are left out."""
    details = {
        7: (("n[2-3]", "gpu:a100:2(IDX:0,2)"),),
        3: (("n1", "gpu:h200:1(IDX:2),gpu:h100:2(IDX:0-1),shard:3"), ("n10", "gpu:h100:0(IDX:)")),
    }
    held = build_allocations(details, [])
    rows = zip(held.job_id, held.node, held.gpu_type, held.gpus, held.gpu_mask, strict=True)
    assert [tuple(row) for row in rows] == [
        (3, "n1", "h100", 2, 0b11), (3, "n1", "h200", 1, 0b100),
        (7, "n2", "a100", 2, 0b101), (7, "n3", "a100", 2, 0b101),
    ]  # fmt: skip


def test_build_allocations__warns_of_text_it_cannot_read():
    """One job's bad text costs that job's rows only."""
    warnings: list[str] = []
    held = build_allocations({1: (("n1", "gpu:::"),), 2: (("n1", "gpu:1(IDX:0)"),)}, warnings)
    assert held.job_id.tolist() == [2]
    assert len(warnings) == 1 and "job 1" in warnings[0]


def test_put_held__counts_what_slurm_gave():
    """Two nodes' GPUs and MIG devices of a running job replace what it asked; others stay."""
    table = {name: np.array([5, 5]) for name in ("gpus", "mig_devices", "shards")} | {"job_id": np.array([1, 2])}
    put_held(table, {2: (("n[1-2]", "gpu:a100:2(IDX:0-1),gpu:1g.5gb:1(IDX:4)"),)}, np.array([False, True]))
    assert [table[name].tolist() for name in ("gpus", "mig_devices", "shards")] == [[5, 4], [5, 2], [5, 0]]


def test_put_held__says_on_which_gpu_a_part_is():
    """Of shards and of MPS, with the part of that GPU; a job on two GPUs has none. What Slurm does not show of a job is
    what its node shows: 3 of 4 shards, and the GPU if it is the only shared one."""
    told = columns(gpus=np.zeros(2, np.int32), mig_devices=np.zeros(2, np.int32), shards=np.ones(2, np.int32))
    for text, gpu, milli in (("shard:2(0/4,2/4)", "n1 1", 500), ("mps:30(30/100,0/100)", "n1 0", 300),
                             ("shard:5(4/4,1/4)", "", 0), ("shard:3", "", 0)):  # fmt: skip
        put_held(told, {2: (("n1", text),)}, np.array([False, True]))
        assert (list(told["shared_gpu"]), told["shared_milli"].tolist()) == (["", gpu], [0, milli])
    jobs = finish_jobs({**told, "node_list": ["", "n1"]}, [])
    for shown, gpu, milli in (("3/4,0/4", "n1 0", 750), ("3/4,1/4", "", 750), ("3/4,0/8", "", 0), ("", "", 0)):
        found = with_shared_parts(jobs, snapshot((), [{"name": "n1", "shards": shown}]).nodes)
        assert (found.shared_gpu[1], found.shared_milli[1]) == (gpu, milli)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1", ("n1",)),
        ("", ()),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("c1-[9-10],gpu-2", ("c1-9", "c1-10", "gpu-2")),
        ("a1,b2", ("a1", "b2")),
    ],
)
def test_expand_hosts__lists_nodes(text, expected):
    """Hostlists with and without brackets."""
    assert expand_hosts(text) == expected


def test_expand_hosts__refuses_other_text():
    """An open bracket is an error."""
    with pytest.raises(UnreadableError):
        expand_hosts("n[1-")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cpu=1,mem=62.50G,node=1", 64_000.0), ("mem=512M", 512.0), ("cpu=1,mymem=3M", 0.0), ("", 0.0)],
)
def test_tres_memory_mib__finds_mem(text, expected):
    """The mem key of a TRES text, in any unit."""
    assert tres_memory_mib(text) == expected


def test_held__of_more_gpus_than_a_node_has_is_left_out_and_named():
    """A number that no column holds ends no cycle; the job beside it is read."""
    told = columns(gpus=np.array([1, 2], np.int32), mig_devices=np.zeros(2, np.int32), shards=np.zeros(2, np.int32))
    warnings: list[str] = []
    details = {1: (("n1", "gpu:4294967295,gpu:1g.5gb:4294967295"),), 2: (("n2", "gpu:a100:4,shard:4294967295"),)}
    put_held(told, details, np.ones(2, np.bool_))
    assert told["gpus"].tolist() == [1, 2]
    held = build_allocations(details, warnings)
    assert (held.job_id.tolist(), held.gpus.tolist()) == ([2], [4])
    assert warnings == ["job 1: held GPUs cannot be read (not a number of GPUs: '4294967295')"]


@pytest.mark.parametrize(("indices", "mask"), [("61-62", 0b11 << 61), ("62-63", 0), ("0,4095", 0)])
def test_build_allocations__names_gpus_beyond_a_mask(indices, mask):
    """They are counted, and which they are is not known."""
    warnings: list[str] = []
    held = build_allocations({7: (("n1", f"gpu:2(IDX:{indices})"),)}, warnings)
    assert (held.gpus.tolist(), held.gpu_mask.tolist()) == ([2], [mask])
    beyond = "job 7: a mask has no GPU of index 63 or higher; all are counted without indices"
    assert warnings == ([] if mask else [beyond])
