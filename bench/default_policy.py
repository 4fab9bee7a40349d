"""Which policy `slurmsched init` proposes: measured in the model of slurmctld on public traces, by nice alone.

    python -m bench.default_policy TRACES [--trace NAME ...] [--policy NAME ...] [--out FILE]

From the repository root. TRACES: a folder with the files named in CASES. Every figure is against Slurm alone at the
same site, whose priority weights are those of `SITES`. Nobody is preempted: jobs run once, to their end.

Users and QOS are made up where the trace has none, seeded: a few heavy and many light users (Zipf), whose jobs come
in bursts, and one job in ten in a QOS of its own that goes first. Clusters are of 8-GPU nodes, as many as keep 90 % of
the GPUs busy while jobs come. Results are kept in --out, one JSON line each, and not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched import logs
from slurmsched.cycle import run_cycle
from slurmsched.model.columns import Labels
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.observe.fairness import JobTenants
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.site_history import CANDIDATES, GroupLoss, PolicyVerdict, policy_verdict
from slurmsched.sim.experiments.slurmctld_setup import slurm_setup
from slurmsched.sim.traces.trace_io import load_trace, sample_trace

LOAD, NODE_GPUS, SEED = 0.9, 8, 1
USERS, BURST = 20, 0.7  # a job is of the user of the one before it with this chance
HIGH_QOS = 0.1  # share of jobs in the QOS that goes first
INTERVAL_S, AGAIN_S = 60.0, 3_600.0  # a cycle at most so often, where jobs came or ended; and at least so often


@dataclass(frozen=True, slots=True)
class Case:
    """A public trace: its file, which of its jobs, and how many nodes the cluster has."""

    name: str
    file: str
    first: int = 0
    jobs: int = 10**9
    nodes: int = 0  # 0: as many as LOAD needs


CASES = (
    Case("Philly, ee9e8c, 2 weeks", "traces/common/philly_ee9e8c_2w.csv", nodes=20),
    Case("Philly, 6c71a0, 2 weeks", "", nodes=4),  # the trace of `slurmsched demo`
    Case("ElasticFlow cluster 1, 500 jobs", "deadlines/elasticflow_cluster01.csv.gz", 0, 500),
    Case("ElasticFlow cluster 5, 500 jobs", "deadlines/elasticflow_cluster05.csv.gz", 500, 500, nodes=3),
    Case("ElasticFlow cluster 6, 500 jobs", "deadlines/elasticflow_cluster06.csv.gz", 300, 500),
    Case("ElasticFlow cluster 10", "deadlines/elasticflow_cluster10.csv.gz"),
    Case("Muri, trace 3, 250 jobs", "traces/common/muri_trace3.csv", 0, 250, nodes=8),
    Case("Pollux, workload 6", "traces/common/pollux_w6_fixed.csv", nodes=8),
    Case("Shockwave, 120 jobs", "traces/common/shockwave_120_fixed.csv", nodes=4),
)
SITES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "QOS and fair share": (
        {"PriorityWeightAge": 1_000, "PriorityWeightFairShare": 10_000, "PriorityWeightQOS": 20_000},
        ("qos", "fair_share:4"),
    ),
    "age only": ({"PriorityWeightAge": 1_000}, ()),
}


def trace_of(case: Case, folder: Path) -> Trace:
    """The jobs of a case, with users, QOS and time limits."""
    whole = load_trace(folder / case.file).trace if case.file else sample_trace()
    jobs = whole.take(slice(case.first, case.first + case.jobs))
    jobs = jobs.with_columns(submit_s=jobs.submit_s - jobs.submit_s[0]).with_user_limits(SEED)
    chance = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, USERS + 1)
    drawn = chance.choice(USERS, len(jobs), p=weights / weights.sum())
    new = chance.random(len(jobs)) >= BURST
    new[0] = True
    user = drawn[np.maximum.accumulate(np.where(new, np.arange(len(jobs)), 0))]
    qos = np.where(chance.random(len(jobs)) < HIGH_QOS, "high", "normal")
    names = [f"u{number:02}" for number in user.tolist()]
    return jobs.with_columns(user=Labels.of(names), account=Labels.of(names), qos=Labels.of(qos.tolist()))


def nodes_of(trace: Trace) -> int:
    """Nodes of which LOAD are busy while jobs come; at least as many as the largest job needs."""
    span_s = max(float(trace.submit_s[-1] - trace.submit_s[0]), 1.0)
    gpus = float((trace.gpus * trace.duration_s).sum()) / span_s / LOAD
    return max(math.ceil(gpus / NODE_GPUS), math.ceil(int(trace.gpus.max()) / NODE_GPUS))


def cluster_file(folder: Path, nodes: int, slurm: dict[str, Any]) -> Path:
    """The site as a TOML file."""
    lines = ["[[nodes]]", f"count = {nodes}", f"gpus = {NODE_GPUS}", f"cpus = {8 * NODE_GPUS}",
             '[[partitions]]', 'name = "gpu"', 'billing = "GRES/gpu=1"',
             '[[qos]]', 'name = "normal"', '[[qos]]', 'name = "high"', "priority = 100",
             "[slurm]", 'PriorityMaxAge = "7-0"', 'PriorityDecayHalfLife = "7-0"',
             'SchedulerParameters = "bf_continue"', *(f"{key} = {value}" for key, value in slurm.items())]  # fmt: skip
    path = folder / "site.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def played(trace: Trace, request: ReplayRequest) -> JobOutcomes:
    """What becomes of every job under a request. Cycles in which nothing came or ended are left out, to save time."""
    made = slurm_setup(trace, cluster_of(request.cluster, trace), request)
    cluster, seen, planned_s = made.replayed.cluster, None, -math.inf
    while not cluster.finished:
        cluster.advance(max(cluster.now_s + INTERVAL_S, min(cluster.next_event_s, cluster.now_s + AGAIN_S)))
        now = (cluster.waiting, cluster.ended)
        if made.planner and cluster.waiting and (now != seen or cluster.now_s >= planned_s + AGAIN_S):
            run_cycle(cluster, made.planner, made.store)
            seen, planned_s = now, cluster.now_s
    return made.replayed.outcomes


def runs(
    folder: Path, cases: Sequence[Case], policies: Sequence[str], done: set[tuple[str, str, str]]
) -> Iterator[dict[str, Any]]:
    """A row for each case, site and policy that is not done."""
    for case in cases:
        trace = trace_of(case, folder)
        for site, (weights, tiers) in SITES.items():
            todo = [policy for policy in policies if (case.name, site, policy) not in done]
            if not todo:
                continue
            with tempfile.TemporaryDirectory() as place:
                path = cluster_file(Path(place), case.nodes or nodes_of(trace), weights)
                plain = ReplayRequest(cluster=str(path), model="slurm", policy="slurm", requeue=False)
                slurm, tenants = played(trace, plain), JobTenants.find(trace)
                for policy in todo:
                    ours = played(trace, replace(plain, policy=policy, tiers=tiers))
                    row = policy_verdict(policy, trace, tenants, ours, slurm)
                    yield {
                        "case": case.name,
                        "site": site,
                        "slurm_h": float(slurm.delay_s.mean()) / 3_600,
                        **asdict(row),
                    }


HEADING = ("policy", "mean wait", "p95 wait", "p99 JCT", "mean wait, worst trace", "user that loses most",
           "size that loses most", "traces where somebody clearly loses", "same as Slurm")  # fmt: skip


def table(rows: Sequence[PolicyVerdict]) -> list[str]:
    """A line a policy: geometric means over the traces, and the worst of them."""
    made = [f"| {' | '.join(HEADING)} |", f"| --- |{' ---: |' * (len(HEADING) - 1)}"]
    for policy in dict.fromkeys(row.policy for row in rows):
        made.append(f"| {' | '.join(cells(policy, [row for row in rows if row.policy == policy]))} |")
    return made


def cells(policy: str, rows: Sequence[PolicyVerdict]) -> list[str]:
    """The cells of HEADING."""
    means = [math.exp(float(np.mean([math.log(getattr(row, name)) for row in rows])))
             for name in ("mean_wait", "p95_wait", "p99_jct")]  # fmt: skip
    users, sizes = [row.user for row in rows], [row.size for row in rows]
    lost = (str(max(losses, key=lambda loss: loss.change_h)) for losses in (users, sizes))
    return [policy, *(f"{mean:.2f}" for mean in means), f"{max(row.mean_wait for row in rows):.2f}", *lost,
            f"{sum(not row.harmless for row in rows)} of {len(rows)}", f"{sum(row.same for row in rows)}"]  # fmt: skip


def each(rows: Sequence[dict[str, Any]], site: str) -> list[str]:
    """A line a trace: Slurm's mean wait, and each policy's over it; `!` where somebody clearly loses."""
    mine = [row for row in rows if row["site"] == site]
    policies = list(dict.fromkeys(row["policy"] for row in mine))
    made = [f"| trace | Slurm, mean wait [h] | {' | '.join(policies)} |", f"| --- |{' ---: |' * (len(policies) + 1)}"]
    for case in dict.fromkeys(row["case"] for row in mine):
        found = {row["policy"]: read(row) for row in mine if row["case"] == case}
        slurm_h = next(row["slurm_h"] for row in mine if row["case"] == case)
        shown = [f"{found[name].mean_wait:.2f}{'' if found[name].harmless else '!'}" if name in found else ""
                 for name in policies]  # fmt: skip
        made.append(f"| {case} | {slurm_h:.2f} | {' | '.join(shown)} |")
    return made


def read(row: dict[str, Any]) -> PolicyVerdict:
    """The row as it was judged."""
    known = {spec.name: row[spec.name] for spec in fields(PolicyVerdict)}
    return PolicyVerdict(**known | {name: GroupLoss(**row[name]) for name in ("user", "size")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--trace", action="append", default=[], help="cases whose name begins so")
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("build/default_policy.jsonl"))
    options = parser.parse_args()
    logs.configure("warning")
    cases = [case for case in CASES if not options.trace or case.name.startswith(tuple(options.trace))]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(row["case"], row["site"], row["policy"]) for row in rows}
    with options.out.open("a") as file:
        for row in runs(options.traces, cases, options.policy or CANDIDATES, done):
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
    for site in SITES:
        print(f"### {site}\n")
        print("\n".join(table([read(row) for row in rows if row["site"] == site])) + "\n")
        print("\n".join(each(rows, site)) + "\n")


if __name__ == "__main__":
    main()
