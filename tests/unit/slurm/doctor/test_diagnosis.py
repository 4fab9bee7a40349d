"""The doctor as a whole: who asks decides what is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.errors import SlurmUnreachableError
from slurmsched.model import Rights, Site
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.doctor import CheckResult, diagnosis

RIGHTS = CheckResult("admin level", "fail", "x is User", "", "sacctmgr add user x account=root adminlevel=Operator")
BROKEN = CheckResult("bf_continue", "fail", "no parameters", "", "SchedulerParameters=bf_continue")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(diagnosis, "_of_slurm", lambda *_: (RIGHTS, BROKEN))
    monkeypatch.setattr(diagnosis, "check_clock_offset", lambda *_: CheckResult("clock", "ok", "+0 s"))
    ledger = {"url": f"sqlite:///{tmp_path}/l.db", "journal": f"{tmp_path}/j", "lock": f"{tmp_path}/lock"}
    return parse_config({"ledger": ledger, "slurm": {"bin_dir": str(tmp_path)}})


@pytest.mark.parametrize(
    ("me", "expected"),
    [
        ("slurmsched", RIGHTS),
        ("alice", CheckResult("admin level", "warn", "x is User", "",
                          "nothing, if you only look; run doctor as slurmsched")),
    ],
)  # fmt: skip
def test_findings__rights_are_asked_of_the_service_user_only(
    config: Config, monkeypatch: pytest.MonkeyPatch, me: str, expected: CheckResult
) -> None:
    """Nobody becomes Operator for having looked; the site's own failures stay."""
    monkeypatch.setattr(diagnosis, "own_name", lambda: me)
    monkeypatch.setattr(diagnosis, "service_user", lambda _: "slurmsched")
    assert diagnosis.diagnose(config)[1:3] == (expected, BROKEN)


def test_findings__queue_that_cannot_be_read_is_one_failure(config: Config) -> None:
    """The others are told all the same."""
    found = {finding.name: finding for finding in diagnosis.diagnose(config)}
    assert found["whole snapshot"].verdict == "fail"
    assert {"bf_continue", "clock", "ledger", "journal", "lock", "stop file", "configuration file"} <= set(found)


def test_findings__slurm_that_does_not_answer_ends_it(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to judge."""
    monkeypatch.undo()
    with pytest.raises(SlurmUnreachableError):
        diagnosis.diagnose(config)


@pytest.mark.parametrize(
    ("policy", "verdict", "text"),
    [
        ({"name": "srsf"}, "ok", "srsf, "),
        ({"name": "sfsr"}, "fail", "srsf"),
        ({"name": "las", "quantum": 3}, "fail", "quantum"),
        ({"name": "srsf", "estimator": "histroy"}, "fail", "history"),
    ],
)
def test_findings__of_the_plugins(config: Config, policy: dict[str, object], verdict: str, text: str) -> None:
    """A name or parameter that no cycle could begin with, with the nearest that there is."""
    tree = config.model_copy(update={"policy": parse_config({"policy": policy}).policy})
    found = diagnosis.diagnose(tree)[0]
    assert (found.name, found.verdict) == ("plug-ins", verdict)
    assert text in found.detail


def test_findings__what_is_configured_reaches_the_checks(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preemption on: each setting that only preemption needs is judged; node lists on: shrinking is."""
    monkeypatch.undo()
    settings = {"JobRequeue": "0", "KillWait": "5 sec", "PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    monkeypatch.setattr(
        diagnosis, "read_site", lambda _: Site("lab", "25.11.2", Rights.OPERATOR, "slurmsched", settings)
    )
    monkeypatch.setattr(diagnosis, "check_rights", lambda *_: ())
    names = ["JobRequeue", "KillWait", "PreemptType", "disable_job_shrink", "requeue delay"]

    def bad(**sections: object) -> list[str]:
        tree = config.model_copy(update={name: getattr(parse_config({name: value}), name)
                                         for name, value in sections.items()})  # fmt: skip
        found = diagnosis._of_slurm(tree, Commands())
        return sorted(finding.name for finding in found if finding.name in names and not finding.ok)

    assert bad() == []
    assert bad(preemption={"enabled": True}) == names
    assert bad(placement={"pin": "hints"}) == ["disable_job_shrink"]


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([], [("warn", "PriorityWeightQOS=9000 (90% of all weights) no longer counts"),
              ("warn", "PriorityWeightAge=1000 (10% of all weights) no longer counts")]),
        (["qos"], [("warn", "PriorityWeightAge=1000 (10% of all weights) no longer counts")]),
        (["qos", "priority:1000"], [("ok", "qos, priority:1000")]),
    ],
)  # fmt: skip
def test_kept_weights__each_weight_that_stops_counting_is_a_finding(
    tiers: list[str], expected: list[tuple[str, str]]
) -> None:
    """By name and share."""
    site = Site(settings={"PriorityWeightQOS": "9000", "PriorityWeightAge": "1000"})
    found = diagnosis.kept_weights(parse_config({"policy": {"tiers": tiers}}), site)
    assert [(each.verdict, each.detail.partition(":")[0] if each.verdict == "warn" else each.detail)
            for each in found] == expected  # fmt: skip
