"""What Slurm is asked about one job: no more than its reason needs; what fails is told, and the rest is read."""

from __future__ import annotations

import math

import pytest

from slurmsched.errors import InputError, SlurmError
from slurmsched.model.job_details import LicensePool
from slurmsched.slurm.job_queries import find_row, read_details
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
