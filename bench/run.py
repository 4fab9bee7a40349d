"""Runs every benchmark and writes bench/RESULTS.md: `make bench`.

    python bench/run.py [--lab NAME] [--rounds 9] [10000 100000]

On the host, with the lab up; its queue should be empty. cycle.py, cold.py and ledger.py run in the lab, the others
here.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

BENCH = Path(__file__).parent
LAB = BENCH.parent / "tests/lab/lab.py"
VERSIONS = """
import platform, subprocess
from importlib.metadata import PackageNotFoundError, version
def of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
slurm = subprocess.run(["squeue", "--version"], capture_output=True, text=True).stdout.split()[-1]
print(f"Slurm {slurm}, CPython {platform.python_version()}, " + ", ".join(
    f"{name} {of(name)}" for name in ("pyslurm", "numpy", "numba", "sqlalchemy", "pydantic")))
"""
INTENT = """\
Ratios are to plain `squeue -h` of the same queue, run in turns with what is measured. Targets are those of issue 2;
the cycle's counts for the better adapter. Where the machine is shared, trust ratios and CPU time more than wall time.

slurmctld is otherwise quiet: no job runs, the jobs wait in a partition whose nodes are down, slurmdbd has caught up,
scheduling is at Slurm's defaults (`SchedulerParameters=bf_continue`, `PriorityCalcPeriod=300`). `slurmctld s` is the
CPU time slurmctld used meanwhile, its own work included. `CPU s` is ours and our commands', pyslurm's child left out.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", type=int, default=[10_000, 100_000], help="pending jobs, ascending")
    parser.add_argument("--lab", default="bench", help="name of a lab that is up")
    parser.add_argument("--rounds", type=int, default=9, help="of each measurement against squeue")
    options = parser.parse_args()
    inside = [sys.executable, str(LAB), "exec", "--name", options.lab, "--"]
    jobs = [str(count) for count in options.jobs]
    parts = [
        "# What slurmsched costs",
        f"`{shlex.join(['python', 'bench/run.py', *sys.argv[1:]])}`, {datetime.date.today()}, {commit()}, {machine()}.",
        INTENT,
        f"## A cycle against squeue\n\nIn the lab: {run(*inside, 'python', '-c', VERSIONS)}",
        run(*inside, "python", "bench/cycle.py", "--rounds", str(options.rounds), *jobs),
        f"## Cold commands\n\nOf the queue above, by the user slurmsched.\n\n"
        f"{run(*inside, 'python', 'bench/cold.py', '--rounds', str(options.rounds))}",
        f"## The ledger\n\nSQLite; beside the pending jobs 1,000 run.\n\n{run(*inside, 'python', 'bench/ledger.py')}",
        f"## Replays\n\nNo Slurm. numpy {version('numpy')}, numba {version('numba')}, "
        f"{run(sys.executable, '-m', 'bench.replay')}",
        f"The contenders of `slurmsched demo` on the model of slurmctld:\n\n"
        f"{run(sys.executable, '-m', 'bench.replay', '--demo', '--repeat', '1')}",
        f"## Placement\n\nNo Slurm.\n\n{run(sys.executable, 'bench/placement.py')}",
        run(sys.executable, "-m", "bench.policies"),
    ]
    (BENCH / "RESULTS.md").write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


def run(*command: str) -> str:
    """What the command prints, also shown as it comes."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=BENCH.parent) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)}: exit status {process.returncode}")
    return "".join(lines)


def commit() -> str:
    """What was measured."""
    git = ("git", "-C", str(BENCH), "describe", "--always", "--dirty")
    return "commit " + subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> str:
    """Cores, processor and memory."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{len(models)} cores {model}, {memory_kib / 2**20:.0f} GiB"


if __name__ == "__main__":
    main()
