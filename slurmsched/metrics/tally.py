"""What only grows: counters and histograms, all series there from the start, and taken up again from a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from slurmsched.metrics.catalog import BY_NAME, COUNTER, CUMULATIVE, Metric

Key = tuple[str, tuple[str, ...]]  # name without prefix, label values


class Tally:
    """Sums of counters, and counts by bucket of histograms with their sums."""

    def __init__(self) -> None:
        self._sums: dict[Key, float] = {}
        self._buckets: dict[Key, list[int]] = {}
        for metric in CUMULATIVE:
            for series in metric.series:
                self._sums[metric.name, series] = 0.0
                if metric.kind != COUNTER:
                    self._buckets[metric.name, series] = [0] * (len(metric.buckets) + 1)

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Count. Raises KeyError for a name or label value that the catalogue does not have."""
        self._sums[name, labels] += max(by, 0.0)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Put a value into its bucket. Raises KeyError as `add` does."""
        key = (name, labels)
        self._sums[key] += value
        self._buckets[key][bisect_left(BY_NAME[name].buckets, value)] += 1

    def counted(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        """Label values and sum of each series of a counter."""
        return ((series, self._sums[metric.name, series]) for series in metric.series)

    def distributed(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], list[tuple[str, float]], float]]:
        """Label values, cumulative buckets by upper bound, and sum of each series of a histogram."""
        bounds = [*(repr(bound) for bound in metric.buckets), "+Inf"]
        for series in metric.series:
            total, upto = 0, []
            for bound, count in zip(bounds, self._buckets[metric.name, series], strict=True):
                total += count
                upto.append((bound, float(total)))
            yield series, upto, self._sums[metric.name, series]

    def restore(self, families: Iterable[Any]) -> None:
        """Go on from what was exported: families as prometheus_client parses them. What is not known is passed over."""
        samples = {(one.name, tuple(sorted(one.labels.items()))): one.value for fam in families for one in fam.samples}

        def found(name: str, labels: dict[str, str]) -> float:
            return float(samples.get((name, tuple(sorted(labels.items()))), 0.0))

        for metric in CUMULATIVE:
            for series in metric.series:
                labels = dict(zip(metric.labels, series, strict=True))
                name = metric.full_name if metric.kind == COUNTER else f"{metric.full_name}_sum"
                self._sums[metric.name, series] = found(name, labels)
                if metric.kind != COUNTER:
                    bounds = (*(repr(bound) for bound in metric.buckets), "+Inf")
                    upto = [found(f"{metric.full_name}_bucket", labels | {"le": bound}) for bound in bounds]
                    steps = [max(int(b - a), 0) for a, b in zip([0.0, *upto], upto, strict=False)]
                    self._buckets[metric.name, series] = steps
