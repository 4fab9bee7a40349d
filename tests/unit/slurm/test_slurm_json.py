"""Slurm's JSON of all ages, on published answers."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import orjson
import pytest

from slurmsched.errors import UnreadableError
from slurmsched.model import JobState, NodeState
from slurmsched.slurm.site import SdiagLoad
from slurmsched.slurm.slurm_json import (
    json_number,
    read_jobs,
    read_load,
    read_nodes,
    read_runs,
    slurm_version,
)
from tests.recorded.playback import HERE

NOW_S = 1_763_321_773.0


def body(name: str) -> dict:
    return orjson.loads((HERE / "public" / name).read_bytes())


def seen(name: str) -> dict[int, tuple[int, str, JobState]]:
    """GPUs, request and state of each job."""
    jobs, _, warnings = read_jobs(body(name), NOW_S)
    assert warnings == ()
    rows = zip(jobs.job_id.tolist(), jobs.gpus.tolist(), jobs.gpu_request, jobs.state.tolist(), strict=True)
    return {job: (gpus, request, JobState(state)) for job, gpus, request, state in rows}


P, R = JobState.PENDING, JobState.RUNNING


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("squeue-json-21.08-v0.0.37.json", "21.08.5", {26_515_966: (0, "", R), 58_948_420: (0, "", P)}),
        ("jobs-json-24.05-v0.0.41.json", "24.05.3",
         {2: (4, "gpu:4", P), 9: (4, "gpu:4", R), 11: (8, "gpu:8", R)}),
        ("jobs-json-24.11-v0.0.42.json", "24.11.5",
         {6371: (12, "gpu:12", R), 6374: (6, "gpu:6", R), 6376: (6, "gpu:6", P)}),
        ("jobs-json-25.05-v0.0.43.json", "25.05.4",
         {4745: (4, "gpu:4", P), 4746: (8, "gpu:8", R), 4751: (4, "gpu:4", R)}),
        ("jobs-json-25.11-v0.0.44.json", "25.11.0",
         {4965: (4, "gpu:4", P), 5557: (4, "gpu:4", R), 5679: (8, "gpu:8", R)}),
    ],
)  # fmt: skip
def test_read_jobs__of_each_version(name, version, expected):
    """GPUs and states, though these clusters' TRES texts name no GPU at all."""
    assert (slurm_version(body(name)), seen(name)) == (version, expected)


def test_read_jobs__count_the_nodes_that_a_requeued_job_asks_for():
    """After a restart of slurmctld node_count stays that of the last run; the TRES tell what the job asks for."""
    given = body("jobs-json-25.11-v0.0.44.json")
    given["jobs"][0] |= {"restart_cnt": 1, "node_count": 1, "tres_alloc_str": "", "tres_req_str": "cpu=3,node=3"}
    jobs, _, _ = read_jobs(given, NOW_S)
    assert jobs.nodes[jobs.row_of(given["jobs"][0]["job_id"])] == 3


def test_read_jobs__counts_the_six_request_forms():
    """--gres, --gpus-per-node, -per-socket, -per-task, --gpus, typed --gpus-per-node: running jobs of 25.11."""
    counts = {job: gpus for job, (gpus, _, _) in seen("jobs-json-25.11-gpu-request-forms.json").items()}
    assert [counts[job] for job in (5602, 5680, 5682, 5512, 5185, 4716)] == [4, 2, 2, 4, 1, 1]


def test_read_jobs__finds_two_types_on_a_node():
    """gpu:h100:2(IDX:0-1),gpu:h200:4(IDX:2-5) on each of two nodes (24.11)."""
    _, held, _ = read_jobs(body("jobs-json-24.11-v0.0.42.json"), NOW_S)
    rows = zip(held.job_id, held.node, held.gpu_type, held.gpus, held.gpu_mask, strict=True)
    both = [("h100", 2, 0b11), ("h200", 4, 0b111100)]
    expected = [(6371, node, *each) for node in ("ia1", "ia2") for each in both] + [
        (6374, "ia1", *each) for each in both
    ]
    assert [tuple(row) for row in rows] == expected


