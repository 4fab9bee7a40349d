"""Reasons, limits, who is ahead, estimates and one node's obstacle."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.config import PreemptionConfig, ScopeConfig
from slurmsched.errors import InputError
from slurmsched.model import Operation, OperationStage, Override, Purpose, Reservations, Rights, Victim
from slurmsched.model.job_details import JobDetails, LicensePool
from slurmsched.model.reasons import Blocker, limit_named, limit_values, parents, read_reason
from slurmsched.observe.explain.blocker_text import _PLAIN, _TELLS
from slurmsched.observe.explain.explanation import explain, preemption_outlook
from slurmsched.observe.explain.node_obstacles import why_not
from slurmsched.observe.explain.start_estimate import LEAST_WAITS, start_estimate
from slurmsched.observe.explain.wording import differing_criteria, printable, sbatch_time
from slurmsched.observe.survey.fit import fit
from slurmsched.observe.survey.sbatch_request import SbatchRequest
from slurmsched.planning.priorities.order import queue_order
from slurmsched.slurm import reader
from slurmsched.slurm.job_queries import read_details
from slurmsched.testing import snapshot
from tests.recorded.playback import HERE as RECORDINGS
from tests.recorded.playback import MARK, Playback, recorded_versions
from tests.unit.planning.node_lists.node_list_cases import on_fabric

HERE = Path(__file__).parent
REASONS = (HERE / "reasons.txt").read_text().split()
LIMITS = (HERE / "assoc_mgr.txt").read_text()


@pytest.mark.parametrize("name", REASONS)
def test_read_reason__knows_every_name_of_slurm(name):
    """None is unknown; those of QOS and associations are read by the grammar, but for seven old ones."""
    assert read_reason(name).blocker is not Blocker.UNKNOWN


def test_read_reason__tells_a_new_name_from_the_known():
    """It is shown as it is."""
    assert (read_reason("SolarFlare").code, read_reason("SolarFlare").blocker) == ("SolarFlare", Blocker.UNKNOWN)


@pytest.mark.parametrize(
    ("text", "blocker", "more"),
    [("ReqNodeNotAvail, UnavailableNodes:n4", Blocker.NODES, "UnavailableNodes:n4"),
     ("ReqNodeNotAvail, Reserved for maintenance", Blocker.MAINTENANCE, "Reserved for maintenance"),
     ("ReqNodeNotAvail,_Reserved_for_maintenance", Blocker.MAINTENANCE, "ReqNodeNotAvail,_Reserved_for_maintenance"),
     ("ReqNodeNotAvail, Reserved for other reservations", Blocker.RESERVATION, "Reserved for other reservations"),
     ("ReqNodeNotAvail, May be reserved for other job", Blocker.NODES, "May be reserved for other job"),
     ("", Blocker.NOT_TRIED, ""), ("(Priority)", Blocker.PRIORITY, "")],
)  # fmt: skip
def test_read_reason__reads_what_follows_the_name(text, blocker, more):
    """As squeue prints it."""
    assert (read_reason(text).blocker, read_reason(text).more) == (blocker, more)


SENTENCES = {
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": Blocker.NODES,
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": Blocker.NODES,
    "Job's QOS not permitted to use this partition (gpu allows high not normal)": Blocker.NOT_ALLOWED,
    "Job's account not permitted to use this partition (gpu allows physics not chem)": Blocker.NOT_ALLOWED,
    "(launch failed requeued held)": Blocker.HELD_AFTER_FAILURE,
    "launch failure limit exceeded requeued held": Blocker.HELD_AFTER_FAILURE,
    "user env retrieval failed requeued held": Blocker.HELD_AFTER_FAILURE,
    "Prolog/Epilog failure on nodes n1": Blocker.HELD_AFTER_FAILURE,
    "job requeued in special exit state": Blocker.HELD_AFTER_FAILURE,
    "job requeued in held state": Blocker.HELD_BY_USER,
    "Burst buffer stage-in timeout": Blocker.DATA,
    "Reservation class was deleted": Blocker.RESERVATION_GONE,
    "Reservation_of_a_class_was_deleted": Blocker.RESERVATION_GONE,
    "Reservation deleted": Blocker.RESERVATION_GONE,
}


@pytest.mark.parametrize(("text", "blocker"), SENTENCES.items())
def test_read_reason__knows_sentences_in_place_of_a_name(text, blocker):
    """slurmctld says some reasons in words of its own; they are shown whole."""
    assert (read_reason(text).blocker, read_reason(text).more) == (blocker, text)


def test_blockers__all_have_words():
    """The list is closed, and each has a sentence."""
    assert set(_PLAIN) | set(_TELLS) == set(Blocker)


@pytest.mark.parametrize(
    ("name", "field"),
    [("QOSMaxGRESPerUser", "MaxTRESPU"), ("AssocGrpCPUMinutesLimit", "GrpTRESMins"), ("MaxJobsPerAccount", "MaxJobsPA"),
     ("AssocMaxWallDurationPerJobLimit", "MaxWallPJ"), ("QOSMinCpuNotSatisfied", "MinTRESPJ"),
     ("QOSMaxSubmitJobPerUserLimit", "MaxSubmitJobsPU"), ("MaxGRESRunMinsPerUser", "MaxTRESRunMinsPU")],
)  # fmt: skip
def test_limit_named__gives_the_field_of_assoc_mgr(name, field):
    """By the grammar."""
    assert limit_named(name).field == field


@pytest.mark.parametrize(
    ("name", "told"),
    [("QOSMaxGRESPerUser", [("QOS small", "gres/gpu", 2.0, 2.0, True)]),
     ("AssocGrpGRES", [("account physics", "gres/gpu", 10.0, 8.0, True)]),
     ("QOSGrpGRES", [("QOS small", "gres/gpu", 12.0, 2.0, False)]),
     ("QOSMaxGRESPerJob", [("QOS small", "gres/gpu", 4.0, None, False)]),
     ("AssocMaxJobsLimit", [("user alice in account physics", "jobs", 1.0, 1.0, True)]),
     ("QOSGrpLicense", [])],
)  # fmt: skip
def test_limit_values__value_use_and_whether_it_blocks(name, told):
    """Only limits that are set, of the kind that is named."""
    found = limit_values(limit_named(name), LIMITS, {"gres/gpu": 4.0, "jobs": 1.0})
    assert [(one.owner, one.what, one.value, one.used, one.blocks) for one in found] == told


@given(st.text())
def test_limit_values__any_text_is_read(text):
    """Forms differ by release: what cannot be read is left out."""
    assert isinstance(limit_values(limit_named("AssocGrpGRES"), text, {}), tuple)


def test_parents__are_the_accounts_above():
    """By lineage and parent; users and root are none."""
    assert parents(LIMITS) == ("physics", "science")


ELSEWHERE = ("gpu", "short")  # partitions with free nodes
RECORDED = {  # job -> blocker, jobs before it that may start on its nodes, their GPUs, other partitions with room
    12: (Blocker.BEGIN_TIME, 0, 0, ()), 13: (Blocker.NODES, 1, 1, ELSEWHERE), 14: (Blocker.NODES, 2, 5, ()),
    15: (Blocker.NODES, 3, 17, ()), 16: (Blocker.NODES, 4, 23, ELSEWHERE), 18: (Blocker.PARTITION_LIMIT, 1, 1, ()),
    19: (Blocker.NODES, 0, 0, ELSEWHERE), 20: (Blocker.HELD_BY_USER, None, None, ()),
    21: (Blocker.BEGIN_TIME, 0, 0, ()), 22: (Blocker.NODES, None, None, ELSEWHERE),
    23: (Blocker.NODES, None, None, ()), 25: (Blocker.HELD_BY_USER, 0, 0, ()), 26: (Blocker.DEPENDENCY, None, None, ()),
}  # fmt: skip


@pytest.fixture(params=recorded_versions())
def lab_then(request, monkeypatch):
    """A recorded queue as it was, and what Slurm tells of its jobs."""
    monkeypatch.setattr(reader, "fresh_mark", lambda: MARK)
    commands = Playback(RECORDINGS / request.param)
    now_s = float(json.loads((commands.folder / "facts.json").read_text())["now_s"])
    return replace(reader.CommandReader(commands).read(), now_s=now_s), commands


def test_explain__of_the_recorded_queue(lab_then):
    """Jobs whose nodes are all down wait for these, whatever Slurm says; jobs on other nodes are not before them; other
    partitions are named where `fit` finds room there for that very request."""
    site, commands = lab_then
    told = {}
    for job in RECORDED:
        row = site.jobs.row_of(job)
        told[job] = one = explain(site, None, row, read_details(commands, site, row))
        assert one.unread == ()
        assert "others-first" not in one.blocker
        assert one.ahead.rank == 1 + queue_order(site, None).tolist().index(row)
    found = {job: (one.blocker, one.ahead.jobs, one.ahead.gpus, tuple(
        change.partition("partition=")[2].partition(":")[0] for change in one.changes if "partition=" in change
    )) for job, one in told.items()}  # fmt: skip
    assert {job: tuple(value for value, wanted in zip(found[job], RECORDED[job], strict=True) if wanted is not None)
            for job in RECORDED} == {
        job: tuple(value for value in wanted if value is not None) for job, wanted in RECORDED.items()}  # fmt: skip
    assert not any("smaller request" in change for one in told.values() for change in one.changes)
    assert told[18].changes == ("scontrol update jobid=18 timelimit=7-00:00:00",)
    assert [told[job].changes for job in (14, 15)] == [(), ()]
    assert "It was requeued" in told[12].because


GPU = {"name": "n1", "gpus": 8, "partitions": "gpu,both"}
TWO = [GPU, {"name": "n2", "gpus": 8, "partitions": "short,both"}]


@pytest.mark.parametrize(
    ("other", "counts"),
    [({}, True), ({"partition": "both"}, True), ({"array_tasks": 3}, True), ({"partition": "short"}, False),
     ({"partition": "both", "nodes_asked": "n2"}, False), ({"priority": 0}, False), ({"eligible_s": 60.0}, False),
     ({"dependency": "afterok:7(unfulfilled)"}, False), ({"reason": "QOSMaxGRESPerUser"}, False),
     ({"reason": "Reservation", "reservation": "class"}, False),
     ({"nodes": 2, "gpus": 8}, False), ({"partition": "both", "nodes": 2, "gpus": 8}, True), ({"state": "R"}, False)],
)  # fmt: skip
def test_explain__ahead_are_those_that_may_start_on_its_nodes(other, counts):
    """Its rank is that of the whole queue; GPUs are those of the jobs that compete with it."""
    first = {"job_id": 1, "priority": 9, "gpus": 4, "partition": "gpu", **other}
    own = {"job_id": 2, "priority": 5, "gpus": 1, "partition": "gpu", "reason": "Priority"}
    site = snapshot([first, own], TWO, now_s=0.0)
    told = explain(site, None, 1, JobDetails())
    waits = int(first.get("state") != "R")
    gpus = first["gpus"] * first.get("array_tasks", 1) if counts else 0
    held = first["priority"] == 0
    assert (told.ahead.rank, told.ahead.of) == (1 + waits * (not held), 1 + waits)
    assert (told.ahead.jobs, told.ahead.gpus, [one.job_id for one in told.ahead.first]) == (
        int(counts), gpus, [1] * counts)  # fmt: skip
    assert told.blocker is (Blocker.PRIORITY if counts else Blocker.NOT_TRIED)
    assert ("No job before it competes for its nodes" in told.because) is not counts


def test_explain__ahead_on_nodes_that_are_down():
    """They count where the job has no others; else nobody gets them before it."""
    down = {"name": "n1", "gpus": 8, "partitions": "gpu", "state": "DOWN"}
    first = {"job_id": 1, "priority": 9, "gpus": 4, "partition": "gpu", "nodes_asked": "n1"}
    own = {"job_id": 2, "priority": 5, "gpus": 1, "partition": "gpu", "reason": "Priority"}
    up = {"name": "n2", "gpus": 8, "partitions": "gpu"}
    told = [explain(snapshot([first, own], nodes, now_s=0.0), None, 1, JobDetails()) for nodes in ([down], [down, up])]
    assert [(one.ahead.jobs, one.blocker) for one in told] == [(1, Blocker.NODES), (0, Blocker.NOT_TRIED)]


@pytest.mark.parametrize(
    ("nodes", "job", "blocker"),
    [([{**GPU, "state": "DOWN"}], {}, Blocker.NODES), ([{**GPU, "gpus_used": 8}], {}, Blocker.RESOURCES),
     ([GPU], {}, Blocker.NOT_TRIED), ([GPU, {**TWO[1], "state": "IDLE+DRAIN"}], {"nodes": 2, "gpus": 2,
      "partition": "both"}, Blocker.NODES), ([{**GPU, "gpus": 4}], {"gpus": 8}, Blocker.CONSTRAINTS),
     ([GPU], {"features_asked": "ib"}, Blocker.CONSTRAINTS), ([TWO[1]], {}, Blocker.PRIORITY),
     ([GPU], {"features_asked": "ib*2"}, Blocker.NOT_TRIED)],
)  # fmt: skip
@pytest.mark.parametrize("reason", ["Priority", "None"])
def test_explain__says_what_the_nodes_say(nodes, job, blocker, reason):
    """Slurm's "Priority" and "None" say that it did not get as far as the nodes."""
    own = {"job_id": 2, "priority": 5, "gpus": 1, "partition": "gpu", "reason": reason, **job}
    told = explain(snapshot([own], nodes, now_s=0.0), None, 0, JobDetails()).blocker
    asked = {Blocker.PRIORITY: Blocker.NOT_TRIED, Blocker.RESOURCES: Blocker.NOT_TRIED}
    assert told is (blocker if reason == "Priority" else asked.get(blocker, blocker))


