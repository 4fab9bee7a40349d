"""A training that grows and shrinks between checkpoints: elastic.py STEPS STATE_FILE [WORKERS].

Its workers stand for the processes that torchrun would start, one a GPU. They share each batch and return their part.
It trains the same steps with any number of them. Between two steps it looks at what slurmsched wants:

    gpus=N        saves, and goes back to the queue; it starts again on N GPUs (lever.size, hints min_gpus and max_gpus)
    checkpoint    saves, once for each request
    stop          saves and ends

Submit it with --comment="slurmsched: min_gpus=1 max_gpus=8 progress=0/1", --requeue and --open-mode=append.
"""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "requeue"))
from slurmsched_job import report, wants
from slurmsched_requeue import save

BATCH = 64  # samples of a step, shared out among the workers
STEP_S = 0.05  # of one worker for a step
AGAIN_S = 60.0  # after Slurm did not take a requeue


def part(task):
    """One worker's share of a step: the sum of its samples."""
    step, first, last = task
    time.sleep(STEP_S * (last - first) / BATCH)
    return sum((step * BATCH + sample) % 1000 for sample in range(first, last))


def gpus_held():
    """GPUs of this job, as Slurm granted them."""
    found = re.findall(r"\d+", os.environ.get("SLURM_GPUS_ON_NODE", "1"))
    return int(found[-1]) if found else 1


def requeued():
    """Whether Slurm has taken the requeue of this job; slurmctld may be away. A task of an array names itself alone."""
    array, job = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ["SLURM_JOB_ID"]
    job = array + "_" + os.environ.get("SLURM_ARRAY_TASK_ID", "0") if array else job
    try:
        return subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0
    except OSError:
        return False


def begun(path, workers):
    """The state of the last checkpoint, or of a new training, with this run."""
    state = {"step": 0, "sum": 0, "runs": []}
    if os.path.exists(path):
        with open(path) as file:
            state = json.load(file)
    state["runs"].append([state["step"], workers])
    return state


def main(steps, path, workers):
    state = begun(path, workers)
    saved, again_s = wants().checkpoint, time.monotonic()
    print("begins at step", state["step"], "with", workers, flush=True)
    with multiprocessing.Pool(workers) as pool:
        while state["step"] < steps:
            begun_s = time.monotonic()
            cuts = [BATCH * at // workers for at in range(workers + 1)]
            state["sum"] += sum(pool.map(part, [(state["step"], cuts[at], cuts[at + 1]) for at in range(workers)]))
            state["step"] += 1
            report(every_s=2, progress=(state["step"], steps), batch=BATCH,
                   throughput=BATCH / (time.monotonic() - begun_s))  # fmt: skip
            asked = wants()
            leaves = asked.gpus not in (0, workers) and time.monotonic() >= again_s
            if leaves or asked.stop or asked.checkpoint != saved:
                saved = asked.checkpoint
                save(path, json.dumps(state))
            if asked.stop:
                print("stops at step", state["step"], flush=True)
                return
            if leaves:
                print("leaves at step", state["step"], "for", asked.gpus, flush=True)
                if requeued():
                    time.sleep(600)  # until Slurm ends us
                print("stays: Slurm took no requeue", flush=True)
                again_s = time.monotonic() + AGAIN_S
    save(path, json.dumps(state))
    print("done at step", state["step"], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else gpus_held())
