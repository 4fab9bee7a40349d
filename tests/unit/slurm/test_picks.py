"""What Slurm's choice of GPUs depends on, read from its answers."""

from __future__ import annotations

import pytest

from slurmsched.model import Nodes, Site
from slurmsched.slurm.cons_tres import (
    NO_FILE,
    KnownSelection,
    free_cores,
    held_cpus,
    known_version,
    read_known_selection,
    read_shapes,
    shapes_of,
)
from slurmsched.testing import snapshot
from slurmsched.topology.slurm_selection import UNKNOWN_SELECTION, GpuOption, NodeGpuRequest, SlurmNode
from tests.recorded.playback import Scontrol

NODE = SlurmNode.build([range(4)] * 2 + [range(4, 8)] * 2, (), sockets=2, cores_per_socket=4, cpus_per_core=2)
RECORD = (
    "JobId={job} JobName=a UserId=u(1) JobState=RUNNING Reason=None NodeList={nodes} BatchHost=n1 "
    "Nodes={hosts} CPU_IDs={cpus} Mem=1 GRES= MinCPUsNode=1"
)


class Answers:
    """Commands that print what is given for each program."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def run(self, program: str, *_: str) -> str:
        return self.texts[program]


@pytest.mark.parametrize(
    ("hosts", "cpus", "second"),
    [("n[1-2]", "8,9", 0b11_0000_0000), ("n[1-3]", "8,9", 0), ("n3", "8,9", 0), ("n[1-999999]", "8", 0),
     ("n1", "0-99999999", 0), ("n1", "²", 0)],
)  # fmt: skip
def test_held_cpus__of_jobs_that_run(hosts, cpus, second):
    """Each node of a hostlist holds the CPUs; a pending job holds none. A record that names other nodes than the job
    has, or CPUs that no node has, shows none."""
    told = {1: ("n1", "n1", "0-3"), 2: ("n[1-2]", hosts, cpus), 3: ("n1", "n1", "10-15")}
    records = {job: RECORD.format(job=job, nodes=n, hosts=h, cpus=c) for job, (n, h, c) in told.items()}
    rows = [{"job_id": job, "name": "a", "state": "PENDING" if job == 3 else "RUNNING"} for job in told]
    held = held_cpus(Scontrol(records), snapshot(rows).jobs)
    assert {"n1": held["n1"], "n2": held.get("n2", 0)} == {"n1": 0b1111 | second, "n2": second}


def test_free_cores__a_core_with_a_held_thread_is_not_free():
    """CPUs are numbered core by core: 0-3 are two cores of socket 0, 8-9 the first of socket 1."""
    assert free_cores(NODE, 0b11_0000_0111) == [2, 3]


def test_read_shapes__by_node():
    """sinfo's answer, a node a line."""
    odd = "n3 1 8\nn4 1 8 2 9\nn5 x 8 2\nn6 1 ² 2\n\n"
    assert read_shapes(Answers(sinfo=f"n1 2 32 1\n{odd}n2 1 8 2\n"), ["n1", "n2"]) == {
        "n1": (2, 32, 1),
        "n2": (1, 8, 2),
    }


@pytest.mark.parametrize(("version", "chosen", "known"), [
    ("26.05.5", "CR_CORE_MEMORY", True), ("24.11.5", "CR_Core", True), ("20.11.9", "CR_CORE", False),
    ("26.11.0", "CR_CORE", False), ("26.05.5", "CR_SOCKET_MEMORY", False), ("", "CR_CORE", False)])  # fmt: skip
def test_known_version__releases_and_settings_that_were_tried(version, chosen, known):
    """Elsewhere the choice is not known, and it is said why."""
    why = known_version(Site("c", version, settings={"SelectTypeParameters": chosen}))[1]
    assert (why == "") == known


def test_shapes_of__leaves_out_nodes_with_cores_kept_for_gpu_jobs():
    """With RestrictedCoresPerGPU Slurm selects cores by a rule that is not modelled: its choice of GPUs is unknown."""
    nodes = Nodes.build(2, {"name": ["n1", "n2"], "cpus_per_gpu_kept": [0, 16]})
    assert shapes_of(Answers(sinfo="n1 2 32 1\nn2 2 32 1\n"), nodes, ["n1", "n2"]) == {"n1": (2, 32, 1)}


def test_known_version__tells_the_micro():
    """Rules changed within releases; a candidate's micro does not count."""
    told = {text: known_version(Site("c", text))[0] for text in ("24.05.3", "26.05.5", "24.11", "24.11.0-0rc1")}
    assert list(told.values()) == [(24, 5, 3), (26, 5, 5), (24, 11), (24, 11)]


def test_picks__a_node_that_is_not_known_is_unknown():
    """No guess for other nodes, nor where the cores in use are not known."""
    ask = KnownSelection((26, 5), {"n1": NODE, "n2": NODE}, {"n1": [4, 4]})(NodeGpuRequest(GpuOption.PER_NODE, 1))
    assert [ask(name, 0b1100, 2) for name in ("n1", "n2", "n3")] == [0b1100, UNKNOWN_SELECTION, UNKNOWN_SELECTION]


def test_read_picks__without_a_gres_conf(monkeypatch):
    """Nothing can be told; nothing is raised."""
    from slurmsched.config import Config
    from slurmsched.slurm import cons_tres
    from slurmsched.testing.builders import snapshot

    site = Site("c", "26.05.5", settings={"SelectTypeParameters": "CR_CORE"})
    monkeypatch.setattr(cons_tres, "open_commands", lambda _: Answers(sinfo="n1 2 4 2\n"))
    found = read_known_selection(Config(), snapshot(site=site), ["n1"])
    assert (found.nodes, found.why) == ({}, NO_FILE)