@pytest.mark.parametrize("reason", ["Resources", "Priority", "ReqNodeNotAvail, UnavailableNodes:n1", ""])
@pytest.mark.parametrize(
    ("partition", "job", "blocker", "told"),
    [({"max_cpus_per_node": 16.0}, {"cpus": 32}, Blocker.PARTITION_LIMIT, "MaxCPUsPerNode=16, the job asks for 32"),
     ({"max_time_s": 3_600.0}, {"time_limit_s": 7_200.0}, Blocker.PARTITION_LIMIT, "MaxTime=1 h"),
     ({"up": False}, {}, Blocker.PARTITION_CLOSED, "starts no jobs now")],
)  # fmt: skip
def test_explain__what_the_partition_refuses_waits_for_no_node(reason, partition, job, blocker, told):
    """A limit that was set after Slurm's last look, or that Slurm names by another reason."""
    own = {"job_id": 2, "gpus": 1, "partition": "gpu", "reason": reason, "time_limit_s": 60.0, **job}
    site = snapshot([own], [{**GPU, "cpus": 64}], now_s=0.0, partitions=[{"name": "gpu", **partition}])
    one = explain(site, None, 0, JobDetails())
    assert (one.blocker, told in one.because) == (blocker, True)


def test_explain__reservations_keep_nodes_from_a_job_that_slurm_ranks_last():
    """With the longest time limit that ends before them, by `fit`."""
    own = {"job_id": 2, "gpus": 1, "partition": "gpu", "reason": "Priority", "time_limit_s": 7_200.0}
    table = {"name": ["class"], "node_list": ["n1"], "start_s": [1_859.0], "end_s": [9e9]}
    details = JobDetails(reservations=Reservations.build(1, table))
    told = explain(snapshot([own], [GPU], now_s=0.0), None, 0, details)
    assert (told.blocker, "class keeps n1" in told.because) == (Blocker.RESERVATION, True)
    assert any("timelimit=00:30:00" in change for change in told.changes)


