"""CPU time that each policy takes to rank a queue: a first look, and one a minute later with what it carries.

python -m bench.policies [JOBS ...]       pending jobs on 512 GPUs, all with run times, half with deadlines and sizes
"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import process_time

import numpy as np

from slurmsched import registry
from slurmsched.model import Snapshot
from slurmsched.testing import snapshot

SIZES = (100, 1_000, 10_000)


def main() -> None:
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    heads = [f"{count:,}: first / next look [CPU s]" for count in sizes]
    print(f"| policy | {' | '.join(heads)} |\n|---|{'---|' * len(sizes)}")
    queues = [queue(count) for count in sizes]
    for name in registry.names("policies"):
        cells = (" / ".join(f"{each:.3f}" for each in looks(name, given)) for given in queues)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def looks(name: str, given: Snapshot) -> list[float]:
    """CPU seconds of the first and of the next look."""
    policy = registry.make("policies", name)
    policy.rank(given)  # what is loaded at the first use is no part of it
    begun_s = process_time()
    carry = policy.rank(given).carry
    between_s = process_time()
    policy.rank(replace(given, carry=carry, now_s=given.now_s + 60.0))
    return [between_s - begun_s, process_time() - between_s]


def queue(count: int, seed: int = 1) -> Snapshot:
    """So many pending jobs."""
    chance = np.random.default_rng(seed)
    rows = []
    for job in range(count):
        hours = int(chance.integers(1, 20))
        hints = f"slurmsched: dur={hours}h progress={chance.integers(0, 10)}/10"
        if chance.random() < 0.5:
            hints += f" deadline=+{int(hours * chance.uniform(1.2, 40))}h min_gpus=1 max_gpus=8"
        rows.append({"gpus": int(2 ** chance.integers(0, 4)), "submit_s": float(job), "comment": hints,
                     "account": f"a{job % 5}"})  # fmt: skip
    return snapshot(rows, "64x8", now_s=float(count))


if __name__ == "__main__":
    main()
