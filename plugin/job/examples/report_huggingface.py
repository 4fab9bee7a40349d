"""Hugging Face: Trainer(callbacks=[ReportProgress()]) tells slurmsched how the job does."""

import os
import sys
import time

from torch import distributed
from transformers import TrainerCallback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from slurmsched_job import report, wants


class ReportProgress(TrainerCallback):
    """After each step, by the first process. Saves and stops as slurmsched wants, all processes at the same step."""

    def __init__(self, every_s=30.0):
        self.every_s, self._last, self._saved = every_s, None, wants().checkpoint

    def on_step_end(self, args, state, control, **kwargs):
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        now_s = time.monotonic()
        if self._last is None:
            self._last = (state.global_step, now_s)
        elif state.is_world_process_zero:
            speed = (state.global_step - self._last[0]) * batch / max(now_s - self._last[1], 1e-9)
            if report(self.every_s, progress=(state.global_step, max(state.max_steps, state.global_step)),
                      throughput=speed, batch=batch):  # fmt: skip
                self._last = (state.global_step, now_s)
        stop, save = of_the_first(self._asked() if state.is_world_process_zero else (False, False))
        control.should_training_stop = control.should_training_stop or stop
        control.should_save = control.should_save or save
        return control

    def _asked(self):
        """Whether the training is to stop, and to save itself for a request that is new."""
        asked = wants()
        save, self._saved = asked.checkpoint not in (0, self._saved), asked.checkpoint
        return asked.stop, save


def of_the_first(said):
    """What the first process says, in every process: each would see the file at another step."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return said
    box = [said]
    distributed.broadcast_object_list(box, src=0)
    return box[0]