def test_explain__advises_what_fit_says_of_this_very_job():
    """Nothing where nothing near it starts; never a partition that has no room either."""
    full = {**GPU, "gpus_used": 6, "cpus": 64, "gpu_types": "gpu:8"}
    other = {**full, "name": "n3", "gpus_used": 0, "partitions": "short"}
    own = {"job_id": 2, "gpus": 4, "partition": "gpu", "gpu_request": "gpu:4", "reason": "Resources",
           "time_limit_s": 60.0}  # fmt: skip
    seen = snapshot([own], [full, other], now_s=0.0, partitions=[{"name": "gpu"}, {"name": "short"}])
    told = explain(seen, None, 0, JobDetails(record={"TresPerNode": "gres/gpu:4"}))
    near = fit(seen, SbatchRequest(nodes=1, gpus_per_node=4, partition="gpu", time_s=60.0)).nearest
    assert [change.partition(": ")[0].rpartition(" ")[2] for change in told.changes] == [
        "--gpus-per-node=2", "partition=short"]  # fmt: skip
    assert [one.change.rpartition(" ")[2] for one in near] == ["--gpus-per-node=2", "--partition=short"]
    full_too = replace(seen, nodes=seen.nodes.with_columns(gpus_used=[8, 8]))
    told = explain(full_too, None, 0, JobDetails(record={"TresPerNode": "gres/gpu:4"}))
    assert (told.changes, "No single change of its request" in told.because) == ((), True)


@pytest.mark.parametrize(("rights", "told"), [(Rights.USER, True), (Rights.OPERATOR, False)])
@pytest.mark.parametrize("private", ["jobs", "accounts,jobs", "all", "none"])
def test_explain__says_that_it_sees_part_of_the_queue(rights, told, private):
    """PrivateData hides jobs from all but operators."""
    site = snapshot([{"reason": "Priority"}], "1x8")
    site = replace(site, site=replace(site.site, rights=rights, settings={"PrivateData": private}))
    one = explain(site, None, 0, JobDetails())
    assert any("PrivateData=jobs" in line for line in one.unread) is (told and private != "none")
    assert (one.blocker is Blocker.PRIORITY) is (told and private != "none")


