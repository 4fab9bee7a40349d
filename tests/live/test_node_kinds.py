"""What slurmsched says of nodes of all kinds, held against what a real Slurm does with them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.lab import BINARY, Done, Installed, forked, run, until
from tests.live.node_kinds import (
    BOOTED,
    LIMITED,
    MPS,
    PARTITION,
    PLAIN,
    SAVING,
    SHARDS,
    SPECIALISED,
    node_kinds,
    start,
    stop,
)
from tests.live.operations import cut_tick, ticks
from tests.live.warm import COMMAND

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def kinds(left_as_found: None) -> Iterator[None]:
    """The lab with nodes of these kinds, once for all tests of this file."""
    run("labctl", "reset")
    with node_kinds():
        yield


@pytest.fixture
def empty(kinds: None) -> Iterator[None]:
    """No job on these nodes before a test and after it."""
    yield
    run("scancel", "-p", PARTITION, check=False)
    until(lambda: not run("squeue", "-h", "-p", PARTITION).out, "its jobs are gone")


def submit(node: str, *options: str) -> int:
    words = ("-p", PARTITION, "-w", node, "--mem=1G", "--output=/dev/null", *options)
    return int(run("sbatch", "--parsable", *words, "--wrap=sleep 600", user="alice").out)


def held(node: str, *options: str) -> int:
    """A job that runs there."""
    job = submit(node, *options)
    until(lambda: run("squeue", "-h", "-j", str(job), "-o", "%T").out.strip() == "RUNNING", f"{options} runs")
    return job


def starts(node: str, *options: str) -> bool:
    """Whether Slurm gives a job that at once."""
    words = ("-p", PARTITION, "-w", node, "--mem=1G", *options)
    made = run("salloc", "--no-shell", "--immediate=2", *words, check=False)
    if found := re.search(r"Granted job allocation (\d+)", made.err):
        run("scancel", "-Q", found[1])
        until(lambda: not run("squeue", "-h", "-j", found[1], check=False).out, "it is gone")
    return found is not None


def told(*words: str, check: bool = True) -> Done:
    """What slurmsched answers alice, without the time that its start takes."""
    return forked(COMMAND, (BINARY, *words), "alice", check)


def fit(node: str, *options: str) -> Done:
    return told("fit", "-p", PARTITION, "-w", node, "--mem=1G", *options, check=False)


def agrees(node: str, *options: str) -> bool:
    """What `fit` says of a request, which must be what Slurm does."""
    answer = fit(node, *options)
    assert (answer.rc == 0) == starts(node, *options), answer.out + answer.err
    return answer.rc == 0


def figures(node: str) -> dict[str, int]:
    """GPUs of one node by what `gpus` says they are for now."""
    (found,) = told("gpus", "--json", "--nodelist", node).json()["types"]
    return {key: found[key] for key in ("free", "boot", "used", "drained", "down", "unread")}


def rest(**given: int) -> dict[str, int]:
    return dict.fromkeys(("free", "boot", "used", "drained", "down", "unread"), 0) | given


def test_gpus_without_a_type__are_used_when_slurm_says_so(empty):
    """gpu:(null):3(IDX:0-2) before 26.05, gpu:3(IDX:0-2) since: three of eight; and with five more none is left."""
    held(PLAIN, "--gpus-per-node=3")
    assert figures(PLAIN) == rest(free=5, used=3)
    assert (agrees(PLAIN, "--gpus-per-node=5"), agrees(PLAIN, "--gpus-per-node=6")) == (True, False)
    held(PLAIN, "--gpus-per-node=5")
    assert figures(PLAIN) == rest(used=8)
    assert not agrees(PLAIN, "--gpus-per-node=1")


@pytest.mark.parametrize(("node", "part"), [(SHARDS, "shard:3"), (MPS, "mps:50")])
def test_gpus_with_parts_out__are_not_whole(empty, node, part):
    """Of four GPUs one has shards or MPS out: three can be had whole, with a fourth a job waits."""
    held(node, f"--gres={part}")
    assert figures(node) == rest(free=3, used=1)
    assert (agrees(node, "--gpus-per-node=3"), agrees(node, "--gpus-per-node=4")) == (True, False)


# Alice's jobs alone, and beside one like them.
PROFILES = """\
model,batch,gpus,gpu_type,steps_per_s,user,beside,samples_per_s,use,peak_use,memory_mib,speed_s,use_s,jobs,last_s
alice:wrap,,1,a100,100,alice,,100,0.1,0.2,8000,9000,9000,1,0
alice:wrap,,1,a100,83,alice,alice:wrap,83,,,,900,0,1,0
"""


@pytest.fixture
def sharing(empty: None) -> Iterator[Installed]:
    """slurmsched set up to give shards and MPS to jobs on these nodes, nothing written yet."""
    folder = Path("/var/lib/slurmsched-test")
    shutil.rmtree(folder, ignore_errors=True)
    site = Installed(folder)
    profiles = folder / "profiles.csv"
    site.configure(policy='{ name = "fifo" }', scope__partitions=f'["{PARTITION}"]', lever__share="true",
                   lever__gpu_memory_gb="{ gpu = 40 }", measured_use__profiles=f'"{profiles}"')  # fmt: skip
    profiles.write_text(PROFILES)
    yield site
    shutil.rmtree(folder, ignore_errors=True)


def asked(job: int) -> str:
    """A job's request by node and its node list."""
    return run("squeue", "-h", "-a", "-j", str(job), "-O", "tres-per-node:0|,ReqNodes:0").out.strip()


