"""plugin/task_prolog on a real Slurm: tasks see their GPUs in ring order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.live.gpu_nodes import MACHINES, install
from tests.live.lab import BINARY, run, until

pytestmark = pytest.mark.live
SCRIPT, TABLE = Path("/etc/slurm/ring_order.sh"), Path("/etc/slurm/slurmsched-rings")


@pytest.fixture
def prolog(fresh):
    """A mesh on each node, the script installed as TaskProlog with the table of its rings."""
    install({f"n{i}": MACHINES["mesh"] for i in range(1, 5)})
    shutil.copy("/src/plugin/task_prolog/ring_order.sh", SCRIPT)
    SCRIPT.chmod(0o755)
    TABLE.write_text(run(BINARY, "topology", "rings").out)
    run("labctl", "conf", "TaskProlog", str(SCRIPT))
    run("labctl", "reconfigure")


def test_ring_order__in_batch_script_and_tasks(prolog):
    """Of eight GPUs of the mesh the batch script and every srun task see a ring that uses the double links."""
    out = Path("/home/alice/rings.txt")
    script = "echo batch $CUDA_VISIBLE_DEVICES; srun -n2 --gpus=8 sh -c 'echo task $CUDA_VISIBLE_DEVICES'; echo end"
    run("sbatch", "-N1", "-n2", "--gpus-per-node=8", f"--output={out}", f"--wrap={script}", user="alice")
    until(lambda: out.exists() and "end" in out.read_text(), "the job ran")
    ring = next(line.split()[2] for line in TABLE.read_text().splitlines() if " 0,1,2,3,4,5,6,7 " in line)
    assert [f"batch {ring}", "end", f"task {ring}", f"task {ring}"] == sorted(out.read_text().splitlines())


def test_ring_order__without_a_table_nothing_changes(prolog):
    """A node that is not in the table runs its tasks as Slurm numbers the GPUs."""
    TABLE.write_text("")
    told = run("srun", "-N1", "--gpus-per-node=8", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", user="alice")
    assert told.out == "0,1,2,3,4,5,6,7\n"
