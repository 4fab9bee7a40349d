"""How long the jobs of some users really ran, by accounting."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slurmsched.slurm.commands import Commands, batches
from slurmsched.slurm.text import MOST_COUNT, whole
from slurmsched.words import some

DAYS = 30
Usual = Mapping[tuple[str, str], tuple[float, ...]]  # user, partition -> run times, ascending [s]


def read_usual(commands: Commands, users: Collection[str], warnings: list[str]) -> Usual:
    """Run times of GPU jobs of these users that completed in the last 30 days.

    Raises SlurmError where there is no accounting or it does not answer.
    """
    answers = (commands.run(
        "sacct", "--allocations", "--noheader", "--parsable2", f"--user={listed}", "--state=COMPLETED",
        f"--starttime=now-{DAYS}days", "--endtime=now", "--format=User,Partition,ElapsedRaw,AllocTRES",
    ) for listed in batches(sorted(users)))  # fmt: skip
    return parse_usual("\n".join(answers), warnings)


def parse_usual(text: str, warnings: list[str]) -> Usual:
    """The run times; jobs without GPUs are left out, and rows that are not as asked, which are counted in a warning."""
    found: dict[tuple[str, str], list[float]] = {}
    unread = 0
    for line in filter(str.strip, text.splitlines()):
        row = line.split("|", 3)
        if len(row) != 4 or (seconds := whole(row[2], -1, MOST_COUNT)) < 0:
            unread += 1
        elif "gres/gpu" in row[3]:
            found.setdefault((row[0], row[1]), []).append(float(seconds))
    if unread:
        warnings.append(f"run times of users: {some(unread, 'row')} of sacct cannot be read")
    return {key: tuple(sorted(times)) for key, times in found.items()}
