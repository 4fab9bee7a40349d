"""What Slurm is asked about one job: no more than its reason needs; what fails is told, and the rest is read."""

from __future__ import annotations

import math
from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from slurmsched.errors import InputError, SlurmError
from slurmsched.model import JobState, NodeState, Plan, Reservations, Site, Snapshot
from slurmsched.model.columns import frozen
from slurmsched.model.job_details import JobDetails, LicensePool, PlannedStart, ShareAndUse
from slurmsched.observe.explain.blocked_nodes import idle_line, kept_nodes
from slurmsched.observe.explain.explanation import explain
from slurmsched.observe.explain.queue_position import gpu_use, priority_parts, share_lines, tier_place
from slurmsched.slurm.job_queries import (
    begin_details,
    begin_standing,
    find_row,
    read_details,
    read_planned,
    read_priority_parts,
    read_shares,
    read_standing,
)
from slurmsched.testing import snapshot

JOBS = {
    "7": "JobId=7 JobName=a StartTime=1700000000 Comment=x",
    "8": "JobId=8 JobName=b JobId=1 StartTime=1 X StartTime=Unknown",
    **dict.fromkeys(
        ("20_3", "20_5", "20_6"),
        "JobId=22 ArrayJobId=20 ArrayTaskId=4-8:2%1 JobName=ArrayTaskId=3\n"
        "JobId=21 ArrayJobId=20 ArrayTaskId=3 JobName=t",
    ),
    "30+1": "JobId=31 HetJobId=30 HetJobOffset=1 JobName=t",
}
PARTITION = "PartitionName=gpu QoS=part State=UP MaxTime=1:00:00"
LICENSES = "LicenseName=sim Total=2 Used=1\nLicenseName=cad Total=5 Used=0"
RESERVATION = "ReservationName=fans StartTime=1700000000 EndTime=1700003600 Nodes=n1 Users=root Flags=MAINT"


class Asked:
    """scontrol with fixed answers; asked: what was asked of it. broken: words that make it fail."""

    def __init__(self, *broken: str) -> None:
        self.broken, self.asked = broken, list[tuple[str, ...]]()

    def run(self, program: str, *words: str) -> str:
        self.asked.append(words)
        if set(self.broken) & set(words):
            raise SlurmError(f"scontrol: {words[2]} failed")
        what = {"partition": PARTITION, "licenses": LICENSES, "reservation": RESERVATION,
                "assoc_mgr": "ClusterName=c Account=physics"}  # fmt: skip
        if words[2] == "job" and words[3] not in JOBS:
            raise SlurmError("Invalid job id specified")
        return JOBS[words[3]] if words[2] == "job" else what[words[2]]

    begin = run


def queue(**job: object):
    row = {"job_id": 7, "name": "a", "partition": "gpu", "user": "ann", "account": "physics", "qos": "normal", **job}
    task = {"job_id": 21, "array_job_id": 20, "state": "RUNNING"}
    meta = {"job_id": 22, "array_job_id": 20, "array_tasks": 3}
    return snapshot([row, task, meta, {"job_id": 31, "het_job_id": 30}], "1x8")


@pytest.mark.parametrize(
    ("name", "row"), [("7", 0), ("20", 2), ("20_3", 1), ("20_6", 2), ("30", 3), ("31", 3), ("30+1", 3)]
)
def test_find_row__by_id_task_array_and_component(name: str, row: int) -> None:
    """A task that has no record of its own is in that of its array. An array stands for its record that waits."""
    assert find_row(Asked(), queue(), name) == row  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["99", "99_1", "0", "20_5", "x y", "20_[3-6]"])
def test_find_row__of_a_job_that_is_not_there(name: str) -> None:
    """Says where to look, or what an id is."""
    with pytest.raises(InputError, match="sacct -j" if "x" not in name and "[" not in name else "is no job id"):
        find_row(Asked(), queue(), name)  # type: ignore[arg-type]


