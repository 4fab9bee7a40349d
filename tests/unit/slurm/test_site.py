"""Settings, rights and load."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model import Rights
from slurmsched.slurm import site
from slurmsched.slurm.site import (
    GpuPartition,
    SdiagLoad,
    ask_rights,
    collect_settings,
    discover_site,
    gpu_partitions,
    make_site,
    own_name,
    parse_load,
    parse_settings,
    read_load,
    read_rights,
    read_site,
)
from tests.recorded.playback import HERE, Answer, recorded_versions

BY_DBD = {"SlurmUser": "slurm(64030)", "AccountingStorageType": "accounting_storage/slurmdbd"}


class Answers:
    """Commands with fixed answers by program; an error is raised."""

    def __init__(self, **answers: str | Exception) -> None:
        self.answers = answers

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        answer = self.answers[program]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def start(self, program: str, *arguments: str) -> Answer:
        return Answer(self.run(program, *arguments))


@pytest.fixture
def plain_user(monkeypatch):
    monkeypatch.setattr(site.os, "geteuid", lambda: 1005)
    monkeypatch.setattr(site, "own_name", lambda: "slurmsched")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Operator\n", Rights.OPERATOR), ("Administrator\n", Rights.ADMINISTRATOR), ("None\n", Rights.USER),
        ("", Rights.USER), (SlurmError("slurmdbd is away"), Rights.USER),
    ],
)  # fmt: skip
def test_read_rights__asks_slurmdbd(plain_user, answer, expected):
    """The admin level of our own user; one slurmdbd does not know or that cannot be asked is a plain user."""
    assert read_rights(Answers(scontrol=SlurmError("no such thing"), sacctmgr=answer), BY_DBD) == expected


def test_ask_rights__tells_no_answer_from_no_rights(plain_user):
    """Who is in no account has none; where neither daemon answers nobody knows."""
    away = SlurmError("away")
    assert ask_rights(Answers(scontrol="", sacctmgr=""), BY_DBD) == Rights.USER
    assert ask_rights(Answers(scontrol=away, sacctmgr=away), BY_DBD) is None
    assert read_rights(Answers(scontrol=away, sacctmgr=away), BY_DBD) == Rights.USER


def test_read_rights__slurmctld_knows_while_slurmdbd_is_down(plain_user):
    """slurmctld keeps a copy of the accounts; only the line of our own user counts."""
    users = (
        "UserName=slurm(2) AdminLevel=None\nUserName=slurmsched(1005) DefAccount=root DefWckey= AdminLevel=Operator\n"
    )
    answers = Answers(scontrol=users, sacctmgr=SlurmError("slurmdbd is away"))
    assert read_rights(answers, BY_DBD) == Rights.OPERATOR


def test_read_rights__without_slurmdbd(plain_user):
    """Admin levels live in slurmdbd: without it a plain user has none, and nothing is asked."""
    assert read_rights(Answers(), {"AccountingStorageType": "(null)"}) == Rights.USER


def test_read_rights__of_slurm_user_and_root(plain_user, monkeypatch):
    """SlurmUser and root may do everything, with slurmdbd or without."""
    assert read_rights(Answers(), {"SlurmUser": "slurmsched(1005)"}) == Rights.ADMINISTRATOR
    monkeypatch.setattr(site.os, "geteuid", lambda: 0)
    assert read_rights(Answers(), {}) == Rights.ADMINISTRATOR


def test_own_name__of_a_user_without_account(monkeypatch):
    """A uid that no passwd entry names is its number."""
    monkeypatch.setattr(site.os, "geteuid", lambda: 3_999_999_999)
    assert own_name() == "3999999999"


@pytest.mark.parametrize("version", recorded_versions())
def test_read_site__of_the_labs(version):
    """Keys with blanks around them, values with "=" in them."""
    found = read_site(Answers(scontrol=(HERE / version / "config.txt").read_text(), sacctmgr="None"))
    assert (found.version, found.cluster, found.settings["SlurmUser"]) == (version, "lab", "slurm(64030)")
    assert (
        "bf_continue" in found.settings["SchedulerParameters"]
        and "bf_interval=5" in found.settings["SchedulerParameters"]
    )


def test_collect_settings__hold_though_the_ping_behind_them_is_refused():
    """As `scontrol show config` ends on 26.05.5 where the rate limiter lets its ping not through."""
    told = "SLURM_VERSION           = 26.05.5\nClusterName             = lab\n\nSlurmctld(primary) at lab is DOWN\n"
    assert collect_settings(Answer(told, status=1))["ClusterName"] == "lab"


def test_collect_settings__of_no_answer():
    """Nothing but the ping's line, a reason, or a scontrol that was killed half way: these are not all settings."""
    with pytest.raises(SlurmError):
        collect_settings(Answer("SLURM_VERSION = 26.05.5\n", status=-9))
    with pytest.raises(SlurmError, match="at lab is DOWN"):
        collect_settings(Answer("Slurmctld(primary) at lab is DOWN\n", status=1))
    with pytest.raises(SlurmUnreachableError, match="is slurmctld up"):
        collect_settings(Answer("", 1, "slurm_load_ctl_conf error: Unable to contact slurm controller\n"))


