"""Random churn of 2-GPU jobs on four DGX-1V nodes, and how many got the best pair that was free when they started.

`python -m tests.live.pair_churn JOBS` inside the lab prints the table of docs/placement.md: stock Slurm, the compiled
gres.conf, that with the daemon, and GRES Types with a daemon that rewrites requests.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slurmsched.model.gres import index_mask
from slurmsched.resources.gpu_sets import SetRanks, set_ranks
from slurmsched.slurm.topology_sources import read_file
from tests.live.gpu_nodes import GRES_CONF, MACHINES, install, restart
from tests.live.lab import BINARY, Installed, run, until

NODES = ("n1", "n2", "n3", "n4")
BATCH, HELD = 5, 18  # jobs submitted at a time; GPUs left in use before the next ones come
_HELD = re.compile(r"JobId=(\d+) .*? StartTime=(\S+) .*? Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S+)")
_INDEX = re.compile(r"\(IDX:([0-9,-]+)\)")
SLURM_CONF = Path("/etc/slurm/slurm.conf")


@dataclass
class Found:
    """What the jobs got. best: how many got the best pair of all nodes. speed: bandwidth got over the best, each."""

    jobs: int = 0
    best: int = 0
    speed: list[float] = field(default_factory=list)

    @property
    def best_share(self) -> float:
        return self.best / self.jobs

    @property
    def mean_speed(self) -> float:
        return sum(self.speed) / self.jobs


def held() -> dict[int, tuple[str, str, int]]:
    """Start, node and GPU mask of every running job."""
    text = run("scontrol", "-o", "-d", "show", "job").out
    rows = (_HELD.search(line) for line in text.splitlines() if "JobState=RUNNING" in line)
    return {int(row[1]): (row[2], row[3], index_mask(",".join(_INDEX.findall(row[4])))) for row in rows if row}


def end(jobs: list[int]) -> None:
    run("scancel", "-Q", *map(str, jobs))
    until(lambda: not set(jobs) & set(map(int, run("squeue", "-h", "-t", "R,CG", "-o", "%A").out.split())), "they end")


def submit(options: list[str]) -> int:
    request = ["-N1", "--gpus-per-node=2", "-c2", "--mem=1G", *options]
    done = run("sbatch", "--parsable", "-o", "/dev/null", *request, "--wrap", "sleep 3000", user="alice")
    return int(done.out)


def fragment(draw: random.Random) -> None:
    """One-GPU jobs on a random half of all GPUs."""
    run("sbatch", "-o", "/dev/null", "-a", "0-31", "-N1", "--gpus-per-node=1", "--mem=1G", "--wrap", "sleep 3000")
    until(lambda: len(held()) == 8 * len(NODES), "they fill the nodes")
    end(draw.sample(sorted(held()), 4 * len(NODES)))


def churn(jobs: int, ranks: SetRanks, options: list[str], seed: int = 1) -> Found:
    """Batches of jobs come, random ones end, until so many have started."""
    draw, found = random.Random(seed), Found()
    fragment(draw)
    while found.jobs < jobs:
        before = held()
        new = [submit(options) for _ in range(BATCH)]
        until(lambda new=new: set(new) <= set(held()), "they start")
        judge(found, ranks, before, {job: place for job, place in held().items() if job in new})
        now = held()
        gone = draw.sample(sorted(now), len(now))
        gpus = {job: mask.bit_count() for job, (_, _, mask) in now.items()}
        while sum(gpus[job] for job in now if job not in gone) < HELD:
            gone.pop()
        if gone:
            end(gone)
    return found


def judge(found: Found, ranks: SetRanks, before: dict, new: dict[int, tuple[str, str, int]]) -> None:
    """Each new job, in the order of their starts, against what was free on all nodes then."""
    free = dict.fromkeys(NODES, 0xFF)
    for _, node, mask in before.values():
        free[node] &= ~mask
    for _, (_, node, mask) in sorted(new.items(), key=lambda item: (item[1][0], item[0])):
        pairs = [m for m in range(256) if m.bit_count() == 2 and any(m & ~open_ == 0 for open_ in free.values())]
        best = max(pairs, key=lambda m: int(ranks.rank[m]))
        found.jobs += 1
        found.best += int(ranks.rank[mask]) == int(ranks.rank[best])
        found.speed.append(float(ranks.ring_gb_per_s[mask] / ranks.ring_gb_per_s[best]))
        free[node] &= ~mask


def mesh(folder: Path) -> SetRanks:
    """DGX-1V nodes with their true Links; the file of their class stays in the folder."""
    install(dict.fromkeys(NODES, MACHINES["mesh"]))
    (folder / "mesh.conf").write_text(MACHINES["mesh"].conf("n1"))
    return set_ranks(read_file(GRES_CONF, "gres.conf").classes[0].topology)


def compile_links(most: int) -> None:
    """The compiled file in place of the true one."""
    text = run(BINARY, "topology", "compile", "--node", "n1", f"--most={most}", timeout_s=300).out
    GRES_CONF.write_text(text)
    restart()


def name_types() -> None:
    """A GRES Type for each GPU, as `compile --types` writes it, in place of the true file."""
    text = run(BINARY, "topology", "compile", "--node", "n1", "--types", timeout_s=300).out
    gres = re.search(r"^# slurm.conf, NodeName line: (Gres=\S+)$", text, re.MULTILINE)
    assert gres, text
    GRES_CONF.write_text(text)
    SLURM_CONF.write_text(SLURM_CONF.read_text().replace("Gres=gpu:a100:8", gres[1]))
    restart()


PLACED = ["--comment=slurmsched: topo=nvlink", "--begin=now+60"]


def classes_of(site: Installed) -> str:
    """The true links, as the configuration names them."""
    return f'[{{ name = "mesh", nodes = "n[1-4]", file = "{site.folder}/mesh.conf" }}]'


@contextmanager
def placing(site: Installed, **more: str) -> Iterator[None]:
    """The daemon at work, placing jobs by their hints."""
    classes = classes_of(site)
    site.configure(policy='{ name = "fifo" }', placement__pin='"hints"', placement__wait_s="60",
                   cycle__interval_s="0.5", topology__classes=classes, log__level='"warning"', **more)  # fmt: skip
    daemon = site.start("daemon", "--apply")
    try:
        yield
    finally:
        daemon.send_signal(signal.SIGTERM)
        print(daemon.communicate(timeout=120)[1])


def main() -> None:
    """Print the table."""
    jobs, folder = int(sys.argv[1]), Path("/var/lib/slurmsched-churn")
    for name in sys.argv[2:] or ("stock", "compiled", "daemon", "types"):
        run("labctl", "reset")
        shutil.rmtree(folder, ignore_errors=True)
        site = Installed(folder)
        ranks = mesh(folder)
        if name in ("compiled", "daemon"):
            compile_links(4000)
        if name == "types":
            name_types()
        if name in ("daemon", "types"):
            with placing(site, placement__retype=str(name == "types").lower()):
                found = churn(jobs, ranks, PLACED)
            print(site("topology", "quality").out)
        else:
            found = churn(jobs, ranks, [])
        print(f"| {name} | {found.jobs} | {found.best_share:.1%} | {found.mean_speed:.1%} |", flush=True)
    run("labctl", "reset")


if __name__ == "__main__":
    main()
