"""What tiers order by, read from sacctmgr and sshare: each only where a tier needs it, kept when nobody answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.errors import SlurmError
from slurmsched.model.snapshot import Site
from slurmsched.slurm.site_priorities import (
    FAIR_SHARE_S,
    PRIORITIES_S,
    RETRY_S,
    LiftedLimits,
    SitePriorities,
    parse_associations,
    parse_fair_share,
    parse_qos,
    parse_qos_flags,
)
from slurmsched.testing import snapshot
from slurmsched.tier_spec import read_tiers

QOS = "normal|0\nlong|10\nurgent|1000\n"
ASSOCIATIONS = """lab|root||
lab|root|root|
lab|physics||5
lab|physics|alice|
lab|physics|bob|7
other|physics|alice|9
"""
FAIR_SHARE = """root||
 root|root|1.000000
 physics||
  physics|alice|0.250000
  physics|alice|0.900000
  physics|bob|nan
  physics|carol|0.500000
"""
SITE = Site(cluster="lab", settings={"AccountingStorageType": "accounting_storage/slurmdbd"})
ROWS = [
    {"user": "alice", "account": "physics", "qos": "urgent"},
    {"user": "bob", "account": "physics", "qos": "normal", "state": "RUNNING"},
    {"user": "zoe", "account": "", "qos": "new"},
]


class Answers:
    """Commands that answer as Slurm does, and count."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.away = False

    def run(self, *command: str) -> str:
        self.asked.append(command[0] if command[0] == "sshare" else command[3])
        if self.away:
            raise SlurmError("nobody answers")
        return {"qos": QOS, "assoc": ASSOCIATIONS, "sshare": FAIR_SHARE}[self.asked[-1]]


def test_parse__gives_priorities_and_factors_by_name():
    """Accounts' own rows, other clusters and what is no number do not count; a user inherits its account's priority."""
    assert parse_qos(QOS, "lab") == {"normal": 0.0, "long": 10.0, "urgent": 1000.0}
    assert parse_associations(ASSOCIATIONS, "lab") == {
        ("root", "root"): 0.0, ("physics", "alice"): 5.0, ("physics", "bob"): 7.0,
    }  # fmt: skip
    assert parse_fair_share(FAIR_SHARE, "lab") == {
        ("root", "root"): 1.0, ("physics", "alice"): 0.25, ("physics", "carol"): 0.5,
    }  # fmt: skip


def test_site_priorities__give_every_job_what_its_owner_has():
    """Running jobs too; NaN where Slurm has nothing."""
    reader = SitePriorities(Answers(), read_tiers(["qos", "account", "fair_share:4"]))
    jobs = reader(snapshot(ROWS, site=SITE)).jobs
    np.testing.assert_array_equal(jobs.qos_priority, [1000, 0, np.nan])
    np.testing.assert_array_equal(jobs.association_priority, [5, 7, np.nan])
    np.testing.assert_array_equal(jobs.fair_share, [0.25, np.nan, np.nan])


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [(["qos"], ["qos"]), (["fair_share:4"], ["sshare"]), (["account"], ["assoc"]), (["partition", "priority:9"], [])],
)
def test_site_priorities__ask_only_for_what_a_tier_needs(tiers, expected):
    """The partition's factor and Slurm's priority are in every snapshot."""
    commands = Answers()
    SitePriorities(commands, read_tiers(tiers))(snapshot(ROWS, site=SITE))
    assert commands.asked == expected


def test_site_priorities__ask_again_when_it_is_time_and_keep_what_they_had():
    """Fair share every minute, QOS every hour; after no answer ten minutes later, with a warning meanwhile."""
    commands, now = Answers(), [0.0]
    reader = SitePriorities(commands, read_tiers(["qos", "fair_share:4"]), lambda: now[0])
    given = snapshot(ROWS, site=SITE)
    reader(given), reader(given)
    assert commands.asked == ["qos", "sshare"]
    commands.away, now[0] = True, FAIR_SHARE_S
    later = reader(given)
    assert later.jobs.fair_share[0] == 0.25
    assert later.warnings == ("policy.tiers: fair-share factors: nobody answers",)
    now[0] = FAIR_SHARE_S + RETRY_S - 1
    assert reader(given).warnings == later.warnings
    assert commands.asked == ["qos", "sshare", "sshare"]
    commands.away, now[0] = False, PRIORITIES_S
    assert reader(given).warnings == ()
    assert commands.asked == ["qos", "sshare", "sshare", "qos", "sshare"]


def test_site_priorities__without_slurmdbd_ask_nobody():
    """There are no associations then."""
    commands = Answers()
    given = replace(snapshot(ROWS), site=Site(settings={"AccountingStorageType": "accounting_storage/none"}))
    assert SitePriorities(commands, read_tiers(["qos"]))(given) is given
    assert commands.asked == []


@pytest.mark.parametrize(("nodes", "time_s", "lifted"), [(2, 60.0, [0, 0]), (9, 60.0, [3, 0]), (2, 7_200.0, [3, 0])])
def test_lifted_limits__are_asked_for_while_a_job_is_beyond_a_limit(
    nodes: int, time_s: float, lifted: list[int]
) -> None:
    """Once an hour; a QOS that is not listed lifts nothing."""
    asked = list[tuple[str, ...]]()

    class Flags:
        def run(self, *command: str) -> str:
            asked.append(command)
            return "normal|DenyOnLimit\nLong|PartitionMaxNodes,PartitionTimeLimit\n"

    rows = [{"qos": "long", "partition": "gpu", "nodes": nodes, "time_limit_s": time_s},
            {"qos": "new", "partition": "gpu", "nodes": 1, "time_limit_s": 60.0}]  # fmt: skip
    given = snapshot(rows, site=SITE, partitions=[{"name": "gpu", "max_nodes": 8.0, "max_time_s": 3_600.0}])
    reader = LiftedLimits(Flags())  # type: ignore[arg-type]
    assert [reader(given).jobs.lifted_limits.tolist() for _ in range(2)] == [lifted] * 2
    assert len(asked) == int(any(lifted))


def test_parse_qos_flags__finds_the_three_in_any_case() -> None:
    """Bits in the order of LIFTING_FLAGS."""
    assert parse_qos_flags("A|partitionminnodes,OverPartQOS\nb|\n") == {"a": 4, "b": 0}