def test_read_details__asks_what_the_reason_needs() -> None:
    """Licences only where they block, accounts only for limits."""
    asked = Asked()
    details = read_details(asked, queue(reason="Licenses"), 0)  # type: ignore[arg-type]
    assert details.pools == (LicensePool("sim", 2, 1), LicensePool("cad", 5, 0))
    assert (details.partitions["gpu"]["MaxTime"], details.start_s, details.limits) == ("1:00:00", 1_700_000_000.0, "")
    assert (details.reservations.name[0], details.unread) == ("fans", ())
    assert sorted(words[2] for words in asked.asked) == ["job", "licenses", "partition", "reservation"]


def test_begin_details__begins_what_is_asked_in_any_case() -> None:
    """In the same words, or `run` would ask twice. An array task has another id, so its record is asked for later."""
    asked = Asked()
    read_details(asked, queue(), 0)  # type: ignore[arg-type]
    for name, begun in (("7", asked.asked), ("007", asked.asked), ("20_3", asked.asked[1:])):
        commands = Asked()
        begin_details(commands, name)  # type: ignore[arg-type]
        assert sorted(commands.asked) == sorted(begun)


def test_read_details__of_many_partitions_by_one_request() -> None:
    """Of which one is not shown: that is told."""
    asked = Asked()
    details = read_details(asked, queue(partition="gpu,other", reason="Priority"), 0)  # type: ignore[arg-type]
    assert (details.partitions, details.unread) == ({}, ("its partition: scontrol does not show it: 'other'",))
    assert [words[2] for words in asked.asked].count("partition") == 1


def test_read_details__limits_of_user_account_and_every_qos() -> None:
    """The partition's QOS too; with --as-user none are asked, and that is said."""
    asked = Asked()
    assert read_details(asked, queue(reason="QOSMaxGRESPerUser"), 0).limits  # type: ignore[arg-type]
    (words,) = [words for words in asked.asked if words[2] == "assoc_mgr"]
    assert {"users=ann", "accounts=physics", "qos=normal,part"} <= set(words)
    asked = Asked()
    details = read_details(asked, queue(reason="QOSMaxGRESPerUser"), 0, no_limits="not for you")  # type: ignore[arg-type]
    assert (details.limits, details.unread) == ("", ("limits of accounts and QOS: not for you",))
    assert not any("assoc_mgr" in words for words in asked.asked)


@pytest.mark.parametrize("broken", ["job", "partition", "reservation", "licenses"])
def test_read_details__tells_what_could_not_be_read(broken: str) -> None:
    """One failure takes nothing else away."""
    details = read_details(Asked(broken), queue(reason="Licenses"), 0)  # type: ignore[arg-type]
    assert [f"{broken} failed" in text for text in details.unread] == [True]
    known = {
        "job": details.record,
        "partition": details.partitions,
        "licenses": details.pools,
        "reservation": details.reservations,
    }
    assert {name for name, value in known.items() if not len(value)} == {broken}


def test_read_details__a_job_may_be_called_like_a_field() -> None:
    """Its owner chose the name: what looks like a field there is none."""
    details = read_details(
        Asked(), snapshot([{"job_id": 8, "name": "b JobId=1 StartTime=1 X", "partition": ""}], "1x8"), 0
    )  # type: ignore[arg-type]
    assert ("JobId" in details.record, math.isnan(details.start_s)) == (False, True)


# Shares and use, the parts of a priority, and planned nodes, as Slurm's commands print them; and what they come to.


# As 24.11.5 and 26.05.5 print them.
SHARES = "physics||0.500000|0.983524|\n physics|alice|0.500000|0.023096|0.333333\n"
PARTS = "7|8328|0|0|3333|0|5000|0||0|5\n8|1|1|1|1|1|1|1||1|1\n"
DBD = Site(settings={"AccountingStorageType": "accounting_storage/slurmdbd"})
T0 = 1_000_000.0


