"""What a policy's look at the queue costs by pending jobs, and what POP saves and loses by its number of parts.

python -m bench.policies                 prints the tables of every policy there is
python -m bench.policies --write         puts them into bench/RESULTS.md, in the place of those there
"""

from __future__ import annotations

import argparse
import platform
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched import registry
from slurmsched.allocation import programmes, space_sharing
from slurmsched.allocation.programmes import AllocationProblem, solve_in_groups
from slurmsched.allocation.water_filling import max_min
from slurmsched.estimators.throughput_table import kinds, model_and_batch, throughput_table
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Past, Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.policies.best_scaling import BestScaling
from slurmsched.policies.heet import Heet
from slurmsched.testing import snapshot

RESULTS = Path(__file__).parent / "RESULTS.md"
HEADING = "## Policies"
TYPES = ("k80", "p100", "v100")
ROUNDS, LONG_S = 5, 3.0  # measurements of each; one alone where it takes longer
POP_JOBS, POP_PARTS = 2_048, (1, 2, 4, 8)
SHARED, SHARED_JOBS = ("max-min", "makespan", "ftf"), (100, 300, 1_000)
MODELLED = ("gandiva", "muri", "co-scheml", "iadeep", "introspective")  # policies whose queue is of Gavel's models
WIDE_GPUS = 2_000
PAIR_JOBS, PAIR_GPUS = 256, 24  # GPUs of each type


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="policies; all without any")
    parser.add_argument("--jobs", type=int, nargs="*", default=[100, 1_000, 10_000], help="pending jobs")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/RESULTS.md")
    options = parser.parse_args()
    text = "\n".join(_lines(options.names or registry.plugin_names("policies"), options.jobs, not options.names))
    print(text)
    if options.write:
        RESULTS.write_text(_placed(RESULTS.read_text(encoding="utf-8"), text), encoding="utf-8")


def _lines(names: tuple[str, ...] | list[str], jobs: list[int], others: bool) -> Iterator[str]:
    yield f"{HEADING}\n"
    yield (
        f"`python -m bench.policies`, CPU time of this process alone, median of {ROUNDS}; one where it takes longer "
        f"than {LONG_S:g} s. Pending jobs only, half with deadlines and sizes, on 100 nodes of 8 GPUs of three types; "
        f"default parameters. {', '.join(MODELLED)}: of one GPU and Gavel's models, or no two could share GPUs. "
        f"numpy {version('numpy')}, scipy {version('scipy')}, CPython {platform.python_version()}. "
        "Growth: time of a first look against jobs over the last step, as a power; 1 = linear.\n"
    )
    yield "| policy | " + " | ".join(f"{count:,}: first / next look [ms]" for count in jobs) + " | growth |"
    yield "| --- |" + " ---: |" * (len(jobs) + 1)
    for name in names:
        times_s = [measured(name, count) for count in jobs]
        cells = " | ".join(f"{1e3 * first:,.1f} / {1e3 * after:,.1f}" for first, after in times_s)
        yield f"| {name} | {cells} | {_growth(jobs, [first for first, _ in times_s])} |"
    if "best-scaling" in names:
        yield from _wide()
    if not others:
        return
    yield "\ngavel with `accounts = true`, twenty accounts; their jobs share alike, or in turn:\n"
    yield "| accounts | " + " | ".join(f"{count:,}: first / next look [ms]" for count in jobs) + " |"
    yield "| --- |" + " ---: |" * len(jobs)
    for in_turn in ((), ("*",)):
        each = [measured("gavel", count, {"accounts": True, "in_turn": in_turn}) for count in jobs]
        cells = " | ".join(f"{1e3 * first:,.1f} / {1e3 * after:,.1f}" for first, after in each)
        yield f"| {'in turn' if in_turn else 'alike'} | {cells} |"
    yield f"\nPOP on the programme of max-min fairness, {POP_JOBS:,} jobs on 800 GPUs of three types:\n"
    yield "| parts | solve time [s] | least gain over the exact one | sum of gains over the exact one |"
    yield "| ---: | ---: | ---: | ---: |"
    yield from _pop()
    yield (
        f"\nThe same with a variable for each pair of jobs that may share GPUs, {PAIR_JOBS} jobs of Gavel's table on "
        f"{3 * PAIR_GPUS} GPUs of three types:\n"
    )
    yield "| parts | solve time [s] | exact over it | least over exact | mean over exact | least over no pairs |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    yield from _paired_pop()
    yield (
        f"\nGavel with `space_sharing`, an allocation of jobs of one GPU of Gavel's table that have waited, on "
        f"{3 * PAIR_GPUS} GPUs of three types, in groups of at most {space_sharing.GROUP} jobs (POP):\n"
    )
    yield "| jobs | groups | pairs that gain | " + " | ".join(f"{name} [s]" for name in SHARED) + " |"
    yield "| ---: | ---: | ---: |" + " ---: |" * len(SHARED)
    yield from _shared()
    yield (
        "\nHeet, a look at jobs of the queue above that were tried on all three types, of the hint `mixed=yes`; the "
        f"matching has {Heet().most_jobs} of them at most:\n"
    )
    yield "| jobs | each on one type [ms] | with `mixed` [ms] |"
    yield "| ---: | ---: | ---: |"
    yield from _mixed()