def test_estimate__promise_then_waits_then_none():
    """With the reason where there is none."""
    site = snapshot([{"submit_s": 0.0}], "1x8", now_s=100.0)
    kept = Operation("1-1", Purpose.RESERVE, 1, 0.0, "ann", "n1", 60.0, 0.0, promised_s=500.0)
    assert start_estimate(site, 0, Blocker.PRIORITY, [kept], (), math.nan).latest_s == 500.0
    waits_s = [50.0] * 90 + [100.0 + 10 * i for i in range(1, 12)]
    by_past = start_estimate(site, 0, Blocker.PRIORITY, (), waits_s, math.nan)
    assert (by_past.source, by_past.earliest_s, by_past.latest_s) == ("history", 120.0, 200.0)
    few = start_estimate(site, 0, Blocker.PRIORITY, (), waits_s[: 90 + LEAST_WAITS - 1], math.nan)
    assert (few.source, "9 jobs" in few.why) == ("none", True)
    assert start_estimate(site, 0, Blocker.HELD_BY_USER, (), waits_s, math.nan).why == "it is held"
    later = snapshot([{"submit_s": 0.0, "eligible_s": 150.0}], "1x8", now_s=100.0)
    told = start_estimate(later, 0, Blocker.BEGIN_TIME, (), waits_s, math.nan)
    assert (told.earliest_s, told.latest_s, "begin time" in told.why) == (150.0, 200.0, True)


def test_against__only_what_differs():
    """Of the other job; where nothing does, the order of submission decided."""
    assert differing_criteria({"queue": 0, "service_gpu_s": 5.0}, {"queue": 1, "service_gpu_s": 5.0}, {}) == "queue 0"
    assert differing_criteria({"queue": 0}, {"queue": 0}, {}) == "equal by these, before it by submission or id"


@pytest.mark.parametrize(
    ("job", "word"),
    [({"gpus": 9}, "has 8 GPUs"), ({"partition": "x"}, "not in partition"), ({"nodes_excluded": "n1"}, "excludes it"),
     ({"features_asked": "h100"}, "not h100"), ({"gpu_request": "gpu:h100:1"}, "no h100"), ({"cpus": 9}, "has 8 CPUs"),
     ({"cpus": 4}, "of its 8 CPUs are free"),
     ({"memory_mib": 9.0}, "has 8 MiB")],
)  # fmt: skip
def test_why_not__is_the_first_obstacle(job, word):
    """What the job says and the node has at all, its state, reservations, then GPUs, CPUs and memory."""
    node = {"name": "n1", "gpus": 8, "cpus": 8, "cpus_used": 6, "memory_mib": 8.0, "gpu_types": "gpu:a100:8",
            "features": "a100"}  # fmt: skip
    assert word in why_not(snapshot([job], [node]), 0, "n1", JobDetails())
    assert why_not(snapshot([{}], [node]), 0, "n1", JobDetails()) == ""
    drained = {**node, "state": "IDLE+DRAIN", "reason": "bad\x1b[31m fan"}
    assert "bad\\x1b[31m fan" in why_not(snapshot([{}], [drained]), 0, "n1", JobDetails())
    assert (word in why_not(snapshot([job], [drained]), 0, "n1", JobDetails())) is ("are free" not in word)
    with pytest.raises(InputError, match="no node n9"):
        why_not(snapshot([job], [node]), 0, "n9", JobDetails())


RUNS = {"job_id": 7, "user": "eve", "state": "R", "gpus": 6, "node_list": "n1", "end_s": 60.0}
USED = {"name": "n1", "gpus": 8, "gpus_used": 6, "cpus": 8, "cpus_used": 1}
EMPTY = {"name": "n2", "gpus": 8, "cpus": 8}


def test_why_not__names_who_holds_what_is_missing():
    """The first to end before the others, three at most; whoever runs elsewhere is none of them."""
    own, elsewhere = {"job_id": 1, "gpus": 4}, {**RUNS, "job_id": 2, "node_list": "n2"}
    others = [{**RUNS, "job_id": 8, "end_s": 9.0}, {**RUNS, "job_id": 9, "end_s": math.inf}, {**RUNS, "job_id": 10}]
    told = why_not(snapshot([own, elsewhere, RUNS, *others], [USED, EMPTY]), 0, "n1", JobDetails())
    assert told.startswith("2 of its 8 GPUs are free, the job needs 4 there; there run job 8 of eve until ")
    assert (told.count(" of eve until "), "job 2 " in told, told[-10:]) == (3, False, "and 1 more")
    assert "there runs job 9 of eve with no time limit" in why_not(
        snapshot([own, others[1]], [USED]), 0, "n1", JobDetails()
    )


@pytest.mark.parametrize(
    ("record", "partition", "whole"),
    [({"OverSubscribe": "NO"}, "", True), ({"OverSubscribe": "OK"}, "", False), ({}, "node", True),
     ({"OverSubscribe": "NO", "Exclusive": "NO"}, "", False), ({"Exclusive": "NODE"}, "", True)],
)  # fmt: skip
def test_why_not__a_whole_node_has_to_be_empty(record, partition, whole):
    """As scontrol tells it up to 25.11, and from 26.05 on in a field of its own; or by the partition."""
    at, details = (
        snapshot([{"gpus": 1}], [USED, EMPTY], partitions=[{"name": "gpu", "exclusive": partition}]),
        JobDetails(record),
    )
    assert ("asks for the whole node" in why_not(at, 0, "n1", details)) is whole
    assert why_not(at, 0, "n2", details) == ""


def test_why_not__several_tasks_without_nodes_need_not_be_on_one():
    """`-n 1000` alone shows one node while it waits, and `-N1` shows "1-1"."""
    told = [
        why_not(
            snapshot([{"gpus": 1, "cpus": 1000}], [EMPTY]), 0, "n2", JobDetails(record={"NumTasks": "1000", **more})
        )
        for more in ({"NumNodes": "1"}, {"NumNodes": "1-1"})
    ]
    assert (told[0], "CPUs, the job needs 1000 there" in told[1]) == ("", True)


