"""Lightning: Trainer(callbacks=[ReportProgress(samples_per_batch=256)]) tells slurmsched how the job does."""

import os
import sys
import time

from lightning.pytorch.callbacks import Callback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from slurmsched_job import report, wants


class ReportProgress(Callback):
    """After each batch, by the first process. Stops the training when slurmsched says that it is of no use."""

    def __init__(self, samples_per_batch, every_s=30.0):
        self.samples_per_batch, self.every_s = samples_per_batch, every_s
        self._last = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        done, now_s = trainer.global_step, time.monotonic()
        if trainer.is_global_zero and self._last is not None and done > self._last[0]:
            speed = (done - self._last[0]) * self.samples_per_batch / max(now_s - self._last[1], 1e-9)
            total = max(int(trainer.estimated_stepping_batches), done)
            if report(self.every_s, progress=(done, total), throughput=speed, batch=self.samples_per_batch):
                self._last = (done, now_s)
        elif self._last is None:
            self._last = (done, now_s)
        if trainer.strategy.reduce_boolean_decision(wants().stop, all=False):
            trainer.should_stop = True
