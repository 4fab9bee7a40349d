#!/usr/bin/env python3
"""Records the answers of a lab: run as root inside one, with an empty queue, and give it a folder.

    python3 tests/lab/lab.py exec -- /opt/venv/bin/python -m tests.recorded.record /tmp/24.11.5

It submits the jobs of scenario.py, reads the cluster by its commands and keeps every answer, with
time and job ids by name in facts.json, and jobs, nodes and sdiag as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from slurmsched.slurm import reader
from slurmsched.slurm.commands import Commands
from tests.recorded.playback import MARK, Recorder
from tests.recorded.scenario import submit_all

AS_JSON = {
    "jobs.json": ("squeue", "--json"),
    "nodes.json": ("scontrol", "--json", "show", "node"),
    "sdiag.json": ("sdiag", "--json"),
}


def record(folder: Path) -> None:
    """Fill the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = submit_all()
    time.sleep(3)
    (folder / "facts.json").write_text(json.dumps({"now_s": int(time.time()), "ids": ids}, indent=1) + "\n")
    Recorder.folder = folder
    reader.fresh_mark = lambda: MARK
    reader.CommandReader(Recorder()).read()
    for name, (program, *arguments) in AS_JSON.items():
        (folder / name).write_text(_small(Commands().run(program, *arguments)), encoding="utf-8")
    fields = "JobIDRaw,Submit,Start,End,Suspended,State,AllocTRES,JobName"
    options = ("-X", "-D", "-P", "--noconvert", f"--format={fields}")
    jobs = ",".join(str(job) for job in ids.values())
    (folder / "sacct.txt").write_text(Commands().run("sacct", *options, f"--jobs={jobs}"), encoding="utf-8")
    (folder / "sdiag.txt").write_text(Commands().run("sdiag"), encoding="utf-8")


def _small(text: str) -> str:
    """JSON without the parts nobody reads."""
    body = json.loads(text)
    for job in body.get("jobs", ()):
        for name in ("job_resources", "job_size_str", "stdin_expanded", "stdout_expanded", "stderr_expanded"):
            job.pop(name, None)
    return json.dumps(body, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    record(Path(sys.argv[1]))
