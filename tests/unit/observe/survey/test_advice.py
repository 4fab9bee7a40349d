"""`advise`: each rule catches what it names, with its GPU hours, and leaves a sound request alone."""

from __future__ import annotations

import pytest

from slurmsched.model.gpu_use import JobGpuUse
from slurmsched.model.jobs import GpuOptions
from slurmsched.observe.survey.advice import RULES, Advice, AdviceGroup, AdviceInput, advice, advice_groups
from tests.unit.observe.survey.survey_site import node, site

HOUR = 3600.0
JOB = {"user": "ann", "time_limit_s": 2 * HOUR, "gpus": 2, "cpus": 16, "gpu_request": "gpu:2", "state": "PD"}
USUAL = {("ann", "gpu"): tuple(float(n) for n in range(600, 1800, 60))}
BARE = [{"name": "gpu", "max_time_s": 172_800.0, "default": True}, {"name": "cpu"}]
# rule, the job, how it asks, the case, GPU hours, option
CASES = [
    ("gpus-per-task", {"gpus": 4}, {"per_task": "gres/gpu:2", "tasks": 2}, {}, 8.0,
     "--gpus-per-node=4, no --gpus-per-task"),
    ("whole-memory", {}, {"whole_memory": True}, {}, 12.0, "--mem-per-gpu=56G"),
    ("cpus", {"cpus": 33}, {}, {}, 4.0, "--cpus-per-gpu=8"),
    ("exclusive", {"gpus": 8, "cpus": 64, "state": "R", "node_list": "n1"},
     {"exclusive": True, "per_job": "gres/gpu:2"}, {}, 12.0, "no --exclusive, or all GPUs of the node"),
    ("array-of-nodes", {"gpus": 1, "array_job_id": 1, "array_tasks": 3, "cpus": 64}, {"per_job": "gres/gpu:1"}, {},
     42.0,
     "--gpus=1 --cpus-per-gpu=8 --mem-per-gpu=56G"),
    ("island", {"gpus": 6, "cpus": 48, "comment": "slurmsched: topo=numa"}, {}, {}, 12.0,
     "--gpus-per-node=4, or topo=any"),
    ("gpu-type", {"gpus": 4, "nodes": 2, "cpus": 32}, {}, {"types": "gpu:h100:8"}, 8.0,
     "--gpus-per-node=TYPE:2, of h100, v100"),
    ("time-limit", {"time_limit_s": 48 * HOUR}, {}, {"usual_s": USUAL}, 94.0, "--time=1:00:00"),
    ("form", {}, {"per_job": "gres/gpu:2"}, {"shares": {"dgx-1v": (0.8, 0.7)}}, 4.0, "--nodes=1 --gpus-per-node=2"),
    ("no-checkpoint", {"time_limit_s": 24 * HOUR}, {}, {"preempted": True}, 48.0,
     '--requeue --comment="slurmsched: ckpt=USR1@120"'),
    ("idle-gpus", {"state": "R", "node_list": "n1", "run_s": HOUR}, {}, {"use": {1: JobGpuUse(1, 2, 1, 0.4)}}, 1.0,
     "--gpus=1, since 1 of 2 are idle"),
    ("no-gpu", {"gpus": 0, "cpus": 9, "gpu_request": ""}, {}, {}, 4.0, "-p cpu"),
    ("hints", {"comment": "slurmsched: topo=here"}, {}, {}, 0.0, "topo='here' is none of nvlink, numa, switch, any: "
     "choose one; for example topo=nvlink"),
]  # fmt: skip


def case(job: dict, asks: dict, more: dict) -> AdviceInput:
    more = dict(more)
    second = more.pop("types", "gpu:v100:8")
    nodes = [node("n1"), node("n2", gpu_types=second), node("n3", gpus=0, gpu_types="", partitions="cpu")]
    found = site(nodes, [JOB | job], partitions=BARE)
    columns = {"job_id": [1], "per_node": ["gres/gpu:2"]} | {name: [value] for name, value in asks.items()}
    if "per_job" in asks or "per_task" in asks or job.get("gpus", 2) != 2:
        columns |= {"per_node": [""]}
    return AdviceInput(found, GpuOptions.build(1, columns), **more)


@pytest.mark.parametrize(("rule", "job", "asks", "more", "gpu_h", "change"), CASES, ids=[row[0] for row in CASES])
def test_advice__each_rule(rule, job, asks, more, gpu_h, change):
    """That rule alone, with its hours and the option to write."""
    assert [(one.rule, one.gpu_h, one.change) for one in advice(case(job, asks, more))] == [(rule, gpu_h, change)]


def test_rules__each_is_tested():
    """A rule that catches nothing in a test is not tested."""
    assert {rule.name for rule in RULES} == {row[0] for row in CASES}


@pytest.mark.parametrize(("job", "asks", "more"), [
    ({}, {}, {}), ({"cpus": 23}, {}, {}), ({"gpus": 8, "cpus": 64}, {"whole_memory": True}, {}),
    ({"state": "CD"}, {"whole_memory": True}, {}),
    ({"time_limit_s": 48 * HOUR}, {}, {"usual_s": {("ann", "gpu"): (60.0,)}}),
    ({"time_limit_s": 24 * HOUR, "comment": "slurmsched: ckpt=USR1@60"}, {}, {"preempted": True}),
    ({"gpus": 4, "cpus": 32}, {"per_task": "gres/gpu:4", "tasks": 1}, {}),
    ({"gpus": 4, "cpus": 32, "comment": "slurmsched: topo=numa"}, {}, {}),
    ({}, {"per_job": "gres/gpu:2"}, {"shares": {"dgx-1v": (0.7, 0.8)}}),
])  # fmt: skip
def test_advice__sound_requests_are_left_alone(job, asks, more):
    """A fair share of CPUs, all of the node's GPUs, ended jobs, a checkpoint, one task, the better form."""
    assert advice(case(job, asks, more)) == ()


def test_advice__most_gpu_hours_first():
    """Whatever the order of rules and jobs."""
    found = site([node("n1")], [JOB | {"cpus": 33}, JOB | {"cpus": 64}])
    assert [one.job_id for one in advice(AdviceInput(found, GpuOptions.build(0, {})))] == [2, 1]


def test_advice_groups__sum_the_hours_of_one_user_and_rule() -> None:
    """The same advice to one user is one group; groups stand by their GPU hours."""
    found = [Advice("a", 3, "ann", 6.0, "x"), Advice("a", 9, "bob", 5.0, "x"), Advice("a", 2, "bob", 4.0, "x")]
    assert advice_groups(found) == (AdviceGroup("a", "bob", "x", 9.0, (2, 9)), AdviceGroup("a", "ann", "x", 6.0, (3,)))
