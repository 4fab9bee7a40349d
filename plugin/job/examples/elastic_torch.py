"""PyTorch, elastic: torchrun --standalone --nproc-per-node=gpu elastic_torch.py STEPS STATE_FILE.

Its processes share each batch, and train the same with any number of them. The first one reads what slurmsched wants,
and all do it at the same step:

    gpus=N        save, and go back to the queue; the job starts again on N GPUs (lever.size)
    checkpoint    save, once for each request
    stop          save and end

On CPUs give --nproc-per-node a number. Submit it as elastic.py.
"""

import os
import sys
import time

import torch
from torch import distributed

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from elastic import AGAIN_S, BATCH, report, requeued, wants


def asked(workers, saved, again_s):
    """Whether to leave for another size, to stop, and the time of the latest request to save; of the first process."""
    box = [None]
    if distributed.get_rank() == 0:
        now = wants()
        box = [(now.gpus not in (0, workers) and time.monotonic() >= again_s, now.stop, now.checkpoint or saved)]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def step_of(model, step, rank, workers):
    """This process's part of a batch, and the gradient of the whole one in every process. Returns the loss."""
    torch.manual_seed(step)
    x = torch.randn(BATCH, 8)
    y = x.sum(dim=1, keepdim=True)
    part = slice(BATCH * rank // workers, BATCH * (rank + 1) // workers)
    model.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x[part]), y[part], reduction="sum") / BATCH
    loss.backward()
    whole = loss.detach().clone()
    for each in (whole, *(parameter.grad for parameter in model.parameters())):
        distributed.all_reduce(each)
    return float(whole)


def save(path, model, step):
    """Whole or not at all."""
    torch.save({"step": step, "model": model.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def begun(path):
    """The model, and the step of the last checkpoint or 0."""
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    if not os.path.exists(path):
        return model, 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    return model, state["step"]


def main(steps, path):
    rank, workers = distributed.get_rank(), distributed.get_world_size()
    model, step = begun(path)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    saved, again_s, losses, stops = wants().checkpoint, time.monotonic(), [], False
    print("begins at step", step, "as", rank, "of", workers, flush=True)
    while step < steps and not stops:
        begun_s = time.monotonic()
        losses.append(step_of(model, step, rank, workers))
        optimiser.step()
        step += 1
        if rank == 0:
            report(every_s=2, progress=(step, steps), batch=BATCH, loss=(losses[0], losses[-2:][0], losses[-1]),
                   throughput=BATCH / (time.monotonic() - begun_s))  # fmt: skip
        before = saved
        leaves, stops, saved = asked(workers, before, again_s)
        if rank == 0 and (leaves or saved != before):
            save(path, model, step)
        if leaves:
            if rank == 0 and requeued():
                time.sleep(600)  # until Slurm ends us
            distributed.barrier()
            again_s = time.monotonic() + AGAIN_S
    if rank == 0:
        save(path, model, step)
        print("ends at step", step, "loss", losses[-1:], flush=True)


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    main(int(sys.argv[1]), sys.argv[2])
    distributed.destroy_process_group()
