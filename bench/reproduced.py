"""Writes docs/reproduced.md: the tables of `slurmsched reproduce` as Markdown.

python -m bench.reproduced > docs/reproduced.md     from the repository root; takes some minutes
"""

from __future__ import annotations

from slurmsched import logs
from slurmsched.replay.reproduce import tables
from slurmsched.replay.reproduce_run import results
from slurmsched.replay.reproduce_text import COLUMNS, cells, heading

HEAD = """# Published figures, ours beside theirs

Made by `python -m bench.reproduced`, asserted by `tests/replay/test_published.py`; `slurmsched reproduce NAME` prints
any of these tables anew, with `--json` every figure. Ideal cluster, deterministic; the figure is the mean JCT in
seconds. Where percentiles, makespan or preemptions were published too, the one furthest from theirs is named. Traces,
with sources and licences: `slurmsched/replay/traces/README.md`; the tables: `slurmsched/replay/reproduced`. What a
setting does: [replay.md](replay.md), "The ideal cluster".

Two kinds of figures stand under "theirs":

- Published by the authors: those of tables whose name begins with `claims` (from the papers), of
  `tiresias-rounds-measured` (Pollux's artifact ships them), what a row tells of a physical cluster, and Alibaba's in
  `elsewhere`.
- All others are our own runs of the programs that the authors released, at the commit that the table names. For four
  policies of `shockwave-120` (max-min, proportional, sum of throughputs, makespan) they equal what is shipped with it.

Tables whose name begins with `claims` set ratios beside what a paper claims against another policy, such as "up to 1.3
times". Where the paper's input is not public, a public trace stands in for it, and the row says why ours differs.

`equal`: all published figures to their last digit. `within`: all within the table's tolerance. `differs`: some are not,
and why. `not reproduced`: not replayed at all, and why.

Under FIFO and EASY every single job ends at the second at which an independent loop (`tests/reference/schedules.py`)
ends it; EASY on philly_10k excepted, where two programs differ in the order of simultaneous events."""


def main() -> None:
    logs.configure("warning")
    print(HEAD)
    for table in tables():
        title, *rest = heading(table)
        print(f"\n## {title}\n\n" + "\n".join(f"{line}  " for line in rest) + "\n")
        print("| " + " | ".join(name.rstrip(">") for name in COLUMNS) + " |")
        print("|" + "|".join(" ---: " if name.endswith(">") else " --- " for name in COLUMNS) + "|")
        for result in results(table):
            print("| " + " | ".join(cells(result)) + " |", flush=True)


if __name__ == "__main__":
    main()
