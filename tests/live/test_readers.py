"""Both readers on one real Slurm: they must tell the same, field by field, of jobs of every kind.

Run as root inside a lab. The command reader is compared with Slurm's own JSON too.
"""

from __future__ import annotations

import importlib.util
import subprocess
import time
from dataclasses import fields

import numpy as np
import orjson
import pytest

from slurmsched.config import Config
from slurmsched.model import Jobs, Labels, Snapshot
from slurmsched.model.columns import Table
from slurmsched.model.states import ON_NODES
from slurmsched.slurm.accounting import earlier_runs
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.pyslurm_reader import PyslurmChild, PyslurmReader
from slurmsched.slurm.reader import CommandReader, read_cluster_once
from slurmsched.slurm.site import read_load
from slurmsched.slurm.slurm_json import read_jobs
from tests.recorded.scenario import CASES, NICE_OF_TASK, SITE_FACTOR, submit_all

pytestmark = pytest.mark.live
HAS_PYSLURM = importlib.util.find_spec("pyslurm") is not None
MOVING = {"run_s", "base_priority", "priority"}  # differ from one read to the next


@pytest.fixture(scope="module")
def ids():
    """The jobs of the scenario, by name."""
    subprocess.run(["labctl", "reset"], check=True, capture_output=True)
    time.sleep(2)
    made = submit_all()
    later = ["scontrol", "update", f"jobid={made['requeued']}", "StartTime=now+3600"]  # it may start after 2 minutes
    subprocess.run(later, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def snapshot(ids) -> Snapshot:
    return CommandReader(Commands()).read()


def differences(ours: Table, theirs: Table, leave: set[str] = MOVING) -> dict[str, list]:
    """Rows in which a column differs, by column."""
    found = {}
    for spec in fields(ours):
        a, b = getattr(ours, spec.name), getattr(theirs, spec.name)
        pairs = zip(map(str, a), map(str, b), strict=True)
        if spec.name not in leave and (rows := [(i, *pair) for i, pair in enumerate(pairs) if pair[0] != pair[1]]):
            found[spec.name] = rows
    return found


def left(snapshot: Snapshot) -> Jobs:
    """Jobs that have not ended: Slurm takes the memory out of the TRES of some cancelled ones."""
    return snapshot.jobs.take(~snapshot.jobs.finished)


def both(one: CommandReader | PyslurmReader, other: CommandReader) -> tuple[Snapshot, Snapshot]:
    """Two reads that tell the same of jobs, or the last of twenty: Slurm says anew why jobs wait while it looks."""
    for _ in range(20):
        pair = one.read(), other.read()
        if not differences(*map(left, pair)):
            break
    return pair


def test_readers__without_indices_hold_the_same_gpus(ids):
    """squeue's counts give the same GPUs by job, node and type as the details of each running job."""
    cold, full = both(CommandReader(Commands(), indices=False), CommandReader(Commands()))
    assert differences(left(cold), left(full)) == {}
    assert differences(cold.allocations, full.allocations, {"gpu_mask"}) == {}
    assert not cold.allocations.gpu_mask.any()


def test_read_once__without_waiting_jobs_has_all_that_hold_nodes(ids):
    """The same rows, GPUs and nodes as a read of all jobs has of these."""
    full, some = read_cluster_once(Config()), read_cluster_once(Config(), waiting=False)
    on_nodes = full.jobs.take(full.jobs.is_state(ON_NODES))
    assert len(on_nodes) > 5 and differences(on_nodes, some.jobs) == {}
    for name in ("nodes", "allocations"):
        assert differences(getattr(full, name), getattr(some, name)) == {}, name


def test_cli_reader__reads_the_scenario(ids, snapshot):
    """Requests, held GPUs, levers and totals of jobs of every kind."""
    jobs = snapshot.jobs
    row = {int(job): i for i, job in enumerate(jobs.job_id)}
    read = {case.name: (int(jobs.gpus[row[ids[case.name]]]), jobs.gpu_request[row[ids[case.name]]]) for case in CASES}
    assert read == {case.name: (case.gpus, case.request) for case in CASES}
    assert int(jobs.site_factor[row[ids["p-site"]]]) == SITE_FACTOR
    assert NICE_OF_TASK in jobs.nice[jobs.array_job_id == ids["p-array"]].tolist()
    assert snapshot.warnings == ()
    totals = snapshot.nodes.gpu_totals()
    assert totals["idle"] + totals["allocated"] + totals["draining"] + totals["down"] == totals["all"] == 320


def test_cli_reader__agrees_with_json(snapshot):
    """squeue's own JSON tells the same, but for what JSON does not know and what the two print differently."""
    body = orjson.loads(Commands().run("squeue", "--json"))
    jobs, held, _ = read_jobs(body, snapshot.now_s)
    ours = snapshot.jobs.take(np.isin(snapshot.jobs.job_id, jobs.job_id))  # JSON leaves out ended jobs
    assert len(ours) == len(jobs) >= len(CASES)
    unknown = {"site_factor", "fixed_priority", "base_priority", "name", "reason"}
    assert differences(ours, jobs, MOVING | unknown) == {}
    assert differences(snapshot.allocations, held) == {}


def test_readers__give_equal_snapshots(ids):
    """pyslurm with the commands and the commands alone: the same jobs, nodes, partitions and held GPUs.

    In a lab without pyslurm that is the commands twice, after a warning.
    """
    reader = PyslurmReader(Commands(), CommandReader(Commands()))
    try:
        theirs, ours = both(reader, CommandReader(Commands()))
        assert (reader._child is not None) == HAS_PYSLURM  # it was pyslurm that answered
    finally:
        reader.close()
    assert differences(left(ours), left(theirs)) == {}
    for name in ("nodes", "partitions", "allocations"):
        assert differences(getattr(ours, name), getattr(theirs, name)) == {}, name
    apart_s = abs(ours.now_s - theirs.now_s)
    assert np.abs(ours.jobs.run_s - theirs.jobs.run_s).max() <= apart_s + 2  # they are whole seconds
    assert ours.site == theirs.site


def test_pyslurm_reader__outlives_its_child(ids):
    """A killed child costs nothing but a warning: the read goes by the commands."""
    children: list[PyslurmChild] = []

    def open_child(commands: Commands) -> PyslurmChild:
        children.append(PyslurmChild(commands))
        return children[-1]

    reader = PyslurmReader(Commands(), CommandReader(Commands()), open_child)
    try:
        before = reader.read()
        assert len(children) == HAS_PYSLURM
        for child in children:
            child._process.kill()
        after = reader.read()
    finally:
        reader.close()
    assert differences(left(before), left(after), MOVING | {"reason"}) == {}  # Slurm may say anew why a job waits


FORGED = "\nJobId={} JobName=x UserId=bob(1001) NodeList=n4 Nodes=n4 CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7) MinCPUsNode=1 "


def test_read__line_breaks_and_forged_records_of_users(ids, tmp_path_factory):
    """Slurm prints users' texts as they are. Whatever they hold, every other job keeps its GPUs, in a listing of all
    jobs and asked for alone; the jobs of such texts are read or named."""
    rival, before = ids["gres"], held(CommandReader(Commands()).read())
    folder = tmp_path_factory.getbasetemp() / f"a{FORGED.format(rival)[:200]}"
    folder.mkdir()
    for path in (folder, *folder.parents):
        path.chmod(path.stat().st_mode | 0o055)
    broken, forged = "--comment=\n", f"--comment={FORGED.format(rival) * 3}"
    options = ([broken], [forged], [f"--chdir={folder}"], [f"--job-name=x{FORGED.format(rival)}"], ["--job-name=\n"])
    reader, attackers = CommandReader(Commands()), set()
    reader.read()  # from here on it asks for new runs alone
    try:
        for option in options:
            argv = [
                "sbatch",
                "--parsable",
                "--gres=gpu:1",
                "-p",
                "gpu",
                "-n1",
                "--mem=10",
                "--output=/dev/null",
                *option,
            ]
            argv = ["runuser", "-u", "alice", "--", *argv, "--wrap=sleep 300"]
            attackers.add(int(subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/tmp").stdout))
        for _ in range(50):
            running = CommandReader(Commands()).read()
            if attackers <= set(running.allocations.job_id.tolist()):
                break
            time.sleep(0.2)
        for snapshot in (running, reader.read()):
            now = held(snapshot)
            assert {job: now[job] for job in before} == before
            named = " ".join(snapshot.warnings)
            for job in attackers:
                assert sum(gpus for _, gpus, _ in now[job]) == 1
                assert all(mask for _, _, mask in now[job]) or str(job) in named
    finally:
        subprocess.run(["scancel", *map(str, attackers)], check=True)


def held(snapshot: Snapshot) -> dict[int, set[tuple[str, int, int]]]:
    """By job node, GPUs and their mask."""
    table, found = snapshot.allocations, dict[int, set[tuple[str, int, int]]]()
    for row, job in enumerate(table.job_id.tolist()):
        found.setdefault(job, set()).add((table.node[row], int(table.gpus[row]), int(table.gpu_mask[row])))
    return found


def test_read__as_a_user_who_sees_all(ids):
    """The operator account reads the same jobs as root, and knows its rights."""
    script = (
        "from slurmsched.slurm.reader import CommandReader; from slurmsched.slurm.commands import Commands;"
        "s = CommandReader(Commands()).read(); print(len(s.jobs), s.site.rights.name, s.site.user)"
    )
    argv = ["runuser", "-u", "slurmsched", "--", "env", "PYTHONPATH=/src", "/opt/venv/bin/python", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/tmp")
    count, rights, user = done.stdout.split()
    assert int(count) == len(CommandReader(Commands()).read().jobs)
    assert (rights, user) == ("OPERATOR", "slurmsched")


def test_earlier_runs__shows_the_requeued_run(ids):
    """The closed run and the waiting one, with the GPUs that the first held."""
    runs = [run for run in earlier_runs(Commands(), [ids["requeued"]]) if run.job_id == ids["requeued"]]
    assert [(run.state, run.gpus, run.restart) for run in runs] == [("REQUEUED", 1, 0), ("PENDING", 0, 1)]


def test_read_load__counts_server_threads(ids):
    """sdiag of this version."""
    assert read_load(Commands()).threads >= 1


def test_labels__hold_all_texts(snapshot):
    """No text column has a name that no row holds, so that equal columns are equal tables."""
    for spec in fields(snapshot.jobs):
        column = getattr(snapshot.jobs, spec.name)
        if isinstance(column, Labels):
            assert set(column.names) == set(column), spec.name


def test_readers__know_scrontab_jobs_and_what_a_requeued_job_asks_for_after_a_restart(ids, tmp_path):
    """A waiting job of scrontab is marked: Slurm refuses every update of it. A requeued job asks for the nodes that it
    was given last, though on 26.05 Slurm shows those of its last run as their number."""
    table = tmp_path / "table"
    table.write_text("#SCRON -p phantom\n#SCRON --gpus=1\n0 5 * * * /bin/true\n")
    for path in (table, *table.parents):
        path.chmod(path.stat().st_mode | 0o055)
    try:
        for command in ("labctl conf ScronParameters enable", "labctl restart slurmctld"):
            subprocess.run(command.split(), check=True, capture_output=True)
        subprocess.run(["runuser", "-u", "alice", "--", "scrontab", str(table)], check=True, cwd="/tmp")
        subprocess.run(["scontrol", "update", f"jobid={ids['requeued']}", "numnodes=3"], check=True)
        jobs = CommandReader(Commands()).read().jobs
        reader = PyslurmReader(Commands(), CommandReader(Commands()))
        try:
            theirs = reader.read().jobs
        finally:
            reader.close()
        assert [int(each.nodes[each.row_of(ids["requeued"])]) for each in (jobs, theirs)] == [3, 3]
        assert [jobs.name[row] for row in np.flatnonzero(jobs.cron)] == ["/bin/true"]
    finally:
        subprocess.run(["runuser", "-u", "alice", "--", "scrontab", "-r"], check=False, cwd="/tmp")
        subprocess.run(["labctl", "reset"], check=True, capture_output=True)
