"""The rights probe: asks, or tries with a job of its own that never stays."""

from __future__ import annotations

import pytest

from slurmsched.errors import SlurmError
from slurmsched.model import Rights, Site
from slurmsched.slurm.doctor.site_checks import (
    check_rights,
    gres_conf_text,
    probe_job,
    read_job_submit,
    read_qos_thresholds,
)

ACCOUNTED = {"AccountingStorageType": "accounting_storage/slurmdbd"}


class Slurm:
    """Commands over one job; refuses the words given."""

    def __init__(self, *refused: str, prints: str = "") -> None:
        self.refused, self.prints = refused, prints
        self.calls: list[tuple[str, ...]] = []
        self.shown = {"%y": "0", "%k": "(null)"}

    def run(self, *words: str) -> str:
        self.calls.append(words)
        for word in self.refused:
            if word in words:
                raise SlurmError(f"{words[0]}: Access/permission denied for job 42")
        if words[0] == "sbatch":
            return "42;cluster\n"
        for field, code in (("Nice=", "%y"), ("Comment=", "%k")):
            if words[-1].startswith(field):
                self.shown[code] = words[-1].removeprefix(field)
        return self.shown.get(words[-1], self.prints)


def site(rights: Rights = Rights.OPERATOR, **settings: str) -> Site:
    return Site("lab", "26.05.5", rights, "slurmsched", ACCOUNTED | settings)


def verdicts(findings) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in findings}


def test_probe_rights__submits_and_changes_nothing():
    """Only commands that read."""
    slurm = Slurm()
    assert set(verdicts(check_rights(slurm, site())).values()) == {"ok"}
    assert {call[0] for call in slurm.calls} == {"squeue", "sprio", "sdiag", "sacct"}


def test_probe_rights__names_what_cannot_be_read_or_written():
    """Each failure on its own, with Slurm's words or the command that helps."""
    findings = check_rights(Slurm("sdiag"), site(Rights.USER))
    assert verdicts(findings)["read slurmctld's load"] == "fail"
    assert findings[-1].verdict == "fail"
    assert findings[-1].detail == "slurmsched is User"
    assert findings[-1].remedy.startswith("sacctmgr add user slurmsched account=root adminlevel=Operator")


def test_probe_rights__without_an_answer_of_sacct_slurmsched_goes_on():
    """slurmdbd away is worse, not the end: earlier runs are asked for again later."""
    assert verdicts(check_rights(Slurm("sacct"), site()))["read earlier runs"] == "warn"


def test_probe_rights__without_slurmdbd():
    """sacct is not asked, and Operator cannot be given."""
    slurm = Slurm()
    findings = check_rights(slurm, site(Rights.USER, AccountingStorageType="(null)"))
    assert "sacct" not in {call[0] for call in slurm.calls}
    assert "only SlurmUser and root" in findings[-1].remedy


def test_probe_job__held_written_read_back_and_cancelled():
    """The job is held from the start, and cancelled at the end."""
    slurm = Slurm()
    assert set(verdicts(probe_job(slurm, ("-p", "short"))).values()) == {"ok"}
    assert "-H" in slurm.calls[0]
    assert "short" in slurm.calls[0]
    assert ("scontrol", "update", "JobId=42", "Nice=-1") in slurm.calls
    assert slurm.shown["%k"] == ""
    assert slurm.calls[-1] == ("scancel", "42")


@pytest.mark.parametrize("refused", ["Nice=-1", "SiteFactor=1", "Comment=slurmsched", "%y"])
def test_probe_job__is_cancelled_whatever_fails(refused):
    """One probe that fails stops neither the others nor the cancelling."""
    slurm = Slurm(refused)
    assert "fail" in verdicts(probe_job(slurm)).values()
    assert verdicts(probe_job(slurm))["probe: cancel"] == "ok"
    assert slurm.calls[-1] == ("scancel", "42")


def test_probe_job__value_that_a_plugin_changed_is_a_failure():
    """Accepted is not enough: the value has to be there."""
    slurm = Slurm()
    slurm.run = lambda *words: "42" if words[0] == "sbatch" else "7"
    assert verdicts(probe_job(slurm))["probe: nice reads back"] == "fail"


def test_probe_job__unreadable_answer_of_sbatch_is_a_failure():
    """scontrol would take an empty job id without a word."""
    slurm = Slurm()
    slurm.run = lambda *words: slurm.calls.append(words) or ""
    assert verdicts(probe_job(slurm)) == {"probe: submit": "fail"}
    assert [call[0] for call in slurm.calls] == ["sbatch"]


def test_probe_job__without_a_job_is_one_failure():
    """Nothing else can be tried, nothing has to be cancelled."""
    slurm = Slurm("sbatch")
    assert verdicts(probe_job(slurm)) == {"probe: submit": "fail"}
    assert len(slurm.calls) == 1


def test_read_gres_conf__beside_slurm_conf(tmp_path):
    """None where it cannot be read, which is not the same as empty."""
    where = site(SLURM_CONF=str(tmp_path / "slurm.conf"))
    assert gres_conf_text(where) is None
    (tmp_path / "gres.conf").write_text("Name=gpu\n")
    assert gres_conf_text(where) == "Name=gpu\n"
    assert gres_conf_text(site()) is None


def test_read_job_submit__ours_and_the_sites(tmp_path):
    """Beside slurm.conf, as far as they are there; one that is not for us to read is told apart from none."""
    where = site(SLURM_CONF=str(tmp_path / "slurm.conf"))
    assert read_job_submit(where) == read_job_submit(site()) == ()
    (tmp_path / "job_submit.lua").write_text("-- ours\n")
    assert read_job_submit(where) == ("-- ours\n",)
    (tmp_path / "job_submit_site.lua").mkdir()
    (tmp_path / "job_submit.lua").rename(tmp_path / "other.lua")
    assert read_job_submit(where) == ()  # nobody calls the site's
    (tmp_path / "other.lua").rename(tmp_path / "job_submit.lua")
    assert read_job_submit(where) == ("-- ours\n", "")


def test_read_qos_thresholds__only_those_set():
    """Versions that do not know the field, and sites without slurmdbd, have none."""
    assert read_qos_thresholds(Slurm(prints="normal|\nhigh|500\nlow|0\n"), site()) == {"high": 500}
    assert read_qos_thresholds(Slurm("sacctmgr"), site()) == {}
    assert read_qos_thresholds(Slurm(prints="high|500\n"), site(AccountingStorageType="(null)")) == {}