def runs(*jobs: int, state: str = "RUNNING") -> bool:
    listed = run("squeue", "-h", "-j", ",".join(map(str, jobs)), "-o", "%T").out.split()
    return listed == [state] * len(jobs)


def in_use(node: str) -> str:
    """GPUs, and shards or MPS, in use on a node. A GPU that is held whole is "-/4", which 24.11 shows as "0/4"."""
    found = re.search(r" GresUsed=(\S+)", run("scontrol", "-o", "-d", "show", "node", node).out)
    assert found
    return found[1].replace("-/", "0/")


def waits(node: str, hints: str, request: str = "--gpus-per-node=1") -> int:
    """A job that may be on this node of its partition alone, and names no node."""
    others = ",".join(sorted({PLAIN, SHARDS, MPS, SPECIALISED, SAVING} - {node}))
    words = ("-p", PARTITION, f"--exclude={others}", "--mem=1G", "--output=/dev/null", "--requeue", request)
    comment = f"--comment=slurmsched: {hints}"
    return int(run("sbatch", "--parsable", *words, comment, "--wrap=sleep 600", user="alice").out)


KINDS = {SHARDS: ("shard", 4), MPS: ("mps", 100)}  # parts of each GPU


def parts(node: str, quarters: int) -> str:
    """That part of the first GPU of a node and of no other one."""
    size = KINDS[node][1]
    return f"({quarters * size // 4}/{size},0/{size},0/{size},0/{size})"


def request(node: str, quarters: int) -> str:
    return f"gres/{KINDS[node][0]}:{quarters * KINDS[node][1] // 4}"


def test_shares__jobs_that_may_share_meet_on_one_gpu(sharing: Installed) -> None:
    """On a node with shards, and on one with MPS: four jobs hold the four GPUs. Two that may share ask for parts, and
    get the GPU that comes free together. A third joins them there, though the cycle that writes its request dies. Each
    job with a whole GPU keeps it, and one that waits for a whole GPU or asks by --gpus keeps its request. Undo gives
    back a GPU, and no list. Explain says what a job keeps of its speed there, and which part was measured."""
    holders = {node: [submit(node, "--gpus-per-node=1") for _ in range(4)] for node in KINDS}
    until(lambda: runs(*holders[SHARDS], *holders[MPS]), "all their GPUs are held")
    first = {node: waits(node, "share=yes gpu_part=0.5") for node in KINDS}
    typed = {SHARDS: "gpu:a100:1", MPS: "gpu:1"}
    second = {node: waits(node, "share=yes gpu_part=0.25", f"--gres={typed[node]}") for node in KINDS}
    whole = {node: waits(node, "share=no gpu_part=0.25") for node in KINDS}
    by_job = waits(SHARDS, "share=yes gpu_part=0.25", "--gpus=1")
    sharing.tick()
    for node in KINDS:
        assert (asked(first[node]), asked(second[node])) == (f"{request(node, 2)}|", f"{request(node, 1)}|")
        assert asked(whole[node]) == "gres/gpu:1|"
    assert asked(by_job) == "N/A|"
    run("scancel", *(str(holders[node][0]) for node in KINDS))
    until(lambda: runs(*first.values(), *second.values()), "both run on each")
    assert all(parts(node, 3) in in_use(node) for node in KINDS)
    third = {SHARDS: waits(SHARDS, "share=yes gpu_part=0.25")}
    assert cut_tick(sharing, [("retype", "after")])
    third[MPS] = waits(MPS, "share=yes")  # its part is measured
    ticks(sharing, lambda: runs(*third.values()), "the third runs, before those that wait for a whole GPU")
    for node in KINDS:
        assert parts(node, 4) in in_use(node) and "(IDX:1-3)" in in_use(node) and runs(*holders[node][1:])
        assert (asked(third[node]), asked(whole[node])) == (f"{request(node, 1)}|{node}", "gres/gpu:1|")
        told_why = sharing("explain", str(third[node]), "--json").json()["explanation"]["size"]
        assert f"{request(node, 1)[5:]} on {node}: no whole GPU is free for it" in told_why
        assert ("its part is measured: computes 10% of the time" in told_why) == (node == MPS)
        beside = f"beside job {first[node]} and job {second[node]}: 0.69 of its speed, measured here; "
        assert sharing("explain", str(third[node]), "--json").json()["explanation"]["beside"].startswith(beside)
    again = (*second.values(), *third.values())
    run("scontrol", "requeuehold", ",".join(map(str, again)))
    until(lambda: runs(*again, state="PENDING"), "they wait again")
    assert all(parts(node, 2) in in_use(node) for node in KINDS)
    sharing("undo", "--apply", "--yes")
    for node in KINDS:
        assert (asked(second[node]), asked(third[node])) == (f"gres/{typed[node]}|", "gres/gpu:1|")


