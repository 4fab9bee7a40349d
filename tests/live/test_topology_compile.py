"""`topology compile` on a real Slurm: under the file it writes, Slurm itself hands out the best sets."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from slurmsched.model.gpu_masks import mask_members
from slurmsched.resources.gpu_sets import SetRanks, set_ranks
from slurmsched.slurm.topology_sources import read_file
from slurmsched.topology.gres_nodes import slurm_node
from slurmsched.topology.selection_quality import picks_in, states_of
from slurmsched.topology.slurm_selection import GpuOption, NodeGpuRequest
from slurmsched.topology.topology_files import read_topology_text
from tests.live.gpu_nodes import CORES, GRES_CONF, MACHINES, SOCKETS, Holding, end, install, leave_free, restart
from tests.live.lab import BINARY, run
from tests.live.test_picker import slurm_version

pytestmark = pytest.mark.live
EACH = 6  # fragmentations of a node for each size of job


def compiled(name: str, most: int) -> str:
    """The file of this node's class for this lab's Slurm."""
    return run(BINARY, "topology", "compile", "--node", name, f"--most={most}", timeout_s=300).out


@pytest.mark.parametrize("machine", ["mesh", "bridges"])
def test_compile__slurm_gives_the_best_pairs_and_quads(fresh, machine, tmp_path):
    """After the compiled file is installed, jobs of 2 and 4 get the best free set, however the node is fragmented."""
    install({f"n{i}": MACHINES[machine] for i in range(1, 5)})
    ranks = set_ranks(read_file(GRES_CONF, "gres.conf").classes[0].topology)
    text = compiled("n1", 200)
    links = [device.links for device in read_topology_text(text).classes[0].devices]
    assert links == links_under_autodetect(text, tmp_path)
    assert links != links_under_autodetect(text.replace("AutoDetect=off ", ""), tmp_path)  # Slurm keeps its own
    GRES_CONF.write_text(text)
    restart()
    assert [set_ranks(read_file(GRES_CONF, "gres.conf").classes[0].topology).rank.tolist()] == [ranks.rank.tolist()]
    given = [(free, need, pick_live(free, need)) for free, need in fragmentations(GRES_CONF, ranks)]
    missed = [
        f"free {mask_members(free)}: {mask_members(got)}" for free, need, got in given if not is_best(ranks, free, got)
    ]
    assert not missed, "\n".join([*missed, text])


def links_under_autodetect(text: str, folder: Path) -> list[tuple[int, ...]]:
    """The Links of the eight GPUs that slurmd has by this file where AutoDetect=nvidia finds them too.

    It finds them in the driver's files, which are put there for it. [] where slurmd crashes, as 24.11.5 does without
    AutoDetect=off.
    """
    shutil.copytree("/etc/slurm", folder, dirs_exist_ok=True)
    (folder / "gres.conf").write_text("AutoDetect=nvidia\n" + text.replace("/dev/fakegpu", "/dev/nvidia"))
    run("mount", "-t", "tmpfs", "tmpfs", "/proc/driver")
    try:
        for g in range(8):
            gpu = Path(f"/proc/driver/nvidia/gpus/0000:{g:02}:00.0")
            gpu.mkdir(parents=True)
            (gpu / "information").write_text(
                f"Model: \t\t NVIDIA A100\nBus Location: \t 0000:{g:02}:00.0\nDevice Minor: \t {g}\n"
            )
            if not Path(f"/dev/nvidia{g}").exists():
                run("mknod", f"/dev/nvidia{g}", "c", "195", str(g))
        said = run("slurmd", "-G", "-N", "n1", "-f", str(folder / "slurm.conf"), check=False)
    finally:
        run("umount", "/proc/driver")
    devices = read_topology_text(said.out + said.err, "slurmd-log").classes[0].devices if said.rc == 0 else ()
    assert not devices or [device.files for device in devices] == [(f"/dev/nvidia{g}",) for g in range(8)]
    return [device.links for device in devices]


def fragmentations(path: Path, ranks: SetRanks) -> list[tuple[int, int]]:
    """Sets of free GPUs, and sizes of jobs, drawn from those the file promises to serve with the best set.

    Those are at least three of four, so that a file that promises little fails.
    """
    node = slurm_node(read_file(path, "gres.conf").classes[0], (SOCKETS, CORES, 1))
    states = states_of(node, ranks, GpuOption.PER_NODE, 1)
    promised = ranks.rank[picks_in(node, states, GpuOption.PER_NODE, slurm_version())] == states.best
    found, draw = [], random.Random(3)
    for need in (2, 4):
        rows = np.flatnonzero(promised & (states.need == need))
        assert len(rows) >= 0.75 * (states.need == need).sum()
        found += [(int(states.free[row]), need) for row in draw.sample(rows.tolist(), EACH)]
    return found


def pick_live(free: int, need: int) -> int:
    """The GPUs a job of so many gets on a node on which only these are free."""
    holding = Holding("n1")
    leave_free(holding, free)
    job = holding.ask(NodeGpuRequest(GpuOption.PER_NODE, need, cpus_per_task=need))
    assert job, f"{need} GPUs out of {mask_members(free)} were refused"
    got = holding.gpus[job]
    end([holding], list(holding.gpus))
    return got


def is_best(ranks: SetRanks, free: int, got: int) -> bool:
    return int(ranks.rank[got]) == int(ranks.rank[ranks.best[free, got.bit_count()]])