class Slurm:
    """Commands that print what they are given."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def run(self, program: str, *words: str) -> str:
        if program not in self.texts:
            raise SlurmError(f"{program}: away")
        mark = words[-1].rpartition(":0")[2]
        return self.texts[program].replace("@", mark)


def at(*rows: dict, **more: object) -> Snapshot:
    made = [{"job_id": 7, "gpus": 4, "user": "alice", "account": "physics", "eligible_s": 0.0, **row} for row in rows]
    return replace(snapshot(made, "4x8", now_s=T0, site=DBD), **more)


def with_planned(look: Snapshot, name: str) -> Snapshot:
    planned = np.where(look.nodes.name.isin([name]), int(NodeState.PLANNED), 0)
    return replace(look, nodes=look.nodes.with_columns(state=look.nodes.state | planned))


def test_shares__are_of_the_account_and_the_user() -> None:
    """Others' rows, and what Slurm hides, are left out."""
    slurm = Slurm(sshare=f"{SHARES} physics|bob|0.5|0.9|0.1\n biology|alice|0.5|0.9|0.1\n")
    account, user = read_shares(slurm, "physics", "alice")  # type: ignore[arg-type]
    assert (account.account, account.user, account.use, isnan(account.fair_share)) == ("physics", "", 0.983524, True)
    assert user == ShareAndUse("physics", "alice", 0.5, 0.023096, 0.333333)
    assert read_shares(Slurm(sshare=""), "physics", "alice") == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(("state", "begun"), [("PENDING", ["sprio", "sshare"]), ("RUNNING", [])])
def test_begin_standing__begins_what_is_asked_of_a_waiting_job(state: str, begun: list[str]) -> None:
    """In the same words, or `run` would ask twice."""
    slurm, words = Slurm(sshare=SHARES, sprio=PARTS), {"begin": list[tuple[str, ...]](), "run": list[tuple[str, ...]]()}
    for name, noted in words.items():
        setattr(slurm, name, lambda *asked, noted=noted: noted.append(asked) or "")
    look = at({"state": state})
    begin_standing(slurm, look, 0)  # type: ignore[arg-type]
    read_standing(slurm, look, 0, JobDetails())  # type: ignore[arg-type]
    assert sorted(words["begin"]) == sorted(words["run"])
    assert sorted(asked[0] for asked in words["begin"]) == begun


def test_priority_parts__are_those_of_the_job() -> None:
    """TRES points count together; of several partitions the one with the most counts."""
    asked = ["age", "assoc", "fairshare", "jobsize", "partition", "qos", "tres", "site", "nice"]
    found = read_priority_parts(Slurm(sprio=PARTS), 7)  # type: ignore[arg-type]
    assert found == {"priority": 8328} | dict(zip(asked, (0, 0, 3333, 0, 5000, 0, 0, 0, 5), strict=True))
    two = Slurm(sprio=f"{PARTS}7|9000|0|0|0|0|0|0|cpu=10,gres/gpu=90|-3|0\n")
    assert (read_priority_parts(two, 7)["tres"], read_priority_parts(two, 7)["site"]) == (100, -3)  # type: ignore[arg-type]
    assert read_priority_parts(Slurm(sprio=""), 7) == {}  # type: ignore[arg-type]


def test_planned__are_jobs_with_nodes() -> None:
    """A name with any character ends with its field alone."""
    text = "31|1001800|n[1-2]|dave@32|1001800|(null)|al@\n33|N/A|n3|e|v\ne@"
    first, second = read_planned(Slurm(squeue=text))  # type: ignore[arg-type]
    assert first == PlannedStart(31, "dave", "n[1-2]", 1_001_800.0)
    assert (second.user, second.nodes, isnan(second.start_s)) == ("e|v\ne", "n3", True)


def test_standing__names_what_cannot_be_read() -> None:
    """The rest is there; of a running job, and without slurmdbd, less is asked for."""
    look = with_planned(at({"partition": "gpu"}), "n3")
    found = read_standing(Slurm(sprio=PARTS), look, 0, JobDetails())  # type: ignore[arg-type]
    assert (found.priority_parts["fairshare"], found.shares) == (3333, ())
    assert found.unread == ("shares: sshare: away", "nodes that Slurm has planned: squeue: away")
    assert found.planned is None
    runs = at({"state": int(JobState.RUNNING)})
    assert read_standing(Slurm(), runs, 0, JobDetails()).unread == ()  # type: ignore[arg-type]
    assert len(read_standing(Slurm(), replace(look, site=Site()), 0, JobDetails()).unread) == 2  # type: ignore[arg-type]