def measured(name: str, jobs: int, parameters: Mapping[str, Any] | None = None) -> tuple[float, float]:
    """CPU time of a first look at a queue of this many jobs, and of the next one a minute later [s]."""
    policy, given = registry.make_plugin("policies", name, parameters), queue(jobs, models=name in MODELLED)
    policy.rank(queue(3))  # what is loaded or compiled once
    first: list[float] = []
    after: list[float] = []
    while len(first) < ROUNDS and not (first and first[0] > LONG_S):
        began_s = time.process_time()
        carry = policy.rank(given).carry
        between_s = time.process_time()
        policy.rank(replace(given, carry=carry, now_s=given.now_s + 60.0))
        first.append(between_s - began_s)
        after.append(time.process_time() - between_s)
    return statistics.median(first), statistics.median(after)


def queue(jobs: int, *, models: bool = False) -> Snapshot:
    """A queue of pending jobs of all sizes and lengths; the same for the same number. models: of one GPU each, of a
    model of Gavel's table."""
    chance = np.random.default_rng(jobs)
    nodes = [{"name": f"n{n:03}", "gpus": 8, "gpu_types": f"gpu:{TYPES[n % 3]}:8"} for n in range(100)]
    rows = [
        {"job_id": n, "gpus": int(2 ** chance.integers(0, 4)), "submit_s": float(60 * n), "user": f"u{n % 50}",
         "account": f"a{n % 20}", "name": f"job{n % 200}",
         "comment": _hints(chance)}
        for n in range(1, jobs + 1)
    ]  # fmt: skip
    if models:
        rows = [{**row, "gpus": 1, "comment": hint} for row, hint in zip(rows, _models(chance, jobs), strict=True)]
    ended = 1_000
    past = Past.build(ended, {
        "gpus": [1] * ended, "executed_s": chance.lognormal(7, 1, ended), "user": [f"u{n % 50}" for n in range(ended)],
        "name": [f"job{n % 200}" for n in range(ended)], "end_s": np.arange(ended, dtype=np.float64),
    })  # fmt: skip
    history = np.sort(chance.lognormal(7, 2, ended))
    return snapshot(rows, nodes, now_s=60.0 * jobs + 3_600.0, past=past, history_gpu_s=history)


def _hints(chance: np.random.Generator) -> str:
    """What a job tells: its run time and progress, half of them a deadline and sizes too."""
    minutes = int(chance.integers(5, 600))
    told = f"slurmsched: dur={minutes}m progress={chance.integers(0, 9)}/10"
    if chance.random() < 0.5:
        return told
    return f"{told} deadline=+{int(minutes * chance.uniform(1.2, 40))}m min_gpus=1 max_gpus=8"


def _models(chance: np.random.Generator, jobs: int) -> list[str]:
    """Hints of jobs of one GPU, of all models in Gavel's table."""
    models = [model for model, gpus in kinds(throughput_table("gavel")) if gpus == 1]
    hints = []
    for model, batch in (model_and_batch(models[k]) for k in chance.integers(0, len(models), jobs)):
        hints.append("slurmsched: " + (f"batch={batch} " if batch else "") + f"model={model}")
    return hints


def _wide() -> Iterator[str]:
    """CPU time of best-scaling by number of jobs that may have any size."""
    yield f"\nbest-scaling on {WIDE_GPUS:,} GPUs, each job from 1 to {WIDE_GPUS:,}:\n"
    yield "| jobs | a round [s] |"
    yield "| ---: | ---: |"
    hints = f"slurmsched: min_gpus=1 max_gpus={WIDE_GPUS}"
    for jobs in (100, 300):
        given = snapshot([{"gpus": 1, "comment": hints}] * jobs, f"{WIDE_GPUS // 8}x8")
        began_s = time.process_time()
        BestScaling().rank(given)
        yield f"| {jobs} | {time.process_time() - began_s:.2f} |"


def _mixed() -> Iterator[str]:
    """CPU time of a round's first look by number of jobs."""
    for jobs in SHARED_JOBS:
        given, times_s = tried(jobs), dict[bool, list[float]]()
        for mixed in (False, True) * ROUNDS:
            began_s = time.process_time()
            Heet(mixed=mixed).rank(given)
            times_s.setdefault(mixed, []).append(time.process_time() - began_s)
        cells = " | ".join(f"{1e3 * statistics.median(times_s[mixed]):,.0f}" for mixed in (False, True))
        yield f"| {jobs:,} | {cells} |"


def tried(jobs: int) -> Snapshot:
    """The queue when Heet has seen every job on every type, half of them twice as fast as on another one."""
    given, chance = queue(jobs), np.random.default_rng(jobs)
    hints = [f"{comment} mixed=yes" for comment in given.jobs.comment]
    given = replace(given, jobs=given.jobs.with_columns(comment=hints))
    carry, none = dict(Heet().rank(given).carry), [0.0] * jobs
    for name in TYPES:
        carry |= {f"gpus {name}": none, f"took {name}": [360.0] * jobs,
                  f"made {name}": chance.choice([0.01, 0.02], jobs).tolist()}  # fmt: skip
    return replace(given, carry=carry, now_s=given.now_s + 360.0)


