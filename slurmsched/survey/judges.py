"""The rules of `advise`, one a function: which jobs break it, the GPU hours at stake, and the option to write.

Source of the facts on options: Slurm's sbatch and gres.conf manual pages; what a rule counts is ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmsched.model.gres import parse_gres
from slurmsched.model.hints import parse_hints, shortened
from slurmsched.survey.case import Case
from slurmsched.survey.sets import largest_linked
from slurmsched.survey.stock import whole_types

LONG_S = 86_400.0  # without a checkpoint: jobs of at least a day
RUNS = 10  # of a user in a partition, below which they tell nothing
SHORTER = 4.0  # a limit so many times the usual run time is too long

Caught = tuple[int, float, str]  # row of the job, GPU hours at stake, the option to write


def per_task(case: Case) -> Iterator[Caught]:
    for row in case.rows:
        at = case.how(row)
        if at >= 0 and "gpu" in case.asked.per_task[at] and case.asked.tasks[at] > 1:
            gpus, nodes = case.gpus(row), case.nodes(row)
            yield row, gpus * case.hours(row), f"--gpus-per-node={-(-gpus // nodes)}, no --gpus-per-task"


def _array(case: Case, row: int) -> bool:
    return bool(case.snapshot.jobs.array_job_id[row]) and case.gpus(row) == 1


def _lost_beside(case: Case, row: int) -> int:
    """GPUs of its nodes that nobody else can have while it runs."""
    shut_out = case.whole_memory(row) or case.exclusive(row)
    return case.beside(row) if shut_out else case.spare_cpu_gpus(row)


def _gpu_memory(case: Case, row: int) -> str:
    """ "60G": a GPU's share of its node's memory, a tenth left out for the system."""
    node, nodes = case.node(row), case.snapshot.nodes
    return f"{max(1, int(0.9 * nodes.memory_mib[node] / max(1, nodes.gpus[node]) / 1024))}G"


def memory(case: Case) -> Iterator[Caught]:
    for row in case.rows:
        if case.gpus(row) and case.whole_memory(row) and not _array(case, row) and (lost := case.beside(row)):
            yield row, lost * case.hours(row), f"--mem-per-gpu={_gpu_memory(case, row)}"


def cpus(case: Case) -> Iterator[Caught]:
    for row in case.rows:
        if case.gpus(row) and not case.exclusive(row) and not _array(case, row) and (lost := case.spare_cpu_gpus(row)):
            yield row, lost * case.hours(row), f"--cpus-per-gpu={case.cpu_share(row)}"


def exclusive(case: Case) -> Iterator[Caught]:
    for row in case.rows:
        if case.gpus(row) and case.exclusive(row) and not _array(case, row) and (lost := case.beside(row)):
            yield row, lost * case.hours(row), "no --exclusive, or all GPUs of the node"


def arrays(case: Case) -> Iterator[Caught]:
    for row in case.rows:
        if _array(case, row) and (lost := _lost_beside(case, row)):
            change = f"--gpus=1 --cpus-per-gpu={case.cpu_share(row)} --mem-per-gpu={_gpu_memory(case, row)}"
            yield row, lost * case.hours(row), change


def islands(case: Case) -> Iterator[Caught]:
    jobs = case.snapshot.jobs
    for row in case.rows:
        topo, one = parse_hints(jobs.comment[row]).topo, case.topology(row)
        if topo not in ("nvlink", "numa") or one is None:
            continue
        each = -(-case.gpus(row) // case.nodes(row))
        numa = one.numa[one.numa >= 0].tolist()
        most = largest_linked(one, (1 << one.gpus) - 1) if topo == "nvlink" else max(map(numa.count, numa), default=0)
        if 0 < most < each:
            word = "topo=any" if most == 1 else f"--gpus-per-node={most}, or topo=any"
            yield row, case.gpus(row) * case.hours(row), word


def types(case: Case) -> Iterator[Caught]:
    nodes, of = case.snapshot.nodes, dict[str, set[str]]()
    for names, text in zip(nodes.partitions, nodes.gpu_types, strict=True):
        for name in names.split(","):
            of.setdefault(name, set()).update(whole_types(text))
    for row in case.rows:
        kinds = of.get(case.partition(row), set()) - {""}
        named = any(entry.type for entry in parse_gres(case.snapshot.jobs.gpu_request[row]))
        if case.gpus(row) > 1 and case.nodes(row) > 1 and len(kinds) > 1 and not named:
            each = -(-case.gpus(row) // case.nodes(row))
            yield row, case.gpus(row) * case.hours(row), f"--gpus-per-node=TYPE:{each}, of {', '.join(sorted(kinds))}"


def limits(case: Case) -> Iterator[Caught]:
    partitions = case.snapshot.partitions
    longest = dict(zip(partitions.name, partitions.max_time_s.tolist(), strict=True))
    for row in case.rows:
        jobs, name = case.snapshot.jobs, case.partition(row)
        runs, limit = case.usual_s.get((jobs.user[row], name), ()), float(jobs.time_limit_s[row])
        if not jobs.pending[row] or len(runs) < RUNS or limit < longest.get(name, float("inf")):
            continue
        usual = runs[int(0.95 * (len(runs) - 1))]
        if limit > SHORTER * usual and case.gpus(row):
            hours = max(1, -(-int(2 * usual) // 3600))
            kept = (limit / 3600 - hours) * max(1, int(jobs.array_tasks[row]))
            yield row, case.gpus(row) * kept, f"--time={hours}:00:00"


def by_job(case: Case) -> Iterator[int]:
    """Rows of jobs that ask for some of the GPUs of one node of known wiring by --gpus."""
    for row in case.rows:
        at, one = case.how(row), case.topology(row)
        asks = at >= 0 and "gpu" in case.asked.per_job[at] and case.nodes(row) == 1
        if asks and one is not None and 1 < case.gpus(row) < one.gpus:
            yield row


def form(case: Case) -> Iterator[Caught]:
    for row in by_job(case):
        one = case.topology(row)
        per_node, per_job = case.shares.get(one.name if one else "", (0.0, 0.0))
        if per_node > per_job:
            yield row, case.gpus(row) * case.hours(row), f"--nodes=1 --gpus-per-node={case.gpus(row)}"


def checkpoint(case: Case) -> Iterator[Caught]:
    jobs = case.snapshot.jobs
    for row in case.rows if case.preempted else ():
        long = float(jobs.time_limit_s[row]) >= LONG_S and case.gpus(row) > 0
        if long and jobs.batch[row] and parse_hints(jobs.comment[row]).ckpt is None:
            change = '--requeue --comment="slurmsched: ckpt=USR1@120"'
            yield row, case.gpus(row) * case.hours(row), change


def no_gpu(case: Case) -> Iterator[Caught]:
    nodes, jobs = case.snapshot.nodes, case.snapshot.jobs
    bare: set[str] = set()
    for names, gpus in zip(nodes.partitions, nodes.gpus.tolist(), strict=True):
        bare.update(names.split(",") if not gpus else ())
    partitions = case.snapshot.partitions
    up = {name for name, is_up in zip(partitions.name, partitions.up.tolist(), strict=True) if is_up}
    others = ", ".join(sorted(bare & up))
    for row in case.rows:
        asks = int(jobs.gpus[row]) + int(jobs.mig_devices[row]) + int(jobs.shards[row])
        share = case.cpu_share(row)
        if not asks and share and case.partition(row) not in bare:
            blocked = min(case.beside(row), -(-int(jobs.cpus[row]) // share))
            yield row, blocked * case.hours(row), f"-p {others}" if others else "a partition of nodes without GPUs"


def hints(case: Case) -> Iterator[Caught]:
    jobs = case.snapshot.jobs
    for row in case.rows:
        if warnings := parse_hints(jobs.comment[row]).warnings:
            yield row, 0.0, shortened("; ".join(warnings))