def test_read_jobs__reads_the_oldest_form():
    """21.08: plain numbers and nulls, a state as a word, suspensions, arrays, memory of the TRES text."""
    jobs, _, _ = read_jobs(body("squeue-json-21.08-v0.0.37.json"), NOW_S)
    assert (jobs.nice.tolist(), jobs.array_tasks.tolist(), jobs.array_job_id.tolist()) == (
        [0, 0],
        [1, 10],
        [0, 58_948_420],
    )
    assert (jobs.memory_mib.tolist(), jobs.time_limit_s[0]) == ([64_000.0, 131_072.0], 30_240 * 60)
    assert jobs.run_s.tolist() == [NOW_S - 1_686_200_533 + 1_381_100, 0.0]
    assert jobs.dependency[1] == "afterok:58948419(unfulfilled)"
    assert math.isnan(jobs.start_s[1]) and math.isnan(jobs.eligible_s[1])


def job(**values):
    return {"job_id": 1, "job_state": ["PENDING"], "priority": {"set": True, "infinite": False, "number": 9}} | values


def only(**values):
    jobs, _, warnings = read_jobs({"jobs": [job(**values)]}, NOW_S)
    return jobs, warnings


def test_read_jobs__keeps_several_states():
    """A job that is requeued is pending and still completing."""
    jobs, _ = only(job_state=["PENDING", "COMPLETING"])
    assert (int(jobs.state[0]), bool(jobs.pending[0])) == (int(P | JobState.COMPLETING), False)


def test_read_jobs__leaves_unknown_states_alone():
    """A future state: no flags, a warning with the job."""
    jobs, warnings = only(job_state=["PONDERING"])
    assert int(jobs.state[0]) == 0 and len(warnings) == 1 and "job 1" in warnings[0]


def test_read_jobs__refuses_an_unsigned_nice():
    """A nice near 2^32 is not passed on."""
    jobs, warnings = only(nice=4_294_097_297)
    assert (int(jobs.nice[0]), bool(jobs.fixed_priority[0]), len(warnings)) == (0, True, 1)


def test_read_jobs__pins_what_it_cannot_read():
    """A request outside the grammar."""
    jobs, warnings = only(tres_per_job="gpu::")
    assert (bool(jobs.fixed_priority[0]), len(warnings)) == (True, 1)


def test_read_jobs__of_an_empty_queue():
    """No jobs is an answer."""
    assert len(read_jobs({"jobs": []}, NOW_S)[0]) == 0


def test_read_jobs__refuses_another_answer():
    """A body that has no jobs is an error that shows what it has."""
    with pytest.raises(UnreadableError, match="nodes"):
        read_jobs({"nodes": []}, NOW_S)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5.0), (5.5, 5.5), (None, -1.0), ({"set": False, "infinite": False, "number": 0}, -1.0),
        ({"set": True, "infinite": False, "number": 7}, 7.0), ({"set": False, "infinite": True, "number": 0}, math.inf),
    ],
)  # fmt: skip
def test_number__reads_every_form(value, expected):
    """Plain, null, or an object that says whether it is set or endless."""
    assert json_number(value, -1.0) == expected


def test_number__refuses_other_values():
    """A text is no number."""
    with pytest.raises(UnreadableError):
        json_number("7")


def test_read_nodes__of_24_11():
    """Idle, mixed, allocated, drained and planned nodes; two GPU types on one."""
    nodes, warnings = read_nodes(body("nodes-json-24.11-v0.0.42.json"))
    states = dict(zip(nodes.name, map(NodeState, nodes.state.tolist()), strict=True))
    assert states == {
        "cn1": NodeState.ALLOCATED, "cn2": NodeState.MIXED, "cn4": NodeState.IDLE | NodeState.DRAIN,
        "ia1": NodeState.IDLE | NodeState.PLANNED, "ia2": NodeState.IDLE,
    }  # fmt: skip
    assert (nodes.gpu_types[3], nodes.gpu_totals()["all"], nodes.reason[2], warnings) == (
        "gpu:h100:2,gpu:h200:4", 12, "ECC memory error", (),
    )  # fmt: skip


def test_read_nodes__of_25_11():
    """A node that shows counts only ("gpu:4", "gpu:1") has no mask."""
    nodes, _ = read_nodes(body("nodes-json-25.11-v0.0.44.json"))
    rows = zip(nodes.name, nodes.gpus.tolist(), nodes.gpus_used.tolist(), nodes.gpu_mask_used.tolist(), strict=True)
    assert sorted(rows) == [
        ("cn2", 0, 0, 0), ("gpu1", 4, 0, 0), ("gpu1", 4, 4, 0b1111), ("gpu2", 4, 0, 0), ("gpu3", 4, 1, 0),
    ]  # fmt: skip


