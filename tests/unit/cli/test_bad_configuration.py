"""A bad configuration is reported before anything is asked of Slurm, whatever the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ASKING = (
    ("tick",), ("tick", "--dry-run"), ("plan",), ("queue",), ("status",), ("explain", "11"), ("gpus",), ("fit",),
    ("advise",), ("report",), ("power", "advise"), ("snapshot", "save", "FILE"), ("daemon",),
)  # fmt: skip


@pytest.fixture
def asked(site: Path) -> Path:
    """A folder whose commands leave a file when one of them is started, as slurm.bin_dir."""
    folder = site.parent / "bin"
    folder.mkdir()
    started = site.parent / "started"
    for name in ("squeue", "sinfo", "scontrol", "sacct", "sacctmgr", "sdiag", "sprio", "sshare"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
        (folder / name).chmod(0o755)
    text = site.read_text().replace('[policy]\nname = "discretized-las"\nthresholds_gpu_s = [3600.0]\n', "")
    site.write_text(f'policy = {{ name = "las", quantum = 3 }}\n{text}[slurm]\nadapter = "cli"\nbin_dir = "{folder}"\n')
    return started


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_command__reports_a_bad_policy_before_it_asks_slurm(run, site, asked, command):
    """Exit code 2, with file, key and parameter; no command of Slurm was started."""
    answer = run(*(str(site.parent / "saved.json") if word == "FILE" else word for word in command))
    assert (answer.code, asked.exists()) == (2, False)
    assert f"{site}: policy: las has no parameter 'quantum'" in answer.err


def test_command__asks_slurm_with_a_good_policy(run, site, asked):
    """The check above looks at the right thing."""
    site.write_text(site.read_text().replace("quantum = 3", "").replace('"las", ', '"las"'))
    assert run("queue").code == 3
    assert asked.exists()


def test_undo__works_with_a_bad_policy(run, site, asked):
    """Nothing may keep values from being given back: it asks Slurm."""
    run("undo")
    assert asked.exists()


def test_check__lists_all_faults_at_once(run, site):
    """Of the file and of the plug-ins, each with file and key; then exit code 2."""
    text = site.read_text().replace("thresholds_gpu_s = [3600.0]", "threshold = 1\nquantum = 2")
    site.write_text(f"{text}[cycle2]\n[lever]\nflor = 3\nkind = 'prio'\n[placement]\nname = 'linkd'\n")
    answer = run("config", "check")
    assert answer.code == 2
    assert [line.removeprefix(f"slurmsched: {site}: ").partition(": ")[0] for line in answer.err.splitlines()] == [
        "lever.kind", "lever.flor", "cycle2", "policy", "placement",
    ]  # fmt: skip
    told = json.loads(run("config", "check", "--json").out)
    assert told["ok"] is False
    assert [(row["key"], row["source"]) for row in told["faults"]][-1] == ("placement", str(site))
    assert "'threshold'" in answer.err and "'quantum'" in answer.err
