"""The table of docs/metrics.md, from the catalogue: python -m slurmsched.metrics.reference docs/metrics.md"""

from __future__ import annotations

import sys
from pathlib import Path

from slurmsched.metrics.catalog import HISTOGRAM, METRICS, Metric

BEGIN, END = "<!-- from slurmsched/metrics/catalog.py -->", "<!-- end -->"


def table() -> str:
    """A row a metric, in Markdown."""
    rows = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |", *map(_row, METRICS)]
    return "\n".join(rows) + "\n"


def replaced(page: str) -> str:
    """The page with the table of now between its marks. Raises ValueError where they are not there."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n\n{table()}\n{END}{tail}"


def _row(metric: Metric) -> str:
    labels = "; ".join(f"{name}: {', '.join(f'`{v}`' for v in values) or 'as configured'}"
                       for name, values in metric.labels.items())  # fmt: skip
    buckets = f" Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}." if metric.kind == HISTOGRAM else ""
    return f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help}{buckets} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