def test_make_site__refuses_other_text():
    """Without a version it was not Slurm that answered."""
    with pytest.raises(UnreadableError, match="SLURM_VERSION"):
        make_site(parse_settings("a = b\n"), Rights.USER)


def test_parse_load__of_17():
    """The same words come again in later sections; the first ones are the server's."""
    assert parse_load((HERE / "public" / "sdiag-17.txt").read_text()) == SdiagLoad(
        threads=3, dbd_queue=0, agent_queue=0
    )


@pytest.mark.parametrize("version", recorded_versions())
def test_read_load__of_the_labs(version):
    """Both labs were idle."""
    load = read_load(Answers(sdiag=Path(HERE / version / "sdiag.txt").read_text()))
    assert load.threads >= 1 and load.dbd_queue >= 0


def test_parse_load__refuses_other_text():
    """An answer that tells no threads must not read as an idle server."""
    with pytest.raises(UnreadableError):
        parse_load("Jobs submitted: 9706\n")


# What `slurmsched init` reads of a site.


SINFO = """cpu|100|(null)
gpu|4|gpu:a100:8(S:0-1)
gpu|2|gpu:h100:4,gpu:a100:2,nic:1
small|3|gpu:2
mig|1|gpu:1g.10gb:7(S:0),gpu:a100:1
fpga|2|fpga:gpu:1
odd|2|gpu:(nul):8
"""


def test_gpu_partitions__counts_gpus_of_every_kind_of_node() -> None:
    """Most GPUs first; types by name; MIG devices apart; without GPUs a partition is left out."""
    assert gpu_partitions(SINFO) == (
        GpuPartition("gpu", 6, 44, ("a100", "h100")),
        GpuPartition("small", 3, 6),
        GpuPartition("mig", 1, 1, ("1g.10gb", "a100"), mig=7),
        GpuPartition("odd", 0, 0, unread=2),
    )
    assert gpu_partitions("") == ()


class DiscoveryAnswers:
    def start(self, program: str, *arguments: str) -> Answer:
        return Answer(self.run(program, *arguments))

    def run(self, program: str, *arguments: str) -> str:
        lines = {"SLURM_VERSION": "26.05.5", "ClusterName": "c", "SlurmUser": "slurm(64030)",
                 "PriorityType": "priority/basic", "AccountingStorageType": "(null)"}  # fmt: skip
        return SINFO if program == "sinfo" else "".join(f"{key} = {text}\n" for key, text in lines.items())


def test_first_look__tells_the_settings_that_matter() -> None:
    """As `scontrol show config` prints them."""
    found = discover_site(DiscoveryAnswers())  # type: ignore[arg-type]
    assert (found.version, found.cluster, found.slurm_user) == ("26.05.5", "c", "slurm")
    assert (found.multifactor, found.slurmdbd, len(found.partitions)) == (False, False, 4)