def _growth(jobs: list[int], times_s: list[float]) -> str:
    if len(jobs) < 2 or min(times_s[-2:]) <= 0:
        return ""
    return f"{np.log(times_s[-1] / times_s[-2]) / np.log(jobs[-1] / jobs[-2]):.2f}"


def _pop() -> Iterator[str]:
    """A row for each number of parts."""
    chance = np.random.default_rng(7)
    speed = np.column_stack([chance.uniform(0.1, 0.6, POP_JOBS), chance.uniform(0.4, 0.9, POP_JOBS), np.ones(POP_JOBS)])
    gpus = 2.0 ** chance.integers(0, 4, POP_JOBS)
    given = AllocationProblem(
        np.array([264.0, 272.0, 264.0]), gpus, speed, np.full(POP_JOBS, 3_600.0), np.zeros(POP_JOBS), np.ones(POP_JOBS)
    )
    fair = (programmes.equal_split(given) * speed).sum(axis=1)
    exact: tuple[float, float] | None = None
    for parts in POP_PARTS:
        began = time.process_time()
        share = solve_in_groups(max_min, given, parts, seed=0)
        took_s = time.process_time() - began
        gain = (share * speed).sum(axis=1) * gpus / fair
        found = float(gain.min()), float(gain.sum())
        exact = exact or found
        yield f"| {parts} | {took_s:.2f} | {found[0] / exact[0]:.4f} | {found[1] / exact[1]:.4f} |"


def _paired_pop() -> Iterator[str]:
    """A row for each number of parts, with pairs."""
    given, first, second, kept = _paired(PAIR_JOBS)
    _, alone = programmes.raise_least(given, given.speed * programmes.throughput_weight(given)[:, None])
    exact: tuple[float, float] | None = None
    for parts in POP_PARTS:
        began, levels = time.process_time(), np.zeros(0)
        for rows in np.array_split(np.random.default_rng(0).permutation(PAIR_JOBS), parts):
            inside = np.isin(first, rows) & np.isin(second, rows)
            order = np.sort(rows)
            part = replace(given.take(order), capacity=given.capacity / parts)
            ends = (np.searchsorted(order, each[inside]) for each in (first, second))
            levels = np.append(
                levels, space_sharing.max_min_level(part, space_sharing.worthwhile_pairs(part, *ends, kept[inside]))[2]
            )
        took_s, least = time.process_time() - began, float(levels.min())
        exact = exact or (took_s, least)
        yield (f"| {parts} | {took_s:.2f} | {exact[0] / took_s:.1f} | {least / exact[1]:.4f} "
               f"| {levels.mean() / exact[1]:.4f} | {least / alone:.3f} |")  # fmt: skip


def _shared() -> Iterator[str]:
    """A row for each number of jobs."""
    for jobs in SHARED_JOBS:
        given, first, second, kept = _paired(jobs)
        chance = np.random.default_rng(jobs)
        given = replace(given, remaining_s=chance.lognormal(8, 1, jobs), elapsed_s=chance.uniform(0, 20_000, jobs))
        table = np.zeros((jobs, jobs, *kept.shape[1:]))
        table[first, second] = kept
        gains, times_s = len(space_sharing.worthwhile_pairs(given, first, second, kept).first), list[float]()
        for objective in SHARED:
            began = time.process_time()
            space_sharing.allocate_with_pairs(objective, given, lambda one, two, table=table: table[one, two], jobs, 0)  # type: ignore[misc]
            times_s.append(time.process_time() - began)
        cells = " | ".join(f"{took_s:.2f}" for took_s in times_s)
        yield f"| {jobs:,} | {-(-jobs // space_sharing.GROUP)} | {gains:,} | {cells} |"


def _paired(jobs: int) -> tuple[AllocationProblem, Int64s, Int64s, Floats]:
    """Jobs of one GPU of all models in Gavel's table, their pairs, and the speed that each keeps in them."""
    chance, speeds = np.random.default_rng(7), Throughputs("gavel")
    hints = _models(chance, jobs)
    here = snapshot([{"job_id": n, "gpus": 1, "comment": hint} for n, hint in enumerate(hints, 1)])
    given = AllocationProblem(np.full(3, float(PAIR_GPUS)), np.ones(jobs), speeds.speeds(here, TYPES),
                    *[np.ones(jobs)] * 3)  # fmt: skip
    first, second = space_sharing.possible_pairs(given.gpus)
    return given, first, second, speeds.shared_speeds(here, first, second, TYPES)


def _placed(whole: str, text: str) -> str:
    """The page with this section, in the place of the one there or at its end."""
    parts = re.split(r"(?m)^(?=## )", whole)
    kept = [part.rstrip() for part in parts if not part.startswith(HEADING)]
    return "\n\n".join([*kept, text]) + "\n"


if __name__ == "__main__":
    main()