def test_standing__asks_for_planned_nodes_only_where_the_job_has_some() -> None:
    """Nodes of other partitions do not count; the whole queue is not read for nothing."""
    slurm = Slurm(sprio=PARTS, sshare=SHARES)  # type: ignore[arg-type]
    for look in (at({"partition": "gpu"}), with_planned(at({"partition": "cpu"}), "n3")):
        found = read_standing(slurm, look, 0, JobDetails())  # type: ignore[arg-type]
        assert (found.planned, found.unread) == ((), ())


SUM = "9,330 = fair share 3,333 + partition 5,000 + nice 997"
KNOWN = JobDetails(priority_parts={"priority": 9330, "fairshare": 3333, "partition": 5000, "site": 0, "nice": -997})


def planned(wanted: int) -> Plan:
    return Plan(wanted_values=frozen([wanted], np.int64), managed=frozen([True], np.bool_))


@pytest.mark.parametrize(
    ("lever", "job", "plan", "now", "wanted", "text"),
    [("nice", {"nice": -997, "base_nice": 5, "written": True}, planned(-1500), 1002, 1505,
      f"{SUM}; the policy adds 1,002 of it, and 1,505 after the next cycle"),
     ("nice", {"nice": -997, "base_nice": 5, "written": True}, planned(-997), 1002, 1002,
      f"{SUM}; the policy adds 1,002 of it"),
     ("nice", {"nice": -997}, Plan(), 997, None,
      f"{SUM}; slurmsched added 997 of it"),
     ("nice", {"nice": 40}, Plan(), 0, None, SUM),
     ("nice", {"nice": -997}, None, None, None, SUM),
     ("site_factor", {"site_factor": 30, "written": True}, planned(70), 30, 70,
      f"{SUM}; the policy adds 30 of it, and 70 after the next cycle")],
)  # fmt: skip
def test_priority_parts__say_what_the_policy_adds(lever, job, plan, now, wanted, text) -> None:
    """By the lever; a positive nice that nobody has on record may be the user's."""
    found = priority_parts(at(job), plan, 0, KNOWN, lever)
    assert (found.by_slurmsched, found.wanted, found.text) == (now, wanted, text)
    assert priority_parts(at(job), plan, 0, JobDetails(), lever) is None


def test_tier__has_values_and_what_decides() -> None:
    """Without tiers there is none."""
    found = tier_place({"qos_priority": 100.0, "fair_share_band": 2.0, "run_s": 3.0, "decided_by": "fair_share"})
    assert (dict(found.values), found.decided_by) == ({"qos": 100.0, "fair_share": 2.0}, "fair_share")
    assert found.text == "qos priority 100, fair share band 2; tier fair_share puts it behind the job before it"
    assert tier_place({"run_s": 3.0}) is None


def test_share_lines__have_use_of_now_and_before() -> None:
    """GPUs of all jobs that Slurm shows, arrays with all their tasks."""
    look = at({}, {"job_id": 8, "user": "bob", "state": int(JobState.RUNNING)}, {"job_id": 9, "array_tasks": 3},
              {"job_id": 10, "account": "biology"})  # fmt: skip
    shares = read_shares(Slurm(sshare=SHARES), "physics", "alice")  # type: ignore[arg-type]
    assert share_lines(shares, gpu_use(look, 0)) == (
        "account physics: entitled to 50.0%, has used 98.4%; 4 GPUs allocated, 16 waited for",
        "user alice: entitled to 50.0%, has used 2.3%; fair-share factor 0.33; 0 GPUs allocated, 16 waited for",
    )
    assert share_lines((), gpu_use(look, 3))[0] == "account biology: 0 GPUs allocated, 4 waited for"


