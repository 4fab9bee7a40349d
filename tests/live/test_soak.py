"""Churn for minutes on end: no invariant is ever broken, and nothing of ours is left. `make soak MINUTES=30`."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from tests.live.churn import JOBS, LEFT, NODES, Churn, ElasticChurn
from tests.live.lab import Installed, nices, run, until
from tests.live.more_nodes import more_nodes
from tests.live.operations import clean

pytestmark = [pytest.mark.live, pytest.mark.newest, pytest.mark.timeout(0)]

MINUTES = float(os.environ.get("SOAK_MINUTES", "3"))
SIZE_MINUTES = float(os.environ.get("SOAK_MINUTES", "0.4"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
FIRST = 30  # jobs to begin with: more than there is room for
KEPT = Path("/var/tmp/soak")
PAUSE_S = 0.7  # on average between two events


KEYS = {"preemption__enabled": "true", "preemption__quantum_s": "5", "preemption__restart_cost_s": "0",
        "preemption__least_factor": "0", "operations__lease_s": "10", "operations__per_hour": "1000",
        "operations__per_user_per_hour": "500"}  # fmt: skip
GANGS = {"policy": '{ name = "discretized-las", thresholds_gpu_s = [60.0, 600.0] }', "gangs__reserve": "true",
         "gangs__least_gpus": "16"}  # fmt: skip
SIZES = {"policy": '{ name = "dorm", theta2 = 1.0 }', "lever__size": "true",
         "lever__admin_comment": "false", "lever__share": "true", "lever__share_always": ("false", "true")[SEED % 2],
         "job_reports": f'{{ folder = "{JOBS}", sizes = true, least_run_s = 5 }}'}  # fmt: skip


@contextmanager
def churning(site: Installed, kind: type[Churn], **keys: str) -> Iterator[Churn]:
    """A daemon at work on 16 nodes, a cycle every two seconds, preemption on, everything allowed soon. After a failure
    the daemon's files are in KEPT."""
    site.configure(
        cycle__interval_s="2.0", scope__partitions='["soak", "phantom"]', log__format='"json"', **KEYS, **keys
    )
    with more_nodes(len(NODES), "soak", kind.shards):
        made = kind(site, SEED)
        made.start_daemon()
        try:
            yield made
        except BaseException:
            shutil.copytree(site.folder, KEPT, dirs_exist_ok=True)
            raise
        if made.daemon is not None and made.daemon.poll() is None:
            os.killpg(made.daemon.pid, signal.SIGKILL)
            made.daemon.wait()


def test_soak__nothing_breaks_and_nothing_is_left(site: Installed):
    """Events by chance, invariants looked at after each; then all ends, and undo gives every lever back. With gang
    reservations."""
    with churning(site, Churn, **GANGS) as churn:
        _soak(churn, MINUTES, lambda: clean() and _restored(churn))


def test_soak__every_job_gets_its_own_size_back(site: Installed):
    """As above with elastic jobs: slurmsched writes sizes while they wait, and asks for others while they run. After
    undo every waiting job asks for what its user asked for, and a second undo finds no size."""
    run("rm", "-rf", str(JOBS), str(LEFT))
    run("mkdir", "-p", f"{JOBS}/wants", f"{JOBS}/reports")
    run("chown", "-R", f"{site.user}:", str(JOBS))
    run("install", "-m", "666", "/dev/null", str(LEFT))
    with churning(site, ElasticChurn, **SIZES) as churn:
        assert isinstance(churn, ElasticChurn)
        _soak(churn, SIZE_MINUTES, lambda: clean() and not churn.others())
        site("undo", "--apply", "--yes", check=False)  # of writes that may have been on their way; some are refused
        assert site("undo", "--json").json()["steps"] == []
        sizes, shards = churn.sizes(), churn.values("shards")
        print({"jobs with shards": len(shards),"jobs resized": len(sizes), "sizes": sum(map(len, sizes.values())),
               "went back for a size": len(LEFT.read_text().split())})  # fmt: skip
        assert sizes and (shards or SIZE_MINUTES < 3)  # GPUs may not become scarce in a short run


def _soak(churn: Churn, minutes: float, restored: Callable[[], bool]) -> None:
    site = churn.site
    for _ in range(FIRST):
        churn.submit()
    end = churn.begun_s + 60 * minutes
    while time.monotonic() < end:
        churn.event()
        broken = churn.broken()
        assert broken == [], f"{broken}{_told(churn)}"
        assert churn.daemon.poll() is None, "the daemon ended by itself"
        time.sleep(churn.chance.expovariate(1 / PAUSE_S))
    cycles = churn.cycles()
    until(lambda: churn.cycles() > cycles, "the daemon that was started last is at work")
    churn.daemon.send_signal(signal.SIGTERM)
    assert churn.daemon.wait(timeout=120) == 0
    while not restored():
        answer = site("undo", "--apply", "--yes", check=False)
        assert time.monotonic() < end + 120, answer.out + answer.err + _told(churn)
        time.sleep(1)
    assert churn.broken() == [], _told(churn)
    lost = churn.lost()
    assert lost == [], f"{lost}{_told(churn)}"
    print(_told(churn), dict(Counter(churn.states().values())))


def _restored(churn: Churn) -> bool:
    now = nices()
    return all(now[job] == nice for job, nice in churn.chosen.items() if job in now)


def _told(churn: Churn) -> str:
    """What the run was, for the person who reads of it."""
    facts = {"seed": churn.seed, "minutes": round((time.monotonic() - churn.begun_s) / 60, 1)}
    facts |= {
        "operations": len(churn.operations),
        "operations_open": len(churn.operations) - len(churn.closed),
        "events": dict(churn.counts),
    }
    cycles = sum(b'"cycle.done"' in line for line in (churn.site.folder / "daemon.log").read_bytes().splitlines())
    last = (churn.site.folder / "churn.jsonl").read_text().splitlines()[-15:]
    return "\n".join(["", orjson.dumps(facts | {"cycles": cycles}).decode(), *last])