def test_specialised_cores_and_memory__are_not_for_jobs(empty):
    """64 CPUs less two cores, 512,000 MiB less 16,000."""
    asks = ("--gpus-per-node=1",)
    assert (agrees(SPECIALISED, *asks, "-c62"), agrees(SPECIALISED, *asks, "-c63")) == (True, False)
    assert (agrees(SPECIALISED, *asks, "--mem=496000"), agrees(SPECIALISED, *asks, "--mem=496001")) == (True, False)


def test_limits_of_a_partition__are_those_of_the_lab(empty):
    """A partition lets jobs have one node and eight CPUs there."""
    shown = run("scontrol", "show", "partition", LIMITED).out
    assert "MaxNodes=1" in shown and "MaxCPUsPerNode=8" in shown
    assert told("fit", "-p", LIMITED, "--gpus-per-node=1", "-c9", check=False).rc == 10
    assert told("fit", "-p", LIMITED, "--gpus-per-node=1", "-c8", check=False).rc == 0


def state() -> str:
    found = re.search(r" State=(\S+)", run("scontrol", "-o", "show", "node", SAVING).out)
    assert found
    return found[1]


def test_power_saving__a_node_takes_jobs_after_a_boot(empty):
    """While it powers down it takes none; then its GPUs are free after a boot, and a job for them boots it."""
    BOOTED.write_text("")
    run("scontrol", "update", f"nodename={SAVING}", "state=power_down")
    until(lambda: "POWERING_DOWN" in state(), "it powers down", pause_s=0.05)
    going = figures(SAVING)
    assert "POWERED_DOWN" in state() or going == rest(drained=8)
    assert "POWERED_DOWN" in state() or not starts(SAVING, "--gpus-per-node=1")
    stop(SAVING)
    until(lambda: "POWERED_DOWN" in state(), "it is off")
    assert figures(SAVING) == rest(boot=8)
    answer = fit(SAVING, "--gpus-per-node=8")
    assert (answer.rc, "starts after a boot" in answer.out) == (0, True)
    job = submit(SAVING, "--gpus-per-node=2")
    until(lambda: SAVING in BOOTED.read_text(), "Slurm boots it")
    assert told("explain", str(job), "--as-user", "--json").json()["explanation"]["blocker"] == ("starting")
    assert figures(SAVING) == rest(boot=6, used=2)
    start(SAVING)
    until(lambda: run("squeue", "-h", "-j", str(job), "-o", "%T").out.strip() == "RUNNING", "the job runs")
    assert figures(SAVING) == rest(free=6, used=2)


def test_submit__one_gpu_that_may_be_shared_becomes_shards(empty: None) -> None:
    """By job_submit.lua, at the submission. The last test of this file: the plug-in stays until `labctl reset`."""
    etc = Path("/etc/slurm")
    for file in [*Path("/src/plugin/lua").glob("*.lua"), Path("/src/plugin/job_submit/job_submit.lua")]:
        shutil.copy(file, etc)
    (etc / "slurmsched_settings.lua").write_text("return { shards_per_gpu = 4 }")
    run("labctl", "conf", "JobSubmitPlugins", "lua")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    job = held(SHARDS, "--gres=gpu:1", "--comment=slurmsched: share=yes gpu_part=0.3")
    whole = held(SHARDS, "--gres=gpu:1")
    assert [asked(each) for each in (job, whole)] == [f"gres/shard:2|{SHARDS}", f"gres/gpu:1|{SHARDS}"]