def test_why_not__a_reservation_of_all_nodes_keeps_each():
    """Its node list need not name them."""
    table = {"name": ["all"], "flags": ["MAINT,ALL_NODES"], "start_s": [60.0], "end_s": [9e9], "node_list": [""]}
    details = JobDetails(reservations=Reservations.build(1, table))
    assert "reservation all keeps it" in why_not(snapshot([{}], [EMPTY], now_s=0.0), 0, "n2", details)


@pytest.mark.parametrize(
    ("job", "record", "told"),
    [({"gpus": 4}, {}, "By counts there is room for it on 1 of 3 nodes it may use (1 closed, 1 short of GPUs)."),
     ({"gpus": 2}, {}, "By counts there is room for it on 2 of 3 nodes it may use (1 closed)."),
     ({"gpus": 16, "nodes": 2}, {}, "on 1 of 3 nodes it may use (1 closed, 1 short of GPUs); it needs 2."),
     ({"gpus": 10, "nodes": 2}, {"TresPerJob": "gres/gpu:10"}, "By counts there is room for it on 2 of 3 nodes"),
     ({"gpus": 12, "nodes": 2}, {"TresPerJob": "gres/gpu:12"}, "There are 10 GPUs free on 2 of 3 nodes it may use (1 "
      "closed); it needs 12."),
     ({"gpus": 1, "nodes_asked": "n1"}, {}, "room for it on 1 of 1 node it may use."),
     ({"gpus": 12}, {"TresPerJob": "gres/gpu:12"}, "There are 10 GPUs free on 2 of 3 nodes it may use (1 closed)"),
     ({"gpus": 12, "reason": "Resources"}, {"TresPerJob": "gres/gpu:12", "NumNodes": "1-1"},
      "fewer can ever serve it. No node can serve it: it has 8 GPUs, the job needs 12 there."),
     ({"gpus": 1, "cpus": 9, "reason": "Resources"}, {},
      "fewer can ever serve it. No node can serve it: it has 8 CPUs")],
)  # fmt: skip
def test_explain__counts_the_nodes_that_have_room(job, record, told):
    """Nodes that could never serve the job are left out; GPUs of a job as a whole need not be even on its nodes."""
    down = {**EMPTY, "name": "n3", "state": "DOWN"}
    site = snapshot([{"reason": "Priority", **job}], [USED, EMPTY, down, {"name": "n4", "gpus": 0}])
    because = explain(site, None, 0, JobDetails(record=record)).because
    assert told in because
    assert ("room" in because or "GPUs free" in because) is not told.startswith("fewer")


def test_explain__a_deadline_says_nothing_of_nodes():
    """DeadLine is of time alone: an idle node serves it no more."""
    site = snapshot([{"job_id": 7, "reason": "DeadLine", "gpus": 1}], [EMPTY])
    told = explain(site, None, 0, JobDetails())
    assert told.because.startswith("It cannot end before its --deadline any more.")
    assert ("No node" in told.because, "deadline=TIME" in str(told)) == (False, True)


@pytest.mark.parametrize(("job_id", "room"), [(9, "By counts there is room for it on 1 of 1"), (8, "1 reserved for")])
def test_explain__nodes_kept_for_a_job_are_not_reserved_for_others(job_id, room):
    """The job that an operation is for names its reservation only when it is its turn."""
    operation = Operation("t-9-1", Purpose.RESERVE, 9, 0.0, "ann", "n1", 60.0, 0.0, promised_s=500.0)
    table = {"name": [operation.reservation], "flags": [""], "start_s": [0.0], "end_s": [9e9], "node_list": ["n1"]}
    job = {"job_id": job_id, "gpus": 8, "reason": "Priority"}
    site = replace(snapshot([job], [{"name": "n1", "gpus": 8}], now_s=0.0), operations=(operation,))
    assert room in explain(site, None, 0, JobDetails(reservations=Reservations.build(1, table))).because


def test_explain__names_reservations_that_keep_some_of_its_nodes():
    """Of a job that waits for others on the rest; not the one that is kept for the job itself."""
    operation = Operation("t-9-1", Purpose.RESERVE, 9, 0.0, "ann", "n1", 60.0, 0.0, promised_s=500.0)
    table = {
        "name": [operation.reservation, "class"],
        "start_s": [0.0, 0.0],
        "end_s": [9e9, 9e9],
        "node_list": ["n1", "n2"],
    }
    nodes = [{**GPU, "gpus_used": 8}, {**TWO[1], "partitions": "gpu"}]
    job = {"job_id": 9, "gpus": 8, "partition": "gpu", "reason": "Resources"}
    site = replace(snapshot([job], nodes, now_s=0.0), operations=(operation,))
    because = explain(site, None, 0, JobDetails(reservations=Reservations.build(2, table))).because
    assert ("Kept from it: reservation class keeps n2 since " in because, operation.reservation in because) == (
        True,
        False,
    )


def test_explain__names_no_reservation_that_keeps_nothing_from_it():
    """One that draws its users in, and one of a part of a node that leaves the job enough."""
    table = {
        "name": ["mine", "theirs", "part", "most"], "flags": ["MAGNETIC", "MAGNETIC", "", ""], "start_s": [0.0] * 4,
        "end_s": [9e9] * 4, "node_list": ["n1", "n2", "n3", "n4"], "users": ["ann", "bob", "bob", "bob"],
        "cores": ["", "", "n3=2", "n4=7"], "tres": ["", "", "cpu=2,gres/gpu=1", "cpu=7,gres/gpu=7"],
    }  # fmt: skip
    nodes = [{"name": f"n{at}", "gpus": 8, "gpus_used": 8, "cpus": 8, "memory_mib": 8.0} for at in range(1, 5)]
    job = {"job_id": 9, "gpus": 4, "cpus": 2, "user": "ann", "reason": "Resources"}
    details = JobDetails(reservations=Reservations.build(4, table))
    because = explain(snapshot([job], nodes, now_s=0.0), None, 0, details).because
    told = [name for name in table["name"] if f"reservation {name} keeps" in because]
    assert told == ["theirs", "most"]


