"""Writes docs/reproduced.md: the tables of `slurmsched reproduce` as Markdown.

python -m bench.reproduced > docs/reproduced.md     from the repository root; takes some minutes
"""

from __future__ import annotations

from slurmsched import logs
from slurmsched.sim.experiments.reproduction import (
    RESULT_COLUMNS,
    published_tables,
    result_cells,
    table_heading,
    table_results,
)

HEAD = """# Published figures and ours

With this page you can compare figures of papers and of their simulators with ours. `slurmsched reproduce NAME` prints
any of these tables again; with `--json` it prints every figure.

Made by `python -m bench.reproduced`; `tests/replay/test_published.py` asserts it, but for the rows with `slow = true`
in the tables, which take long. All replays are on the ideal cluster, and deterministic. The figure is the mean JCT in
seconds. If percentiles, makespan or preemptions were published too, the one that differs most is named. See also:

- traces, with sources and licences: `slurmsched/sim/traces/shipped/README.md`;
- the tables: `slurmsched/sim/experiments/published`;
- what a setting does: [replay.md](replay.md), "The ideal cluster".

There are two kinds of figures under "theirs":

- **Published by the authors:** tables whose name begins with `claims` (from the papers), `fgd`,
  `tiresias-rounds-measured` and those whose name begins with `pollux` (from the artifacts), Alibaba's rows in
  `elsewhere`, and what a row says of a physical cluster.
- **All others** are our own runs of the programs that the authors released, at the commit that the table names. For
  four policies of `shockwave-120` (max-min, proportional, sum of throughputs, makespan) they equal what is shipped
  with it.

Tables whose name begins with `claims` compare ratios with what a paper claims against another policy, such as "up to
1.3 times". If the paper's input is not public, a public trace replaces it, and the row says why ours differs.

| verdict | meaning |
| --- | --- |
| `equal` | all published figures are equal to their last digit |
| `within` | all are within the table's tolerance |
| `differs` | some are not; the reason follows |
| `not reproduced` | not replayed; the reason follows |

Under FIFO and EASY every job ends at the same second as in an independent loop (`tests/reference/schedules.py`). The
exception is EASY on philly_10k, where two programs differ in the order of simultaneous events."""


def main() -> None:
    logs.configure("warning")
    print(HEAD)
    for table in published_tables():
        title, *rest = table_heading(table)
        print(f"\n## {title}\n\n" + "\n".join(f"{line}  " for line in rest) + "\n")
        print("| " + " | ".join(name.rstrip(">") for name in RESULT_COLUMNS) + " |")
        print("|" + "|".join(" ---: " if name.endswith(">") else " --- " for name in RESULT_COLUMNS) + "|")
        for result in table_results(table):
            print("| " + " | ".join(result_cells(result)) + " |", flush=True)


if __name__ == "__main__":
    main()
