"""`fit` on a real Slurm: what it says starts now does, there and on those GPUs; what it says waits, waits."""

from __future__ import annotations

import re

import pytest

from slurmsched.model.gpu_masks import mask_members
from slurmsched.model.gres import index_mask
from slurmsched.model.hostlists import expand_hostlist
from tests.live.gpu_nodes import MACHINES, install
from tests.live.lab import BINARY, run, until

pytestmark = [pytest.mark.live, pytest.mark.newest]
STARTS = ("--gpus-per-node=2 -N1", "--gpus-per-node=4 -N1 -c4", "--gpus=3 -N1", "--gpus-per-node=a100:2 -N2 --mem=4G",
          "--gpus=8", "--gpus-per-node=1 -C nvlink --mem-per-gpu=2G --cpus-per-gpu=3")  # fmt: skip
WAITS = ("--gpus-per-node=8 -N4", "--gpus-per-node=8 -w n1", "--gpus-per-node=1 -w n2",
         "--gpus-per-node=1 -w n3 --mem=1G", "--gpus-per-node=2 --mem=0 -w n1", "--gpus=30")  # fmt: skip


@pytest.fixture
def busy(fresh):
    """Each node of another machine: n1 has GPUs held, n2 no memory, n3 no CPU left, n4 is idle."""
    install({f"n{i + 1}": gpus for i, gpus in enumerate(MACHINES.values())})
    for options in ("-w n1 --gpus-per-node=1 -c2", "-w n1 --gpus-per-node=2", "-w n2 --gpus-per-node=1 --mem=0",
                    "-w n3 --gpus-per-node=1 -c64 --mem=1G"):  # fmt: skip
        submit(options)
    until(lambda: len(run("squeue", "-h", "-t", "R", "-o", "%A").out.split()) == 4, "four jobs run")


def submit(options: str) -> int:
    answer = run("sbatch", "--parsable", "--output=/dev/null", *options.split(), "--wrap=sleep 600", user="alice")
    return int(answer.out)


def asked(options: str, rc: int) -> dict:
    """What `fit` answers to anybody, with this exit code."""
    done = run(BINARY, "fit", *options.split(), "--json", user="alice", check=False)
    assert done.rc == rc, f"{options}: {done.out}{done.err}"
    return done.json()["fit"]


def shown(job: int) -> tuple[str, list[str], dict[str, list[int]]]:
    """State, nodes, and GPUs by node of a job."""
    text = run("scontrol", "-d", "show", "job", str(job)).out
    state, hosts = re.search(r"JobState=(\w+)", text), re.search(r"\n\s+NodeList=(\S*)", text)
    assert state and hosts, text
    held = re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=\S*\(IDX:([\d,-]+)\)", text)
    gpus = {node: mask_members(index_mask(index)) for nodes, index in held for node in expand_hostlist(nodes)}
    return state[1], list(expand_hostlist(hosts[1])), gpus


def starts_as_told(options: str) -> None:
    """It starts at once on nodes that were named; where the picker knows, on the very GPUs."""
    answer = asked(options, 0)
    places = {node: place for place in answer["places"] for node in expand_hostlist(place["nodes"])}
    job = submit(options)
    until(lambda: shown(job)[0] == "RUNNING", f"{options} starts")
    _, nodes, gpus = shown(job)
    assert set(nodes) <= set(places), options
    told = {node: places[node]["picked"]["gpus"] for node in nodes if places[node]["picked"]}
    assert told == {node: gpus[node] for node in told}, options
    assert told or "-N1" not in options, "the picker knows one-node jobs"
    run("scancel", str(job))
    until(lambda: not run("squeue", "-h", "-j", str(job), "-t", "R,CG", check=False).out, "it ends")


def test_fit__what_it_says_starts_and_what_it_says_waits(busy):
    """Each of STARTS runs where it was told; of WAITS none has started when a short job submitted after them runs."""
    for options in STARTS:
        starts_as_told(options)
    jobs = {options: submit(options) for options in WAITS if asked(options, 10)}
    last = submit("--gpus-per-node=1 -w n4 --time=1")
    until(lambda: shown(last)[0] == "RUNNING", "a later job runs")
    assert {options: shown(job)[0] for options, job in jobs.items()} == dict.fromkeys(WAITS, "PENDING")
    run("scancel", str(last), *map(str, jobs.values()))
    until(lambda: not run("squeue", "-h", "-j", str(last), "-t", "R,CG", check=False).out, "it ends")
    limits_are_heeded()


LIMITS = (
    ("MaxNodes=1", "MaxNodes=UNLIMITED", "-N1 --gpus-per-node=1", "-N2 --gpus-per-node=1"),
    ("MinNodes=2", "MinNodes=0", "-N2 --gpus-per-node=1", "-N1 --gpus-per-node=1"),
    ("MaxCPUsPerNode=4", "MaxCPUsPerNode=UNLIMITED", "-N1 --gpus-per-node=1 -c4", "-N1 --gpus-per-node=1 -c5"),
    ("OverSubscribe=EXCLUSIVE", "OverSubscribe=NO", "-N1 --gpus-per-node=1 -w n4", "-N1 --gpus-per-node=1 -w n1"),
)  # fmt: skip


def limits_are_heeded() -> None:
    """What the partition, the features or a reservation of GPUs lets start starts there, and the other waits."""
    features = {"n1": "a,b", "n4": "b,c"}
    for node, names in features.items():
        run("scontrol", "update", f"node={node}", f"AvailableFeatures={names}", f"ActiveFeatures={names}")
    for limit, none, starts, waits in LIMITS:
        run("scontrol", "update", "partition=short", *limit.split())
        heeded(f"-p short -t 5 {starts}", f"-p short -t 5 {waits}")
        run("scontrol", "update", "partition=short", *none.split())
    heeded("-N1 --gpus-per-node=1 -C a|b&c", "-N1 --gpus-per-node=1 -C a&c")
    where = ("nodes=n4", "nodecnt=1", "trespernode=gres/gpu=3")
    when = ("reservationname=part", "starttime=now", "duration=60")
    run("scontrol", "create", "reservation", *when, "users=bob", *where)
    heeded("-N1 --gpus-per-node=5 -t 5 -w n4", "-N1 --gpus-per-node=6 -t 5 -w n4")
    run("scontrol", "delete", "reservationname=part")


def heeded(starts: str, waits: str) -> None:
    """fit says so, and Slurm does so: it lets the other one wait, or refuses it where no node could ever take it."""
    asked(starts, 0)
    asked(waits, 10)
    late = run("sbatch", "--parsable", "--output=/dev/null", *waits.split(), "--wrap=true", user="alice", check=False)
    soon = submit(starts)
    until(lambda: shown(soon)[0] == "RUNNING", f"{starts} starts")
    assert late.rc or shown(int(late.out))[0] == "PENDING", waits
    run("scancel", str(soon), *late.out.split())
    until(lambda: not run("squeue", "-h", "-j", str(soon), "-t", "R,CG", check=False).out, "it ends")