def test_explain__names_only_closed_nodes_that_the_job_could_have():
    """By constraint and size, and together where they are closed for the same reason."""
    rows = [("n1", "big", 8, "fan"), ("n2", "", 8, "fan"), ("n3", "big", 8, "fan"), ("n4", "big", 2, "disk")]
    nodes = [
        {"name": name, "features": has, "gpus": gpus, "state": "DOWN", "reason": why} for name, has, gpus, why in rows
    ]
    job = {"features_asked": "big", "gpus": 8, "reason": "Priority"}
    because = explain(snapshot([job], nodes, now_s=0.0), None, 0, JobDetails()).because
    assert because.startswith("Nodes it needs take no job now: n[1,3] (fan). ")
    spread = {"gpus": 12, "reason": "Priority"}
    because = explain(
        snapshot([spread], nodes, now_s=0.0), None, 0, JobDetails(record={"TresPerJob": "gres/gpu:12"})
    ).because
    assert because.startswith("Nodes it needs take no job now: n[1-3] (fan), n4 (disk). ")


def test_explain__of_an_array_says_how_many_tasks_wait():
    """Slurm keeps one record for them; a task that was split off is alone."""
    rows = [{"array_job_id": 1, "array_tasks": 9}, {"array_job_id": 1, "array_tasks": 1}]
    told = [explain(snapshot(rows, "1x8"), None, row, JobDetails()).because for row in range(2)]
    assert ["for all 9 tasks of its array" in one for one in told] == [True, False]


def test_explain__of_a_running_job_says_where_and_until_when():
    """No word of others."""
    because = explain(snapshot([RUNS], [USED]), None, 0, JobDetails()).because
    assert because.startswith("It runs on n1, until ")


def test_explain__maintenance_tells_the_limit_that_fits():
    """Rounded down to whole minutes."""
    job = {"reason": "ReqNodeNotAvail, Reserved for maintenance", "time_limit_s": 7_200.0}
    kept = Reservations.build(1, {"name": ["fans"], "node_list": ["n1"], "start_s": [1_859.0], "end_s": [9e9],
                                  "flags": ["MAINT,SPEC_NODES"]})  # fmt: skip
    nodes = [{"name": "n1", "gpus": 8}]
    told = explain(snapshot([job], nodes, now_s=0.0), None, 0, JobDetails(reservations=kept))
    assert (told.blocker, "timelimit=00:30:00" in told.changes[0]) == (Blocker.MAINTENANCE, True)


