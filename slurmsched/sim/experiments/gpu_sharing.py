"""The experiment of FGD: requests of parts of GPUs fill a cluster, and none ever leaves."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from statistics import fmean

import numpy as np

from slurmsched.errors import InputError
from slurmsched.kernels.gpu_share_fit import (
    BEST_FIT,
    CLUSTERING,
    DOT_PRODUCT,
    FRAGMENTS,
    PACKING,
    RANDOM,
    WHOLE,
    SharedNodes,
    ShareRequests,
    most_frequent,
    place_shares,
)
from slurmsched.model.columns import Floats, Int64s

RULES = {
    "share-random": RANDOM, "dot-product": DOT_PRODUCT, "gpu-clustering": CLUSTERING, "gpu-packing": PACKING,
    "share-best-fit": BEST_FIT, "fgd": FRAGMENTS,
}  # fmt: skip
RATIO = 1.3  # GPUs of all requests over those of the cluster
AT_PCT = (60, 100, 130)  # arrived GPUs over those of the cluster
FIRST_SEED = 42
TYPICAL_PCT = 95.0  # the most frequent kinds of request that make up this share of all


@dataclass(frozen=True, slots=True, eq=False)
class RequestMix:
    """Kinds of requests of a workload. kinds: (K,) each. count: (K,) how many there are of each."""

    kinds: ShareRequests
    count: Int64s

    @classmethod
    def of(cls, workload: str) -> RequestMix:
        """A shipped one. Raises InputError for an unknown one."""
        rows = [row for row in _rows("fgd_requests.csv.gz") if row["workload"] == workload]
        if not rows:
            raise InputError(f"no workload of FGD called {workload!r}")
        whole = {name: np.array([int(row[name]) for row in rows], np.int64) for name in list(rows[0])[1:5]}
        types = _types()
        fits = np.array([[not row["gpu_spec"] or name in row["gpu_spec"].split("|") for name in types] for row in rows])
        kinds = ShareRequests(
            whole["num_gpu"], whole["gpu_milli"], whole["cpu_milli"] / 1000, whole["memory_mib"] / 1.0, fits
        )
        return cls(kinds, np.array([int(row["pods"]) for row in rows], np.int64))

    @property
    def gpu_milli(self) -> Int64s:
        """Thousandths of GPUs of a request of each kind. (K,)."""
        return self.kinds.gpus * self.kinds.gpu_milli

    def typical(self) -> tuple[ShareRequests, Floats]:
        """The most frequent kinds, memory left aside, and how probable each is. Source: FGD, section 3.2."""
        kinds = self.kinds
        cpu_milli = np.rint(kinds.cpus * 1000).astype(np.int64)
        columns = np.column_stack([kinds.gpus, kinds.gpu_milli, cpu_milli, kinds.fits])
        distinct, first, at = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        count = np.bincount(at.reshape(-1), self.count, len(distinct))
        often, weight = most_frequent(count, TYPICAL_PCT)
        rows = first[often]
        made = ShareRequests(
            kinds.gpus[rows], kinds.gpu_milli[rows], kinds.cpus[rows], kinds.memory_mib[rows], kinds.fits[rows]
        )
        return made, weight

    def arrivals(self, total_milli: int, chance: np.random.Generator) -> Int64s:
        """Kinds of requests in the order in which they come. (M,).

        All of the workload comes in random order. Then more of it comes, or some is taken away, so that they ask for
        RATIO times that many thousandths of GPUs.
        """
        rows, target = np.repeat(np.arange(len(self.count)), self.count), RATIO * total_milli
        order = chance.permutation(rows)
        asked = int(self.gpu_milli[order].sum())
        if asked > target:
            gone = chance.permutation(len(order))
            most = int(np.searchsorted(np.cumsum(self.gpu_milli[order[gone]]), asked - target))
            return np.delete(order, gone[: most + 1])
        more = chance.choice(rows, size=2 * len(rows))
        asked_by = asked + np.cumsum(self.gpu_milli[more])
        return np.concatenate([order, more[asked_by <= target]])


def _rows(name: str) -> list[dict[str, str]]:
    source = files("slurmsched.sim.traces").joinpath("shipped", name).read_bytes()
    text = gzip.decompress(source) if name.endswith(".gz") else source
    return list(csv.DictReader(io.StringIO(text.decode())))


@lru_cache
def _types() -> tuple[str, ...]:
    return tuple(sorted({row["model"] for row in _rows("fgd_nodes.csv")}))


def cluster(chance: np.random.Generator) -> SharedNodes:
    """The 1,213 GPU nodes of openb-2023, empty, in random order."""
    rows = _rows("fgd_nodes.csv")
    each = [[_types().index(row["model"]), *(int(row[name]) for name in list(row)[1:4])] for row in rows]
    table = np.repeat(np.array(each, np.int64), [int(row["nodes"]) for row in rows], axis=0)
    gpu_type, gpus, cpu_milli, memory_mib = np.ascontiguousarray(chance.permutation(table).T)
    free = np.where(np.arange(gpus.max()) < gpus[:, np.newaxis], WHOLE, 0)
    held = np.zeros((len(gpus), gpus.max() + 1), np.int64)
    most = np.array([cpu_milli.max() / 1000, float(gpus.max() * WHOLE)])
    return SharedNodes(free, gpus, cpu_milli / 1000, memory_mib / 1.0, gpu_type, held, most)


def shared_gpu_figures(workload: str, rule: str, runs: int) -> Mapping[str, float]:
    """Means over that many runs of GPU allocation and fragments [% of all GPUs] when that many GPUs were asked for.

    Raises InputError for an unknown workload or rule.
    """
    if rule not in RULES:
        raise InputError(f"no rule called {rule!r}; there are {', '.join(RULES)}")
    made = [_one_run(RequestMix.of(workload), rule, seed) for seed in range(FIRST_SEED, FIRST_SEED + runs)]
    return {name: fmean(each[name] for each in made) for name in made[0]}


def _one_run(mix: RequestMix, rule: str, seed: int) -> dict[str, float]:
    """One run. At x % arrived is the mean over the requests at which that rounds to x, as its authors count."""
    chance = np.random.default_rng(seed)
    nodes = cluster(chance)
    total = int(nodes.free.sum())
    wanted = mix.arrivals(total, chance)
    arrived = np.rint(100 * np.cumsum(mix.gpu_milli[wanted]) / total)
    draws = chance.random((len(wanted), 2))
    _, _, free, lost = place_shares(wanted, mix.kinds, nodes, *mix.typical(), RULES[rule], draws)
    figures = {}
    for pct in AT_PCT:
        at = arrived == pct
        figures[f"allocated_{pct}_pct"] = 100 - 100 * float(free[at].mean()) / total
        figures[f"fragments_{pct}_pct"] = 100 * float(lost[at].mean()) / total
    return figures
