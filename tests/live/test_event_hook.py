"""plugin/event_hook on a real Slurm: a cycle follows a job's end though the interval is far from over."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

from tests.live.lab import Installed, column, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
HOOK = Path("/etc/slurm/slurmsched-event")


def events(site: Installed) -> list[dict]:
    return [orjson.loads(line) for line in (site.folder / "log").read_bytes().splitlines() if line.startswith(b"{")]


def cycles(site: Installed) -> int:
    return sum(event["event"] == "cycle.done" for event in events(site))


def test_event_hook__a_cycle_follows_a_jobs_end(site: Installed):
    """The daemon cycles every ten minutes; jobs begin and end; and nothing happens to jobs when it is away."""
    text = (Path("/src/plugin/event_hook") / HOOK.name).read_text()
    HOOK.write_text(text.replace("/run/slurmsched/events", f"{site.folder}/events"))
    shutil.copymode(f"/src/plugin/event_hook/{HOOK.name}", HOOK)
    site.folder.chmod(0o755)
    run("labctl", "conf", "EpilogSlurmctld", str(HOOK))
    run("labctl", "reconfigure")
    site.configure(cycle__interval_s="600", log__format='"json"', daemon__socket=f'"{site.folder}/events"')
    daemon = site.begin("daemon", "--apply", log="log")
    try:
        until(lambda: cycles(site) == 1, "the first cycle")
        job = submit("alice", 1, script="true")
        until(lambda: column("%T").get(job) == "COMPLETED", "the job ended")
        until(lambda: cycles(site) > 1, "the cycle after its end")
    finally:
        daemon.terminate()
        daemon.wait(60)
    late = submit("alice", 1, script="true")
    until(lambda: column("%T").get(late) == "COMPLETED", "jobs end as ever without the daemon")
    assert run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t").out.split() == ["idle"] * 4
