"""What commands for people cost on a large site, and how much memory a cycle takes. Run it in a lab of its own as root.

    python bench/site_commands.py [--nodes 10000] [--rounds 5] [--adapter cli --adapter pyslurm] [--than FOLDER] [JOBS]

Prints a Markdown table. Nodes that are down are added to slurm.conf until there are so many; the pending jobs are those
of cycle.py. Each round runs `squeue -h` and `scontrol -o show node`, then each command, as the user slurmsched. The
ratio is that of medians. Bytecode and kernels are cached, as once installed. Memory is the largest resident size of any
process of the command. --adapter: slurm.adapter, rows for each. --than: another checkout of slurmsched, for rows of its
own.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.cycle import fill, run, waiting

CONF = Path("/etc/slurm/slurm.conf")
ADDED = "q[1-{0}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[20001-{1}] State=DOWN Reason=phantom"
SQUEUE, NODES = ("squeue", "-h"), ("scontrol", "-o", "show", "node")
TARGET = 2.0
WAITS = 10  # exit code of `fit` where nothing is free now


class Cost(NamedTuple):
    """wall_s, cpu_s: of the command and what it starts. peak_mib: largest resident size of one of these processes."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def grow(nodes: int) -> None:
    """Add nodes that are down to partition phantom, until there are that many."""
    more = nodes - len(run(*NODES).splitlines())
    if more <= 0:
        return
    text = CONF.read_text()
    line = f"NodeName={ADDED.format(more, 20_000 + more)}\n"
    CONF.write_text(re.sub(r"(?m)^(PartitionName=phantom Nodes=\S+)", rf"{line}\1,q[1-{more}]", text))
    run("scontrol", "reconfigure")
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s and len(run(*NODES).splitlines()) < nodes:
        time.sleep(1)


def cost(argv: tuple[str, ...], env: Mapping[str, str]) -> Cost:
    """Of one run. Its output goes nowhere."""
    begun_s = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, user="slurmsched", extra_groups=[], cwd="/", env=env)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, WAITS):
        raise SystemExit(f"{' '.join(argv)}: exit status {process.returncode}")
    return Cost(time.perf_counter() - begun_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def environment(folder: Path, checkout: Path | None) -> dict[str, str]:
    """Where a checkout's bytecode, kernels and sets of GPUs are kept. checkout: None = as installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    caches = {"PYTHONPYCACHEPREFIX": "bytecode", "NUMBA_CACHE_DIR": "numba", "XDG_CACHE_HOME": "cache"}
    cached = {name: str(folder / part) for name, part in caches.items()}
    return kept | cached | ({"PYTHONPATH": str(checkout)} if checkout else {})


def commands(folder: Path, adapter: str) -> dict[str, tuple[str, ...]]:
    """What is measured, by name."""
    file, job = folder / f"{adapter}.toml", run("squeue", "-h", "-t", "PD", "-o", "%A").split()[0]
    file.write_text(
        f'scope.partitions = ["*"]\nslurm.adapter = "{adapter}"\nledger.url = "sqlite:///{folder}/ledger.db"\n'
        f'ledger.journal = "{folder}/journal"\nledger.lock = "{folder}/lock"\n'
    )
    start = ("slurmsched", "--config", str(file))
    words = {
        "explain JOB": ("explain", job),
        "fit": ("fit", "--gpus", "8", "--partition", "phantom"),
        "gpus": ("gpus",),
        "queue": ("queue",),
        "tick --dry-run": ("tick", "--dry-run"),
    }
    return {f"`slurmsched {name}`, {adapter}": (*start, *rest) for name, rest in words.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="?", type=int, default=100_000, help="pending jobs")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--adapter", action="append", choices=("auto", "cli", "pyslurm"))
    parser.add_argument("--than", type=Path, help="a checkout to compare with")
    options = parser.parse_args()
    adapters = options.adapter or ["auto"]
    grow(options.nodes)
    fill(options.jobs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["chown", "slurmsched", name], check=True)
        ours = environment(folder, None)
        works = {key: (argv, ours) for key, argv in (("squeue", SQUEUE), ("nodes", NODES))}
        works |= {key: (argv, ours) for adapter in adapters for key, argv in commands(folder, adapter).items()}
        if options.than:
            (folder / "than").mkdir()
            subprocess.run(["chown", "slurmsched", str(folder / "than")], check=True)
            theirs = environment(folder / "than", options.than)
            before = commands(folder, adapters[0])
            works |= {f"{key}, before": (argv, theirs) for key, argv in before.items()}
        turns = [{key: cost(*work) for key, work in works.items()} for _ in range(options.rounds + 1)][1:]
    found = {key: median([turn[key] for turn in turns]) for key in works}
    both = Cost(*map(sum, zip(found.pop("squeue"), found.pop("nodes"), strict=True)))
    print(f"{waiting():,} pending jobs, {options.nodes:,} nodes, medians of {options.rounds} rounds. `squeue -h` and")
    print(f"`scontrol show node` together: {both.wall_s:.3f} s, {both.cpu_s:.3f} s of CPU time.\n")
    print("| what | wall s | ratio | target | CPU s | ratio of CPU | peak MiB |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for key, one in found.items():
        ratio, asked = one.wall_s / both.wall_s, "tick" not in key and "queue" not in key
        verdict = f"{TARGET:g}, {'met' if ratio <= TARGET else '**missed**'}" if asked else ""
        cells = (
            f"{one.wall_s:.3f}",
            f"{ratio:.2f}",
            verdict,
            f"{one.cpu_s:.3f}",
            f"{one.cpu_s / both.cpu_s:.2f}",
            f"{one.peak_mib:.0f}",
        )
        print(f"| {key} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
