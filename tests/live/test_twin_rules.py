"""Twin fidelity of rules that name nodes: on which nodes Slurm starts jobs, and when, and the model.

    python3 tests/lab/lab.py exec --name NAME -- python -m pytest -m live tests/live/test_twin_rules.py -s

prints the row of docs/fidelity.md. It takes a minute and a half; what ran is kept in /var/tmp/twin of the lab.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.lab import run
from tests.live.test_twin import KEPT
from tests.twin.fidelity import compare, other_nodes
from tests.twin.recorder import Recorder
from tests.twin.recording import replayed
from tests.twin.rules import CONF, NODES, PARTITIONS, workload

pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.timeout(600)]
SLURM_CONF, GRES_CONF = Path("/etc/slurm/slurm.conf"), Path("/etc/slurm/gres.conf")


@pytest.fixture
def ruled(fresh: None) -> None:
    """Nodes that differ, partitions with rules of their own, licences, preemption."""
    for key, value in (("Epilog", "/bin/true"), ("SlurmctldDebug", "debug2"), *CONF.items()):
        run("labctl", "conf", key, value)
    conf = SLURM_CONF.read_text()
    (line,) = [text for text in conf.splitlines() if text.startswith("NodeName=n[1-4] ")]
    common = line.replace(" Feature=a100,nvlink", "").replace("n[1-4] ", "{name} ").replace("[17001-17004]", "1700{n}")
    nodes = [f"{common.format(name=name, n=name[1:])} {rules}" for name, rules in NODES.items()]
    parts = [f"PartitionName={rules} MaxTime=1:00:00" for rules in PARTITIONS]
    SLURM_CONF.write_text("\n".join([conf.replace(line, "\n".join(nodes)), *parts]) + "\n")
    gres = GRES_CONF.read_text().splitlines()
    other = [text.replace("n[1-4]", "n3").replace("Type=a100", "Type=h100") for text in gres if "n[1-4]" in text]
    GRES_CONF.write_text("\n".join([*(text.replace("n[1-4]", "n[1-2,4]") for text in gres), *other]) + "\n")
    run("labctl", "restart", "slurmctld", "slurmd")
    run("labctl", "wait-ready")


def test_twin__starts_jobs_on_slurms_nodes(ruled: None) -> None:
    """Nineteen of twenty jobs start on the nodes that Slurm gives them, and most in the same second; the preempted one
    ends with its GraceTime. A busy machine delays a pass of Slurm by two seconds, which moves the jobs of that pass."""
    recorder = Recorder(workload())
    recorder.play()
    recording = recorder.recording(placed=True)
    KEPT.mkdir(exist_ok=True)
    recording.write(KEPT / f"{recording.version}-rules.json.gz")
    model = replayed(recording)
    seen = compare(recording, model)
    print(f"\n| {recording.version} | rules | {seen.row}")
    elsewhere = other_nodes(recording, model)
    assert seen.jobs == len(workload()), seen
    assert seen.same_second >= 0.85 and len(elsewhere) <= 2, f"not within 1 s of Slurm: {seen}, {elsewhere}"
    assert [each.partition for each in recording.ran if each.ended] == ["low"]