@pytest.mark.parametrize(
    ("words", "course", "because", "limit"),
    [("maintenance", "n2", "runs into a maintenance: reservation fans keeps n[1-2] from", "01:00:00"),
     ("maintenance", "n[1-2]", "kept for a maintenance: reservation fans keeps n[1-2] from", ""),
     ("other reservations", "n2", "runs into a reservation for others: reservation course keeps n2 since", "01:00:00"),
     ("other reservations", "n[1-2]", "kept for a reservation for others: reservation course keeps n[1-2] since", "")],
)  # fmt: skip
def test_explain__a_standing_reservation_hides_none_that_comes(words, course, because, limit):
    """That which comes is named with the limit that fits, unless the standing one keeps all its nodes already."""
    job = {"reason": f"ReqNodeNotAvail, Reserved for {words}", "time_limit_s": 7_200.0}
    table = {"name": ["course", "fans"], "node_list": [course, "n[1-2]"], "flags": ["", "MAINT"],
             "start_s": [-9e5, 3_600.0], "end_s": [9e9, 7_200.0]}  # fmt: skip
    nodes = [{"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 8}]
    told = explain(snapshot([job], nodes, now_s=0.0), None, 0, JobDetails(reservations=Reservations.build(2, table)))
    assert because in told.because
    assert [change.rpartition("=")[2] for change in told.changes] == [limit] * bool(limit)


def test_explain__names_the_nodes_that_take_no_job():
    """The first ones with their reason, and how many more; what Slurm says where there are none."""
    job = {"reason": next(iter(SENTENCES)), "partition": "gpu"}
    down = [{"name": f"n{n}", "gpus": 8, "partitions": "gpu", "state": "DOWN", "reason": "cables"} for n in range(8)]
    told = explain(snapshot([job], down), None, 0, JobDetails())
    assert "n[0-7] (cables). Slurm says: " in told.because
    assert (told.blocker, told.changes) == (Blocker.NODES, ())
    assert "higher priority partitions" in explain(snapshot([job], "1x8"), None, 0, JobDetails()).because


@pytest.mark.parametrize(
    ("job", "limit"),
    [({}, "01:00:00"), ({"nodes_asked": "n1"}, "00:30:00"), ({"nodes": 2, "gpus": 2}, "00:30:00"),
     ({"nodes_excluded": "n2"}, "00:30:00"), ({"features_asked": "big"}, "01:00:00")],
)  # fmt: skip
def test_explain__the_limit_that_fits_is_that_of_its_own_nodes(job, limit):
    """Of the last reservation that leaves enough of the nodes it may have; those it cannot have do not count."""
    own = {"reason": "Priority", "time_limit_s": 7_200.0, "gpus": 1, **job}
    nodes = [{"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 8, "features": "big"}]
    table = {"name": ["fans", "class"], "node_list": ["n1", "n2"], "flags": ["MAINT", ""],
             "start_s": [1_859.0, 3_600.0], "end_s": [9e9, 9e9]}  # fmt: skip
    told = explain(snapshot([own], nodes, now_s=0.0), None, 0, JobDetails(reservations=Reservations.build(2, table)))
    assert [change.rpartition("=")[2] for change in told.changes] == [limit]
    only_fans = job.get("nodes_asked") == "n1" or job.get("nodes_excluded") == "n2"
    assert told.blocker is (Blocker.MAINTENANCE if only_fans else Blocker.RESERVATION)


@pytest.mark.parametrize(
    ("reason", "job", "named"),
    [(next(iter(SENTENCES)), {}, False), (next(iter(SENTENCES)), {"nodes": 2, "gpus": 16}, True),
     (next(iter(SENTENCES)), {"nodes_asked": "n1"}, True),
     ("ReqNodeNotAvail, May be reserved for other job", {}, False),
     ("ReqNodeNotAvail, UnavailableNodes:n1", {}, True)],
)  # fmt: skip
def test_explain__a_closed_node_is_named_only_where_it_is_missed(reason, job, named):
    """Nodes may also be kept for higher partitions; what Slurm says is shown in any case."""
    rows = [{"reason": reason, "partition": "gpu", "gpus": 8, **job}]
    nodes = [{"name": f"n{n}", "gpus": gpus, "partitions": "gpu", "state": state, "reason": "fan"}
             for n, gpus, state in ((1, 8, "DOWN"), (2, 8, "IDLE"), (3, 4, "IDLE"))]  # fmt: skip
    because = explain(snapshot(rows, nodes), None, 0, JobDetails()).because
    assert ("n1 (fan)" in because, reason.removeprefix("ReqNodeNotAvail, ") in because) == (named, True)


def test_explain__a_reservation_of_others_tells_the_limit_that_fits():
    """As a maintenance does; one of its own that is not there can be left."""
    job = {"reason": "ReqNodeNotAvail, Reserved for other reservations", "time_limit_s": 7_200.0}
    kept = Reservations.build(1, {"name": ["course"], "node_list": ["n1"], "start_s": [1_859.0], "end_s": [9e9]})
    nodes = [{"name": "n1", "gpus": 8}]
    told = explain(snapshot([job], nodes, now_s=0.0), None, 0, JobDetails(reservations=kept))
    assert (told.blocker, "timelimit=00:30:00" in told.changes[0]) == (Blocker.RESERVATION, True)
    assert "runs into a reservation for others: reservation course keeps n1" in told.because
    gone = {"reason": "ReservationInvalid", "reservation": "class"}
    told = explain(snapshot([gone], nodes, now_s=0.0), None, 0, JobDetails(reservations=kept))
    assert ("class is not there" in told.because, "reservationname=" in told.changes[0]) == (True, True)


@pytest.mark.parametrize("reason", ["Reservation class was deleted", "ReservationDeleted"])
def test_explain__a_job_whose_reservation_ended_is_held(reason):
    """Slurm took the name off; no other reservation is in the way, and only a release helps."""
    job = {"job_id": 7, "reason": reason, "priority": 0, "time_limit_s": 7_200.0}
    kept = Reservations.build(1, {"name": ["course"], "node_list": ["n1"], "start_s": [1_859.0], "end_s": [9e9]})
    told = explain(snapshot([job], [{"name": "n1"}], now_s=0.0), None, 0, JobDetails(reservations=kept))
    assert (str(told.blocker), told.changes) == ("held-reservation-gone", ("scontrol release 7",))
    assert told.because.startswith("The reservation it was for is gone, and Slurm holds it")
    assert told.estimate.why == "it is held"


@pytest.mark.parametrize(
    ("job", "details", "blocker", "word"),
    [
        (
            {"reason": "Licenses"},
            JobDetails(record={"Licenses": "sim:1"}, pools=(LicensePool("sim", 1, 1),)),
            "licenses",
            "1 of 1",
        ),
        ({"reason": "BeginTime", "eligible_s": 60.0}, JobDetails(requeued=True), "requeued", "took its GPUs back"),
        ({"reason": "Dependency", "dependency": "afterok:3"}, JobDetails(), "dependency", "afterok:3"),
        ({"state": "R"}, JobDetails(), "running", "runs"),
        ({"state": "F"}, JobDetails(), "ended", "ended"),
        ({"reason": "None", "priority": 0}, JobDetails(), "held-by-admin", "holds it"),
    ],
)
def test_explain__says_what_the_reason_means(job, details, blocker, word):
    """With the values at hand."""
    told = explain(snapshot([job], "1x8"), None, 0, details)
    assert (str(told.blocker), word in told.because) == (blocker, True)


def test_explain__says_that_the_policy_makes_a_job_wait():
    """An earliest start of ours is none of the user's; once it is given back, the begin time is theirs."""
    job = {"reason": "BeginTime", "eligible_s": 60.0}
    later = Override(1, 0.0, "start_time", 0.0, 90.0)
    # The second: a renewal that was not sent. The last: of a start that somebody else changed.
    records = (replace(later, sent=60.0), replace(later, values=(60.0,)), replace(later, sent=0.0), later)
    told = [explain(snapshot([job], "1x8", overrides=(record,)), None, 0, JobDetails()).because for record in records]
    assert ["The policy starts it later" in because for because in told] == [True, True, False, False]


def test_explain__component_names_the_others():
    """What keeps one keeps all; a job of its own, or a component that runs, says nothing of it."""
    rows = [{"job_id": 7, "het_job_id": 7}, {"job_id": 8, "het_job_id": 7, "het_offset": 1}, {"job_id": 9}]
    told = [explain(snapshot(rows, "1x8"), None, row, JobDetails()).because for row in range(3)]
    assert "component 1 of job 7, whose components start together: what keeps 7 keeps it too." in told[1]
    assert ["component" in one for one in told] == [True, True, False]
    running = [{**row, "state": "R"} for row in rows]
    assert "component" not in explain(snapshot(running, "1x8"), None, 1, JobDetails()).because


@given(st.text())
def test_shown__is_safe_to_print(text):
    """No control character, escape or mark of direction is left."""
    assert printable(text).isprintable()


@pytest.mark.parametrize(("time_s", "text"), [(1_859.0, "00:30:00"), (90_000.0, "1-01:00:00"), (math.inf, "UNLIMITED")])
def test_minutes__as_sbatch_takes_them(time_s, text):
    """Rounded down."""
    assert sbatch_time(time_s) == text


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({}, "it may be asked to make way; a restart counts as 120 s, by preemption.restart_cost_s"),
        ({"moved_cost_s": 45.4, "moves_seen": 4}, "it may be asked to make way; a restart counts as 45 s, by the "
         "median of 4 moves of its user's jobs of its name"),
        ({"comment": "slurmsched: preempt=yes ckpt=USR1@9 restart=30s", "moved_cost_s": 45.4, "moves_seen": 4},
         "it may be asked to make way; a restart counts as 30 s, by its hint"),
        ({"restarts": 9}, "it keeps its GPUs: it was requeued 3 times or more (preemption.most_per_job); a restart "
         "counts as 120 s, by preemption.restart_cost_s"),
        ({"run_s": 60.0}, "it keeps its GPUs: it has not had its quantum yet; a restart counts as 120 s, by "
         "preemption.restart_cost_s"),
        ({"state": "PENDING"}, ""),
    ],
)  # fmt: skip
def test_moving__says_whether_a_job_makes_way_and_what_that_costs(columns, told):
    """Hint, then what was seen, then the site's default; nothing of a job that waits, nor where preemption is off."""
    row = {"job_id": 1, "gpus": 8, "state": "RUNNING", "requeueable": True, "run_s": 9_000.0, "submit_s": 0.0,
           "comment": "slurmsched: preempt=yes ckpt=USR1@9", **columns}  # fmt: skip
    seen = snapshot([row], "1x8", now_s=10_000.0, allocations=[{"job_id": 1, "node": "n1", "gpus": 8}])
    every = ScopeConfig(partitions=("*",))
    assert preemption_outlook(seen, 0, PreemptionConfig(enabled=True), every) == told
    assert preemption_outlook(seen, 0, PreemptionConfig(), every) == ""
    assert explain(seen, None, 0, JobDetails(), move=told).move == told


@pytest.mark.parametrize(
    ("stage", "restarts", "told"),
    [(OperationStage.BEGUN, 0, "it is being asked to make way for job 9; "),
     (OperationStage.REQUEUED, 0, "it is being asked to make way for job 9; "),
     (OperationStage.REVERSING, 0, "it keeps its GPUs: another preemption with it is under way; "),
     (OperationStage.WARNED, 1, "it keeps its GPUs: another preemption with it is under way; ")],
)  # fmt: skip
def test_moving__of_a_victim_and_of_who_gets_its_gpus(stage, restarts, told):
    """The run that is to leave is told so until the operation is given up or over; another run of the job is not meant,
    and the job that gets the GPUs keeps them."""
    rows = [{"job_id": job, "gpus": 4, "state": "RUNNING", "requeueable": True, "run_s": 9_000.0, "restarts": restarts,
             "comment": "slurmsched: preempt=yes ckpt=USR1@9"} for job in (1, 9)]  # fmt: skip
    held = [{"job_id": job, "node": "n1", "gpus": 4} for job in (1, 9)]
    operation = Operation("9-1", Purpose.PREEMPT, 9, 0.0, "ann", "n1", 60.0, 0.0, (Victim(1, 0.0, 0, 4),), stage=stage)
    seen = replace(snapshot(rows, "1x8", now_s=10_000.0, allocations=held), operations=(operation,))
    of = [
        preemption_outlook(seen, row, PreemptionConfig(enabled=True), ScopeConfig(partitions=("*",)))
        for row in range(2)
    ]
    assert of[0].startswith(told)
    assert of[1].startswith("it keeps its GPUs: another preemption with it is under way; ")


@pytest.mark.parametrize(("without", "told"), [(True, ", and all it has done, as it has no ckpt hint"), (False, "")])
def test_moving__of_a_job_without_checkpoint_tells_that_its_run_is_lost(without, told):
    """Where the site moves such jobs; elsewhere it keeps its GPUs, and the reason says why."""
    row = {"job_id": 1, "gpus": 8, "state": "RUNNING", "requeueable": True, "run_s": 9_000.0,
           "comment": "slurmsched: preempt=yes"}  # fmt: skip
    seen = snapshot([row], "1x8", now_s=10_000.0, allocations=[{"job_id": 1, "node": "n1", "gpus": 8}])
    said = preemption_outlook(
        seen, 0, PreemptionConfig(enabled=True, without_checkpoint=without), ScopeConfig(partitions=("*",))
    )
    assert said.endswith(f"a restart counts as 120 s, by preemption.restart_cost_s{told}")
    assert ("it may be asked to make way" in said) is without


def test_explain__a_gang_finds_room_only_on_nodes_that_are_near_enough():
    """Slurm keeps a job to one switch at the top: four nodes have room, no three of one switch."""
    nodes = [EMPTY | {"name": f"n{at}"} for at in range(1, 5)]
    plain = snapshot([{"gpus": 24, "nodes": 3, "reason": "Resources"}], nodes)
    at = on_fabric(plain, "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\n")
    told = explain(at, None, 0, JobDetails())
    assert (told.blocker, "they are too far apart on its switches or blocks" in told.because) == (
        Blocker.CONSTRAINTS,
        True,
    )
    near = on_fabric(plain, "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n4\n")
    assert "By counts there is room for it on 4 of 4 nodes" in explain(near, None, 0, JobDetails()).because


@pytest.mark.parametrize(
    ("columns", "text"),
    [({"gpu_use": 0.25, "idle_gpus": 3.0, "gpu_memory_mib": 4_096.0},
      "1 of 4 GPUs used; the GPUs compute 25% of the time; at most 4.0 GiB in use on one GPU"),
     ({"gpu_use": 0.5}, "the GPUs compute 50% of the time"), ({}, ""), ({"state": "PD", "gpu_use": 0.5}, "")],
)  # fmt: skip
def test_explain__says_what_a_running_job_makes_of_its_gpus(columns, text):
    """As far as it is measured."""
    seen = snapshot([{"job_id": 1, "gpus": 4, "state": "R", **columns}], "1x8")
    assert explain(seen, None, 0, JobDetails()).measured == text
