"""PyTorch: the loop tells slurmsched how the job does, its gradient noise scale too. report_torch.py STEPS."""

import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from slurmsched_job import report, wants

BATCH, SMALL = 64, 16  # samples of a step, and of the part whose gradient is compared with that of the whole


def noise_scale(small, big):
    """Gradient noise scale [samples], of squared gradient norms of SMALL and BATCH samples; None where there is none.

    Source: McCandlish et al., An Empirical Model of Large-Batch Training, 2018, appendix A.1.
    """
    squared = (BATCH * big - SMALL * small) / (BATCH - SMALL)
    variance = (small - big) / (1 / SMALL - 1 / BATCH)
    return variance / squared if squared > 0 and variance > 0 else None


def squared_norm(model, x, y):
    """Squared norm of the gradient of these samples, and the loss; the gradient stays in the model."""
    model.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return sum(float((each.grad**2).sum()) for each in model.parameters()), float(loss.detach())


def main(steps):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses, begun_s = [], time.monotonic()
    for step in range(1, steps + 1):
        x = torch.randn(BATCH, 8)
        y = x.sum(dim=1, keepdim=True)
        small, _ = squared_norm(model, x[:SMALL], y[:SMALL])
        big, loss = squared_norm(model, x, y)
        optimiser.step()
        losses.append(loss)
        told = {"noise": noise_scale(small, big)}
        report(progress=(step, steps), loss=(losses[0], losses[max(step - 2, 0)], loss), batch=BATCH,
               throughput=step * BATCH / (time.monotonic() - begun_s),
               **{name: value for name, value in told.items() if value is not None})  # fmt: skip
        if wants().stop:
            break


if __name__ == "__main__":
    main(int(sys.argv[1]))