def test_read_nodes__of_21_08():
    """A state as a word, features as text, no GPUs."""
    nodes, _ = read_nodes(body("sinfo-json-21.08-v0.0.37.json"))
    assert (list(nodes.name), nodes.cpus_used.tolist(), nodes.gpus.tolist()) == (
        ["cs2.example.org", "cs3.example.org"], [4, 0], [0, 0],
    )  # fmt: skip


def test_read_load__of_both_forms():
    """Plain in 23.02, objects in 24.05, whatever else changed."""
    assert read_load(body("sdiag-json-23.02-v0.0.39.json")) == SdiagLoad(threads=3, dbd_queue=5, agent_queue=0)
    assert read_load(body("sdiag-json-24.05.json")) == SdiagLoad(threads=2, dbd_queue=0, agent_queue=0)


def test_read_load__refuses_another_answer():
    """A body without statistics."""
    with pytest.raises(UnreadableError):
        read_load({"jobs": []})


@pytest.mark.parametrize(
    ("name", "job_id", "gpus", "state", "seconds"),
    [
        ("sacct-json-21.8.8.json", 55_978_384, 1, "REQUEUED", 94_363.0),
        ("sacct-json-22.5.9.json", 20_247_445, 16, "FAILED", 124_403.0),
        ("sacct-json-23.2.6.json", 4, 2, "RUNNING", math.nan),
        ("sacct-json-23.11.5.json", 4, 2, "RUNNING", math.nan),
        ("sacct-json-25.11-v0.0.44-gpu.json", 5141, 0, "COMPLETED", 31.0),
    ],
)
def test_read_runs__of_each_version(name, job_id, gpus, state, seconds):
    """State as a word or a list, a running job without end, GPUs where accounting tracks them."""
    (run,), _ = read_runs(body(name))
    assert (run.job_id, run.gpus, run.state, run.restart) == (job_id, gpus, state, 0)
    assert run.end_s - run.start_s == pytest.approx(seconds, nan_ok=True)
    assert datetime.fromtimestamp(run.submit_s, UTC).year >= 2021


def test_read_runs__counts_typed_gpus_once():
    """gres/gpu and gres/gpu:a100 in one list are the same devices."""
    tres = [{"type": "gres", "name": "gpu", "count": 2}, {"type": "gres", "name": "gpu:a100", "count": 2}]
    at = {"submission": 1, "start": 2, "end": 3, "suspended": 0}
    runs, _ = read_runs(
        {"jobs": [{"job_id": 1, "time": at, "state": {"current": "COMPLETED"}, "tres": {"allocated": tres}}] * 2}
    )
    assert [(run.gpus, run.restart) for run in runs] == [(2, 0), (2, 1)]


def test_read_nodes__leaves_out_specialised_resources_and_reads_power_states():
    """effective_cpus where it is told, else CPUs without specialised cores; flags as a list; types that are null."""
    plain = {"cpus": 64, "real_memory": 512000, "threads": 2, "gres": "gpu:8", "gres_used": "gpu:(null):3(IDX:0-2)"}
    body = {"nodes": [
        {"name": "a", "state": ["IDLE", "CLOUD", "POWERED_DOWN"], "effective_cpus": 60, "specialized_memory": 16000}
        | plain,
        {"name": "b", "state": ["MIXED", "NEWFLAG"], "specialized_cores": 2} | plain,
        {"name": "c", "state": []} | plain,
    ]}  # fmt: skip
    nodes, warnings = read_nodes(body)
    assert (nodes.cpus.tolist(), nodes.memory_mib.tolist()) == ([60, 60, 64], [496000.0, 512000.0, 512000.0])
    assert (nodes.after_boot.tolist(), nodes.closed.tolist()) == ([True, False, False], [False, False, True])
    assert (nodes.gpus_used.tolist(), len(warnings)) == ([3, 3, 3], 1)


def test_rows__that_are_left_out_are_named():
    """A run of sacct that cannot be read: a warning, and the others are there."""
    runs, told = read_runs({"jobs": [{"job_id": 1}, *body("sacct-json-23.2.6.json")["jobs"]]})
    assert (len(runs), [warning.partition(" (")[0] for warning in told]) == (
        1,
        ["a run cannot be read and is left out"],
    )