def reserved(*rows: dict) -> Reservations:
    return Reservations.build(len(rows), {name: [row.get(name, "") for row in rows]
                                          for name in ("name", "node_list", "users", "accounts", "flags")}
                              | {name: [row[name] for row in rows] for name in ("start_s", "end_s")})  # fmt: skip


def test_kept__is_reserved_or_planned_for_somebody() -> None:
    """For whom, until when, and GPU hours; what is over, or the job's own, is not kept from it."""
    look = at({"partition": "gpu"}, {"job_id": 8, "partition": "gpu"})
    table = reserved(
        {"name": "slurmsched-1a2b3c-28-99", "node_list": "n1", "users": "bob", "start_s": T0 - 9, "end_s": T0 + 3600},
        {"name": "maint", "node_list": "n[2,1]", "flags": "MAINT,X", "start_s": T0 + 7200, "end_s": T0 + 10800},
        {"name": "over", "node_list": "n2", "start_s": T0 - 9, "end_s": T0 - 1},
        {"name": "z\x1b", "node_list": "n2", "accounts": "ml\n", "start_s": T0 - 9, "end_s": T0 + 7200},
    )
    plans = (PlannedStart(8, "bob", "n4", T0 + 1800), PlannedStart(7, "alice", "n3", T0 + 60))
    details = JobDetails(reservations=table, planned=plans)
    found = kept_nodes(look, 0, details)
    assert [(one.how, one.whom, one.nodes, one.idle_gpus, one.gpu_h) for one in found] == [
        ("planned", "job 8 of bob", "n4", 8, 4.0),
        ("reserved", "job 28 of bob", "n1", 8, 8.0),
        ("reserved", "account ml\\n", "n2", 8, 16.0),
        ("reserved", "maintenance", "n[1-2]", 16, 16.0),
    ]
    assert found[1].text.endswith(": 8 idle GPUs, 8.0 GPU h (reservation slurmsched-1a2b3c-28-99)")
    assert "\x1b" not in found[2].text
    assert idle_line(look, 0, details, found) == (
        "8 GPUs are idle on nodes that are kept for no job, 24 on nodes that are reserved or planned"
    )
    own = at({"partition": "gpu", "reservation": "maint"})
    assert "maintenance" not in [one.whom for one in kept_nodes(own, 0, details)]


def test_kept__a_planned_node_of_a_hidden_job_is_told_too() -> None:
    """Slurm shows the state of the node, and not the job."""
    look = with_planned(at({"partition": "gpu"}), "n3")
    (one,) = kept_nodes(look, 0, JobDetails(planned=()))
    assert (one.whom, one.nodes, isnan(one.gpu_h)) == ("a job that Slurm does not show", "n3", True)
    (one,) = kept_nodes(look, 0, JobDetails())
    assert one.whom == "a job (which one was not read)"


@pytest.mark.parametrize("name", ["slurmsched-28-99", "slurmsched-1a2b3c-28-99"])
def test_kept__names_the_job_of_a_reservation_of_slurmsched(name: str) -> None:
    """With and without the tag of the site."""
    table = reserved({"name": name, "node_list": "n1", "start_s": T0 - 9, "end_s": T0 + 3600})
    (one,) = kept_nodes(at({"partition": "gpu"}), 0, JobDetails(reservations=table))
    assert one.whom == "job 28"


def test_explanation__has_them_all_for_a_job_that_waits() -> None:
    """And none for one that runs."""
    details = replace(
        KNOWN, planned=(PlannedStart(8, "bob", "n4", T0 + 1800),), shares=(ShareAndUse("p", "", 1, 1, 1),)
    )
    found = explain(at({"partition": "gpu"}), None, 0, details, lever="site_factor")
    assert (found.priority.priority, len(found.kept), len(found.use), len(found.shares)) == (9330, 1, 2, 1)
    runs = explain(at({"partition": "gpu", "state": int(JobState.RUNNING)}), None, 0, JobDetails())
    assert (runs.priority, runs.kept, runs.use, runs.idle, runs.tier) == (None, (), (), "", None)
