"""Twin fidelity under limits on what was used: whom Slurm holds back, until when, and whom it ends, and the model.

    python3 tests/lab/lab.py exec --name NAME -- python -m pytest -m live tests/live/test_twin_limits.py -s

prints the rows of docs/fidelity.md. A case takes a minute and a half; what ran is kept in /var/tmp/twin of the lab.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.live.lab import run
from tests.live.test_twin import KEPT
from tests.twin.fidelity import compare, same_end
from tests.twin.limits import ACCOUNT, CONF, ENFORCE, NEVER, PART_QOS, limits_of, workload
from tests.twin.recorder import Recorder
from tests.twin.recording import replayed

pytestmark = [pytest.mark.live, pytest.mark.newest, pytest.mark.timeout(600)]
SACCTMGR = ("sacctmgr", "-iQ")


@pytest.fixture
def limited(fresh: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """The limits of a case, nothing used yet, and a log that tells when usage is counted."""
    of_account, of_qos = limits_of(request.param)
    for key, value in (("Epilog", "/bin/true"), ("SlurmctldDebug", "debug2"), *CONF.items()):
        run("labctl", "conf", key, value)
    run("labctl", "conf", "AccountingStorageEnforce", ENFORCE[request.param])
    for name, limits in of_qos.items():
        run(*SACCTMGR, "add", "qos", name, check=False)
        change("qos", name, limits)
    run(*SACCTMGR, "modify", "account", "root", "set", f"qos+={','.join(of_qos)}", "where", "cluster=lab")
    run(*SACCTMGR, "add", "account", ACCOUNT, "parent=root", check=False)
    run(*SACCTMGR, "add", "user", "alice", f"account={ACCOUNT}", check=False)
    change("account", ACCOUNT, of_account)
    run("labctl", "restart", "slurmctld", "slurmd")
    run("labctl", "wait-ready")
    run("scontrol", "update", "partitionname=short", f"qos={PART_QOS}")
    yield request.param
    run("scontrol", "update", "partitionname=short", "qos=")
    for name in of_qos:
        run(*SACCTMGR, "delete", "qos", name, check=False)
    run(*SACCTMGR, "delete", "account", ACCOUNT, check=False)


def change(kind: str, name: str, limits: Mapping[str, str]) -> None:
    """Its limits, and nothing used yet: with RawUsage among them sacctmgr passes over the others."""
    run(*SACCTMGR, "modify", kind, name, "set", *map("=".join, limits.items()))
    run(*SACCTMGR, "modify", kind, name, "set", "RawUsage=0")


@pytest.mark.parametrize("limited", ENFORCE, indirect=True)
def test_twin__holds_back_and_ends_whom_slurm_does(limited: str) -> None:
    """GrpTRESMins, GrpTRESRunMins, GrpWall, MaxTRESMins and the QOS of a partition; with `safe` and without."""
    recorder = Recorder(workload())
    recorder.play()
    recording = recorder.recording(limited=True)
    KEPT.mkdir(exist_ok=True)
    recording.write(KEPT / f"{recording.version}-{limited}.json.gz")
    model = replayed(recording)
    seen = compare(recording, model)
    print(f"\n| {recording.version} | {limited} | {seen.row}")
    assert seen.jobs >= 20
    assert max(e.start_s - e.submit_s for e in recording.ran if e.start_s) > 5, "nobody was held back"
    assert [e.job_id for e in recording.ran if not e.start_s] == [recorder.ids[NEVER]]
    assert any(each.ended for each in recording.ran) == (limited == "limits")
    assert same_end(recording, model)
    assert seen.same_second == 1.0, seen
