"""CPU time of commands as cron and a shell start them, beside `squeue -h` and a bare interpreter.

    python3 tests/lab/lab.py exec --name NAME -- python bench/cold.py [--rounds 9] [--than FOLDER]

In a lab, as root; the commands run as the user slurmsched, with bytecode cached, on whatever is queued. All are run in
turns, so that each meets the same neighbours on the machine. --than: another checkout of slurmsched, for a second
column. Nearly all of it is import: `python -X importtime` tells of what.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

COMMANDS = ("tick --dry-run", "plan", "queue", "status", "undo")
BARE = {"`squeue -h`": ("squeue", "-h"), "`python -c pass`": (sys.executable, "-c", "pass")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--than", type=Path, help="a checkout to compare with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        works: dict[tuple[str, str], Callable[[], float]] = {
            (what, ""): lambda argv=argv: cpu_s(argv, {}) for what, argv in BARE.items()
        }
        for column, checkout in (("", None), ("than", options.than)):
            if column and checkout is None:
                continue
            command = installed(Path(name) / f"site{column}", checkout)
            works |= {(f"`slurmsched {words}`", column): command(words) for words in COMMANDS}
        print(table(measured(works, options.rounds), compared=options.than is not None))


def installed(folder: Path, checkout: Path | None) -> Callable[[str], Callable[[], float]]:
    """Runs commands of this checkout on a ledger of its own, which is there after one cycle. None: as installed."""
    folder.mkdir(parents=True)
    file, env = folder / "slurmsched.toml", {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    file.write_text(
        f'scope.partitions = ["*"]\nledger.url = "sqlite:///{folder}/ledger.db"\n'
        f'ledger.journal = "{folder}/journal"\nledger.lock = "{folder}/lock"\n'
    )
    for path in (folder.parent, folder):
        subprocess.run(["chown", "slurmsched", str(path)], check=True)
    env |= {"PYTHONPATH": str(checkout)} if checkout else {}

    def command(words: str) -> Callable[[], float]:
        return lambda: cpu_s(("slurmsched", "--config", str(file), *words.split()), env)

    command("tick --dry-run")()
    return command


def cpu_s(argv: tuple[str, ...], env: dict[str, str]) -> float:
    """User and system time of the command and of what it runs [s]."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, cwd="/", user="slurmsched", env=os.environ | env)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime


def measured(works: dict[tuple[str, str], Callable[[], float]], rounds: int) -> dict[tuple[str, str], float]:
    """Median of each, in turns; a first, warming turn is left out."""
    turns = [{key: work() for key, work in works.items()} for _ in range(rounds + 1)][1:]
    return {key: statistics.median(turn[key] for turn in turns) for key in works}


def table(found: dict[tuple[str, str], float], *, compared: bool) -> str:
    lines = ["| what | CPU s | before | share |", "| --- | ---: | ---: | ---: |"] if compared else \
            ["| what | CPU s |", "| --- | ---: |"]  # fmt: skip
    for (what, column), now_s in found.items():
        before_s = found.get((what, "than"))
        cells = [f"{before_s:.3f}", f"{now_s / before_s:.2f}"] if before_s else ["", ""] if compared else []
        if not column:
            lines.append(f"| {' | '.join([what, f'{now_s:.3f}', *cells])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
