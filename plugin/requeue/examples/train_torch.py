"""A PyTorch training that may be preempted: train_torch.py STEPS STATE_FILE. On a GPU where there is one."""

import io
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from slurmsched_requeue import Asked, save

EVERY = 1000  # steps between checkpoints that nobody asked for: nodes fail without a signal


def batch(step, device):
    """The same for a step whichever run takes it; a real loader would be set to its place in the epoch here."""
    chance = torch.Generator().manual_seed(step)
    x = torch.randn(32, 8, generator=chance)
    return x.to(device), x.sum(dim=1, keepdim=True).to(device)


def keep(path, step, model, optimiser):
    content = io.BytesIO()
    state = {"step": step, "model": model.state_dict(), "optimiser": optimiser.state_dict()}
    torch.save({**state, "chance": torch.get_rng_state()}, content)
    save(path, content.getvalue())


def main(steps, path):
    asked = Asked("USR1")
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    if os.path.exists(path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["chance"])  # of the CPU; torch.cuda.get_rng_state_all() has that of GPUs
        step = state["step"]
        print("goes on at step", step, flush=True)
    while step < steps:
        x, y = batch(step, device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if asked or step % EVERY == 0:
            keep(path, step, model, optimiser)
        if asked:
            print("saved at step", step, flush=True)
            asked.leave()
    keep(path, step, model, optimiser)
    print("done at step", step, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
