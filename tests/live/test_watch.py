"""What others see of a daemon on a real Slurm: metrics, pages, top's look, and the report afterwards."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest

from tests.live.lab import run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]

METRICS, WEB = "127.0.0.1:9810", "127.0.0.1:9811"


def get(url: str) -> str:
    with urllib.request.urlopen(f"http://{url}", timeout=60) as answer:
        return answer.read().decode()


def served(url: str) -> bool:
    try:
        return bool(get(url))
    except OSError:
        return False


def value(name: str) -> float:
    """Of a sample by its name and labels as they are printed; NaN while it is not there."""
    lines = [line for line in get(f"{METRICS}/metrics").splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else float("nan")


def test_daemon__is_watched_while_it_works(site):
    """A job that starts is counted with its wait, held GPUs are on the map, writes are counted, a report has them all;
    scrapes and pages are answered from memory."""
    site.configure(policy='{ name = "srsf" }', cycle__interval_s="1.0", metrics__listen=f'"{METRICS}"',
                   metrics__textfile=f'"{site.folder}/slurmsched.prom"', web__listen=f'"{WEB}"')  # fmt: skip
    daemon = site.start("daemon", "--apply")
    try:
        until(lambda: served(f"{METRICS}/metrics"), "metrics are served")
        until(lambda: value('slurmsched_cycles_total{outcome="done"}') >= 1, "a cycle")
        runs = submit("alice", 2, script="sleep 600")
        waits = [submit("bob", 1, "--partition=phantom", f"--time={limit}") for limit in (50, 40)]
        until(lambda: value('slurmsched_first_wait_seconds_count{gpus="2-4"}') == 1, "the start is counted")
        until(lambda: value('slurmsched_writes_total{kind="nice",outcome="written"}') >= 1, "a write is counted")
        told = json.loads(get(f"{WEB}/queue.json"))
        assert [job["job_id"] for job in told["jobs"] if job["job_id"] in waits] == waits[::-1]
        nodes = json.loads(get(f"{WEB}/gpus.json"))["nodes"]
        assert [gpu["job_id"] for node in nodes for gpu in node["gpus"] if gpu.get("user") == "alice"] == [runs, runs]
        assert json.loads(get(f"{WEB}/job.json?id={waits[0]}"))["user"] == "bob"
        assert value('slurmsched_cycle_stage_seconds_count{stage="read"}') >= 1
        _answered_without_slurm()
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=120)
    assert 'slurmsched_writes_total{kind="nice",outcome="written"}' in (site.folder / "slurmsched.prom").read_text()
    run("scancel", str(runs))
    _reported(site, runs)


def _answered_without_slurm() -> None:
    """With slurmctld away everything is answered all the same, and says that cycles fail."""
    run("labctl", "stop", "slurmctld")
    until(lambda: value("slurmsched_failed_cycles_in_a_row") >= 1, "a cycle fails")
    for path in ("/", "/gpus"):
        assert "The last cycle failed" in get(f"{WEB}{path}")
    run("labctl", "start", "slurmctld")
    run("labctl", "wait-ready")


def _reported(site, runs: int) -> None:
    """sacct tells who it was, once the job's end is there."""

    def made() -> dict:
        return site("report", "--since", "1h", "--json").json()

    until(lambda: any(row["name"] == "alice" for row in made()["users"]), "the report names her")
    found = made()
    assert found["source"] == "sacct"
    assert found["waits"]["2-4"]["jobs"] >= 1
    assert found["gpus"] > 0
    assert site("report", "--since", "1h", "--page", str(site.folder / "r.html")).rc == 0
    assert (site.folder / "r.html").stat().st_size > 1_000_000
