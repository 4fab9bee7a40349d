"""A training of PyTorch Lightning that may be preempted: train_lightning.py STEPS CHECKPOINT_FILE."""

import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import LightningEnvironment, SLURMEnvironment

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from slurmsched_requeue import Asked

EPOCH = 500  # samples


class Leave(Callback):
    """Saves after the step in which the signal came, in all processes at the same step, and ends with 75."""

    def __init__(self, path):
        self.path, self.asked = path, Asked("USR1")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.strategy.reduce_boolean_decision(bool(self.asked), all=False):
            trainer.save_checkpoint(self.path + ".new")
            if trainer.is_global_zero:
                os.replace(self.path + ".new", self.path)
                print("saved at step", trainer.global_step, flush=True)
            trainer.strategy.barrier()
            self.asked.leave()


class Samples(torch.utils.data.Dataset):
    """That many, each the same in every run."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        x = torch.randn(8, generator=torch.Generator().manual_seed(number))
        return x, x.sum().reshape(1)


class Loader(torch.utils.data.DataLoader):
    """Goes on within an epoch: Lightning keeps its state in the checkpoint. Else its first batches come twice."""

    given = begin = 0

    def __iter__(self):
        skipped, self.begin = self.begin, 0
        for number, batch in enumerate(super().__iter__()):
            if number >= skipped:
                self.given = number + 1
                yield batch

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.begin = state["given"] % len(self)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def environment():
    """Lightning's own way, which saves inside the signal handler, is switched off; the callback saves between steps."""
    return SLURMEnvironment(auto_requeue=False) if SLURMEnvironment.detect() else LightningEnvironment()


def main(steps, path):
    lightning.seed_everything(1)
    trainer = lightning.Trainer(
        max_steps=steps,
        callbacks=[Leave(path)],
        plugins=[environment()],
        enable_checkpointing=False,  # a ModelCheckpoint belongs here: nodes fail without a signal
        enable_progress_bar=False,
        logger=False,
    )
    again = os.path.exists(path)
    if again:
        print("goes on from", path, flush=True)
    loader = Loader(Samples(EPOCH), batch_size=1)
    trainer.fit(Model(), loader, ckpt_path=path if again else None)
    trainer.save_checkpoint(path)
    print("done at step", trainer.global_step, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
