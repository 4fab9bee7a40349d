"""What the queue tells of the setup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import SlurmError
from slurmsched.model import Nodes, Partitions, SetNice, Snapshot
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.doctor.site_checks import check_clock_offset, check_queue
from slurmsched.testing import snapshot

PARTITIONS = Partitions.build(2, {"name": ["empty", "gpu"], "nodes": [0, 4]})


def config(*partitions: str, kind: str = "nice") -> Config:
    return parse_config({"scope": {"partitions": partitions}, "lever": {"kind": kind}})


def judged(config: Config, *rows: dict[str, object], **changes: object) -> tuple[CheckResult, CheckResult]:
    seen: Snapshot = replace(snapshot(rows), partitions=PARTITIONS, **changes)  # type: ignore[arg-type]
    scope, _, levers = check_queue(config, seen)
    return scope, levers


@pytest.mark.parametrize(
    ("partitions", "verdict", "detail"),
    [
        (("gpu",), "ok", "gpu"),
        (("*",), "ok", "*"),
        ((), "warn", "empty: no job is managed"),
        (("gpu", "gpuu"), "fail", "Slurm has no gpuu"),
        (("gpu", "empty"), "warn", "empty: no nodes"),
    ],
)
def test_queue_findings__of_the_scope(partitions: tuple[str, ...], verdict: str, detail: str) -> None:
    """Each partition is one of Slurm's and has nodes; none at all manages nothing."""
    found, _ = judged(config(*partitions))
    assert (found.verdict, found.detail, bool(found.remedy)) == (verdict, detail, verdict != "ok")


@pytest.mark.parametrize(
    ("row", "kind", "verdict"),
    [
        ({"nice": 999}, "nice", "ok"),
        ({"nice": -1000}, "nice", "warn"),
        ({"nice": 1000}, "nice", "warn"),
        ({"nice": -1000, "written": True}, "nice", "ok"),
        ({"nice": -1000, "state": "RUNNING"}, "nice", "ok"),
        ({"nice": -1000}, "site_factor", "ok"),
        ({"site_factor": 1000}, "site_factor", "warn"),
    ],
)
def test_queue_findings__of_levers_without_record(row: dict[str, object], kind: str, verdict: str) -> None:
    """Another tool may write them; waiting jobs and the configured lever count."""
    assert judged(config("*", kind=kind), row)[1].verdict == verdict


def test_queue_findings__names_a_few_jobs_and_a_ledger_that_was_not_read() -> None:
    """Then everything of ours looks foreign, and the remedy says so."""
    rows = [{"job_id": i, "nice": -5000} for i in range(1, 9)]
    found = judged(config("*"), *rows, warnings=("without memory of earlier cycles: x",))[1]
    assert found.detail.startswith("8 of 8 waiting jobs have 1000 or more")
    assert found.detail.endswith(": 1, 2, 3, 4, 5, ...")
    assert "read the ledger" in found.remedy


@pytest.mark.parametrize(
    ("partitions", "gpu_jobs_only", "gpus", "expected"),
    [
        (["gpu"], True, [8, 8], ("ok", "8 GPUs on 1 node")),
        (["*"], True, [8, 8], ("ok", "16 GPUs on 2 nodes")),
        ([], True, [8, 8], ("ok", "16 GPUs on 2 nodes")),
        (["gpu"], True, [0, 0], ("fail", "none on 2 nodes")),
        (["gpu"], False, [0, 0], ("warn", "none on 2 nodes")),
        (["gpu"], True, [0, 8], ("fail", "none in scope, 8 elsewhere")),
    ],
)
def test_queue_findings__no_gpu_in_scope_is_a_finding(partitions, gpu_jobs_only, gpus, expected):
    """Without GPUs, or with all of them out of scope, there is nothing to order."""
    nodes = Nodes.build(2, {"name": ["n1", "n2"], "partitions": ["gpu,long", "cpu"], "gpus": gpus})
    tree = parse_config({"scope": {"partitions": partitions, "gpu_jobs_only": gpu_jobs_only}})
    found = check_queue(tree, replace(snapshot([]), nodes=nodes, partitions=PARTITIONS))[1]
    assert (found.name, found.verdict, found.detail) == ("GPUs", *expected)
    assert bool(found.remedy) == (expected[0] != "ok")


class Sdiag:
    """Commands that print this, or fail."""

    def __init__(self, text: str | SlurmError) -> None:
        self.text = text

    def run(self, *_: str) -> str:
        if isinstance(self.text, SlurmError):
            raise self.text
        return self.text


@pytest.mark.parametrize(
    ("text", "verdict", "detail"),
    [
        ("****\nsdiag output at Sat Nov 28 03:17:07 2026 (1000)\n", "ok", "+2 s from slurmctld's"),
        ("sdiag output at Sat Nov 28 03:17:07 2026 (1090)\n", "warn", "-88 s from slurmctld's"),
        ("Server thread count: 1\n", "warn", "sdiag does not show slurmctld's time"),
        (SlurmError("sdiag: no answer"), "warn", "sdiag: no answer"),
    ],
)
def test_clock_finding__compares_with_slurmctld(text: str | SlurmError, verdict: str, detail: str) -> None:
    """Run times are our clock minus its times."""
    found = check_clock_offset(Sdiag(text), 1002.0)  # type: ignore[arg-type]
    assert (found.verdict, found.detail, bool(found.remedy)) == (verdict, detail, verdict != "ok")


@pytest.mark.parametrize(("nice", "verdicts"), [(-5000, ["warn"]), (3, [])])
def test_queue_findings__of_a_lever_changed_without_undo(tmp_path: Path, nice: int, verdicts: list[str]) -> None:
    """Jobs lifted by their nice are lifted by the site factor on top; after `undo` there are none."""
    OverrideLog(tmp_path / "journal.jsonl").intend("1", [SetNice(7, 100.0, "", 3, -5000, 3)])
    files = {"journal": f"{tmp_path}/journal.jsonl"}
    tree = parse_config({"scope": {"partitions": ["*"]}, "lever": {"kind": "site_factor"}, "ledger": files})
    seen = replace(snapshot([{"job_id": 7, "submit_s": 100.0, "nice": nice}]), partitions=PARTITIONS)
    found = check_queue(tree, seen)[3:]
    assert [finding.verdict for finding in found] == verdicts
    assert all(finding.detail == "site_factor, but waiting jobs have a nice of ours: 7" for finding in found)
